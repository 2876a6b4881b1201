//! Shuffles: each lane reads the value of another lane. If the operands are constants, the source lanes are computed
//! when the module is loaded.

use crate::ops::lanes::{LANES, load, mask_of, store, store_mask};
use crate::program::warp::{Shuffle, ShuffleMode, Sources};

/// Runs a shuffle for the lanes of `mask`.
///
/// # Safety
/// The slots are planes of the frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn run<const VECTOR: bool>(shuffle: &Shuffle, frame: *mut u8, mask: u32) {
    // SAFETY: the same contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR {
            return in_vectors::run(shuffle, frame, mask);
        }
        body::<false>(shuffle, frame, mask, |a, from| from.map(|lane| a[lane as usize % LANES]));
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn body<const VECTOR: bool>(
    shuffle: &Shuffle,
    frame: *mut u8,
    mask: u32,
    pick: impl Fn(&[u32; LANES], &[u32; LANES]) -> [u32; LANES],
) {
    // SAFETY: the caller vouches for the slots and the machine.
    unsafe {
        let found;
        let sources = match &shuffle.sources {
            Some(known) => &**known,
            None => {
                found = sources(shuffle.mode, &load::<u32>(frame, shuffle.b), &load::<u32>(frame, shuffle.c));
                &found
            }
        };
        let values = pick(&load::<u32>(frame, shuffle.a), &sources.from);
        store::<u32, VECTOR>(frame, shuffle.d, &values, mask);
        store_mask(frame, shuffle.valid, sources.inside, mask);
    }
}

/// Shuffles with the machine's vectors.
#[cfg(target_arch = "x86_64")]
mod in_vectors {
    use std::arch::x86_64::{
        __m256i, _mm256_blendv_epi8, _mm256_loadu_si256, _mm256_permutevar8x32_epi32, _mm256_slli_epi32,
        _mm256_srai_epi32, _mm256_storeu_si256,
    };

    use super::{Shuffle, body};
    use crate::ops::lanes::LANES;

    /// Lanes in a vector.
    const WIDTH: usize = 8;

    type Words = [u32; LANES];

    /// # Safety
    /// As for [`super::run`].
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn run(shuffle: &Shuffle, frame: *mut u8, mask: u32) {
        // SAFETY: the same contract.
        unsafe { body::<true>(shuffle, frame, mask, |a, from| pick(a, from)) }
    }

    /// Returns, for each lane, the value of the lane of `a` that `from` names.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pick(a: &Words, from: &Words) -> Words {
        let mut values = [0; LANES];
        for lane in (0..LANES).step_by(WIDTH) {
            // SAFETY: the arrays hold a vector from each of these lanes on.
            unsafe {
                let part = |first: usize| _mm256_loadu_si256(a.as_ptr().add(first).cast());
                let from = _mm256_loadu_si256(from.as_ptr().add(lane).cast());
                // Permutes each part by the lower three bits of the source lane. The next two bits select the part,
                // after a shift makes them the sign.
                let of = |first: usize| _mm256_permutevar8x32_epi32(part(first), from);
                let (third, fourth) = (signs(_mm256_slli_epi32::<28>(from)), signs(_mm256_slli_epi32::<27>(from)));
                let low = _mm256_blendv_epi8(of(0), of(8), third);
                let high = _mm256_blendv_epi8(of(16), of(24), third);
                let value = _mm256_blendv_epi8(low, high, fourth);
                _mm256_storeu_si256(values.as_mut_ptr().add(lane).cast(), value);
            }
        }
        values
    }

    /// Returns all ones where the sign is set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn signs(vector: __m256i) -> __m256i {
        _mm256_srai_epi32::<31>(vector)
    }
}

/// Returns the source lanes for the operands of a shuffle.
#[inline(always)]
pub fn sources(mode: ShuffleMode, b: &[u32; LANES], c: &[u32; LANES]) -> Sources {
    /// `find` returns the source lane and whether it is inside the segment, given a lane, its operand, and the first
    /// and last lane of its segment. There is one loop per mode, which the compiler vectorises.
    #[inline(always)]
    fn all(b: &[u32; LANES], c: &[u32; LANES], find: impl Fn(u32, u32, u32, u32) -> (u32, bool)) -> Sources {
        let (mut from, mut inside) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let (clamp, segments) = (c[lane] & 31, c[lane] >> 8 & 31);
            let least = lane as u32 & segments;
            let (source, is_inside) = find(lane as u32, b[lane] & 31, least, least | clamp & !segments);
            inside[lane] = if is_inside { u32::MAX } else { 0 };
            from[lane] = if is_inside { source } else { lane as u32 };
        }
        Sources { from, inside: mask_of(&inside) }
    }
    match mode {
        ShuffleMode::Up => all(b, c, |lane, b, _, most| (lane.wrapping_sub(b), lane as i32 - b as i32 >= most as i32)),
        ShuffleMode::Down => all(b, c, |lane, b, _, most| (lane + b, lane + b <= most)),
        ShuffleMode::Butterfly => all(b, c, |lane, b, _, most| (lane ^ b, lane ^ b <= most)),
        ShuffleMode::Index => {
            let mut segments = [0; LANES];
            for lane in 0..LANES {
                segments[lane] = b[lane] & 31 & !(c[lane] >> 8 & 31);
            }
            all(&segments, c, |_, b, least, most| (least | b, least | b <= most))
        }
    }
}
