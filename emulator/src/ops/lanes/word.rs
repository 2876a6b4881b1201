//! Conversions between masks and planes. They use vector intrinsics where available, because the code that compilers
//! make for a choice by single bits of a mask is several times slower.

use super::LANES;

/// An element of a plane: 32 or 64 bits.
pub trait Word: Copy {
    /// Replaces the lanes of `mask` by `values`.
    ///
    /// # Safety
    /// With `VECTOR`, the machine has what [`super::vector_available`] asks for.
    unsafe fn merge<const VECTOR: bool>(target: &mut [Self; LANES], values: &[Self; LANES], mask: u32);
}

impl Word for u32 {
    #[inline(always)]
    unsafe fn merge<const VECTOR: bool>(target: &mut [u32; LANES], values: &[u32; LANES], mask: u32) {
        #[cfg(target_arch = "x86_64")]
        if VECTOR {
            // SAFETY: the caller vouches for the machine.
            return unsafe { vector::merge32(target, values, mask) };
        }
        merge(target, values, mask);
    }
}

impl Word for u64 {
    #[inline(always)]
    unsafe fn merge<const VECTOR: bool>(target: &mut [u64; LANES], values: &[u64; LANES], mask: u32) {
        #[cfg(target_arch = "x86_64")]
        if VECTOR {
            // SAFETY: the caller vouches for the machine.
            return unsafe { vector::merge64(target, values, mask) };
        }
        merge(target, values, mask);
    }
}

#[inline(never)]
fn merge<T: Copy>(target: &mut [T; LANES], values: &[T; LANES], mask: u32) {
    let mut left = mask;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        target[lane] = values[lane];
        left &= left - 1;
    }
}

/// Returns the mask of the lanes whose flag is all ones; the other flags are zero.
#[inline(always)]
pub fn mask_of(flags: &[u32; LANES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32};
        // SAFETY: the array has the size of the vectors, any bits make them; every x86-64 has these operations.
        unsafe {
            let parts: [__m128i; 8] = std::mem::transmute(*flags);
            let half = |first: usize| {
                let low = _mm_packs_epi32(parts[first], parts[first + 1]);
                let high = _mm_packs_epi32(parts[first + 2], parts[first + 3]);
                _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
            };
            half(0) | half(4) << 16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        flags.iter().enumerate().fold(0, |mask, (lane, flag)| mask | (flag & 1) << lane)
    }
}

/// Sets all lanes to one value. It writes whole vectors, because processors are slow to read a vector that was written
/// in pieces.
pub fn fill(plane: &mut [u32; LANES], value: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_set1_epi32, _mm_storeu_si128};
        let at = plane.as_mut_ptr().cast::<__m128i>();
        for part in 0..LANES / 4 {
            // SAFETY: the plane has space for all these vectors; every x86-64 has these operations.
            unsafe { _mm_storeu_si128(at.add(part), _mm_set1_epi32(value as i32)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    plane.fill(value);
}

/// Returns a mask as flags: all ones in its lanes, zero in the others.
#[inline(always)]
pub fn flags_of(mask: u32) -> [u32; LANES] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_set1_epi32};
        // SAFETY: the arrays have the size of the vectors, any bits make them; every x86-64 has these operations.
        unsafe {
            let bits: [__m128i; 8] = std::mem::transmute(BITS);
            let all = _mm_set1_epi32(mask as i32);
            std::mem::transmute(bits.map(|bits| _mm_cmpeq_epi32(_mm_and_si128(all, bits), bits)))
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        BITS.map(|bit| if mask & bit != 0 { u32::MAX } else { 0 })
    }
}

/// Bit of each lane in a mask.
const BITS: [u32; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::{
        __m256i, _mm_and_si128, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_set1_epi32, _mm256_and_si256, _mm256_blendv_epi8,
        _mm256_cmpeq_epi32, _mm256_cvtepi32_epi64, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_storeu_si256,
    };

    use super::{BITS, LANES};

    /// Lanes in a vector of 32-bit elements.
    const WIDTH: usize = 8;

    #[target_feature(enable = "avx2")]
    pub(super) fn merge32(target: &mut [u32; LANES], values: &[u32; LANES], mask: u32) {
        let all = _mm256_set1_epi32(mask as i32);
        for lane in (0..LANES).step_by(WIDTH) {
            // SAFETY: the arrays hold a vector from each of these lanes on.
            unsafe {
                let bits = _mm256_loadu_si256(BITS.as_ptr().add(lane).cast());
                let on = _mm256_cmpeq_epi32(_mm256_and_si256(all, bits), bits);
                let place = target.as_mut_ptr().add(lane).cast::<__m256i>();
                let value = _mm256_loadu_si256(values.as_ptr().add(lane).cast());
                _mm256_storeu_si256(place, _mm256_blendv_epi8(_mm256_loadu_si256(place), value, on));
            }
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn merge64(target: &mut [u64; LANES], values: &[u64; LANES], mask: u32) {
        let all = _mm_set1_epi32(mask as i32);
        for lane in (0..LANES).step_by(WIDTH / 2) {
            // SAFETY: the arrays hold a vector, and `BITS` half of one, from each of these lanes on.
            unsafe {
                let bits = _mm_loadu_si128(BITS.as_ptr().add(lane).cast());
                let on = _mm256_cvtepi32_epi64(_mm_cmpeq_epi32(_mm_and_si128(all, bits), bits));
                let place = target.as_mut_ptr().add(lane).cast::<__m256i>();
                let value = _mm256_loadu_si256(values.as_ptr().add(lane).cast());
                _mm256_storeu_si256(place, _mm256_blendv_epi8(_mm256_loadu_si256(place), value, on));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, Word, flags_of, mask_of};
    use crate::ops::lanes::vector_available;

    const MASKS: [u32; 7] = [0, 1, 1 << 31, u32::MAX, 0x5555_5555, 0x8000_ffff, 0x1234_5678];

    #[test]
    fn flags_and_masks_say_the_same() {
        for mask in MASKS {
            let flags = flags_of(mask);
            assert!(
                (0..LANES).all(|lane| flags[lane] == if mask >> lane & 1 != 0 { u32::MAX } else { 0 }),
                "{mask:#x}"
            );
            assert_eq!(mask_of(&flags), mask);
        }
    }

    #[test]
    fn merging_replaces_the_lanes_of_the_mask_and_no_other() {
        fn check<T: Word + PartialEq + std::fmt::Debug>(old: [T; LANES], new: [T; LANES], mask: u32) {
            let expected: [T; LANES] = std::array::from_fn(|l| if mask >> l & 1 != 0 { new[l] } else { old[l] });
            let mut target = old;
            // SAFETY: the portable build runs anywhere.
            unsafe { T::merge::<false>(&mut target, &new, mask) };
            assert_eq!(target, expected);
            if vector_available() {
                let mut target = old;
                // SAFETY: the machine was asked.
                unsafe { T::merge::<true>(&mut target, &new, mask) };
                assert_eq!(target, expected, "{mask:#x}");
            }
        }
        for mask in MASKS {
            check::<u32>(std::array::from_fn(|l| l as u32), std::array::from_fn(|l| !(l as u32)), mask);
            check::<u64>(std::array::from_fn(|l| l as u64), std::array::from_fn(|l| !(l as u64)), mask);
        }
    }
}
