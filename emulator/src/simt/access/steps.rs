//! Finds evenly spaced addresses in both halves of a warp, with vector instructions. No value moves between vector and
//! general registers on the way, because that takes longer than everything else.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_broadcastd_epi32, _mm256_broadcastq_epi64,
    _mm256_castsi256_si128, _mm256_load_si256, _mm256_mullo_epi32, _mm256_or_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_epi32,
    _mm256_slli_epi32, _mm256_slli_epi64, _mm256_sub_epi32, _mm256_sub_epi64, _mm256_testz_si256, _mm256_xor_si256,
};

use crate::ops::lanes::{HALF, LANES};

/// Lanes in a vector of 32-bit and of 64-bit elements.
const WORDS: usize = 8;
const DOUBLES: usize = 4;

/// A plane, aligned to a cache line as in a frame.
#[repr(align(64))]
pub struct Plane<T>([T; LANES]);

/// Returns the first address of each half of a warp and the step from lane to lane, if both halves are evenly spaced. A
/// step has 32 bits; descending rows look like enormous steps.
#[inline]
#[target_feature(enable = "avx2")]
pub fn rows64(plane: &Plane<u64>) -> Option<([u64; 2], u64)> {
    let at = plane.0.as_ptr();
    // SAFETY: the plane holds a vector from each of these lanes on, and is aligned to it.
    let part = |lane: usize| unsafe { _mm256_load_si256(at.add(lane).cast::<__m256i>()) };
    let start = part(0);
    let first = _mm256_broadcastq_epi64(_mm256_castsi256_si128(start));
    let step = _mm256_sub_epi64(_mm256_permute4x64_epi64::<0b01_01_01_01>(start), first);
    // Offsets of the lanes of one vector, in steps: 0, 1, 2, 3.
    let lanes_step = _mm256_add_epi64(times(step, [0, 1, 0, 1]), times(_mm256_slli_epi64::<1>(step), [0, 0, 1, 1]));
    let vector_step = _mm256_slli_epi64::<2>(step);
    let mut differs = _mm256_setzero_si256();
    for half in [0, HALF] {
        let mut expected = _mm256_add_epi64(_mm256_set1_epi64x(plane.0[half] as i64), lanes_step);
        for lane in (half..half + HALF).step_by(DOUBLES) {
            differs = _mm256_or_si256(differs, _mm256_xor_si256(part(lane), expected));
            expected = _mm256_add_epi64(expected, vector_step);
        }
    }
    let step = plane.0[1].wrapping_sub(plane.0[0]);
    let even = _mm256_testz_si256(differs, differs) == 1 && step <= u32::MAX.into();
    even.then_some(([plane.0[0], plane.0[HALF]], step))
}

/// Keeps the elements whose lane has factor 1; the others become zero.
#[inline]
#[target_feature(enable = "avx2")]
fn times(vector: __m256i, [a, b, c, d]: [i64; 4]) -> __m256i {
    use std::arch::x86_64::{_mm256_and_si256, _mm256_setr_epi64x};
    _mm256_and_si256(vector, _mm256_setr_epi64x(-a, -b, -c, -d))
}

/// Finds rows like [`rows64`], for 32-bit addresses, which wrap around.
#[inline]
#[target_feature(enable = "avx2")]
pub fn rows32(plane: &Plane<u32>) -> Option<([u64; 2], u64)> {
    let at = plane.0.as_ptr();
    // SAFETY: the plane holds a vector from each of these lanes on, and is aligned to it.
    let part = |lane: usize| unsafe { _mm256_load_si256(at.add(lane).cast::<__m256i>()) };
    let start = part(0);
    let first = _mm256_broadcastd_epi32(_mm256_castsi256_si128(start));
    let second = _mm256_broadcastd_epi32(_mm256_castsi256_si128(_mm256_shuffle_epi32::<0b01_01_01_01>(start)));
    let step = _mm256_sub_epi32(second, first);
    let lanes_step = _mm256_mullo_epi32(step, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    let vector_step = _mm256_slli_epi32::<3>(step);
    let mut differs = _mm256_setzero_si256();
    for half in [0, HALF] {
        let mut expected = _mm256_add_epi32(_mm256_set1_epi32(plane.0[half] as i32), lanes_step);
        for lane in (half..half + HALF).step_by(WORDS) {
            differs = _mm256_or_si256(differs, _mm256_xor_si256(part(lane), expected));
            expected = _mm256_add_epi32(expected, vector_step);
        }
    }
    let step = plane.0[1].wrapping_sub(plane.0[0]);
    let firsts = [plane.0[0].into(), plane.0[HALF].into()];
    (_mm256_testz_si256(differs, differs) == 1).then_some((firsts, step.into()))
}

#[cfg(test)]
mod tests {
    use super::{HALF, LANES, Plane, rows32, rows64};
    use crate::ops::lanes::vector_available;

    /// Finds rows by the definition, lane by lane.
    fn plain(plane: &[u64; LANES], width: u64) -> Option<([u64; 2], u64)> {
        let step = plane[1].wrapping_sub(plane[0]) & width;
        let first = |lane: usize| plane[lane / HALF * HALF];
        let expected = |lane: usize| first(lane).wrapping_add(step.wrapping_mul((lane % HALF) as u64)) & width;
        let lies = |lane: usize| plane[lane] == expected(lane);
        ((0..LANES).all(lies) && step <= u32::MAX.into()).then_some(([plane[0], plane[HALF]], step))
    }

    #[test]
    fn rows_of_all_starts_and_steps_are_found_and_nothing_else() {
        if !vector_available() {
            return;
        }
        const EDGES: [u64; 8] = [0, 4, 0x1000, 0x7fff_fff0, 0xffff_fff0, 0xffff_ffff, 1 << 40, u64::MAX - 5];
        const STEPS: [u64; 9] = [0, 1, 4, 16, 132, 0x8000_0000, 0xffff_ffff, 1 << 32, u64::MAX - 3];
        for (first, step) in EDGES.iter().flat_map(|first| STEPS.map(|step| (*first, step))) {
            let mut even: [u64; LANES] = std::array::from_fn(|lane| first.wrapping_add(step.wrapping_mul(lane as u64)));
            // The halves are contiguous or far apart.
            if step % 3 == 0 {
                even[HALF..].iter_mut().for_each(|address| *address = address.wrapping_add(0x1234));
            }
            // First no lane differs, then each in turn, in the lowest and in the highest bits.
            for (lane, bit) in (0..LANES).flat_map(|lane| [(lane, 0), (lane, 1), (lane, 1 << 31), (lane, 1 << 63)]) {
                let mut plane = even;
                plane[lane] ^= bit;
                // SAFETY: the machine was asked.
                assert_eq!(unsafe { rows64(&Plane(plane)) }, plain(&plane, u64::MAX), "{first:#x} {step:#x} {lane}");
                let words = plane.map(|address| address as u32);
                let expected = plain(&words.map(u64::from), u32::MAX.into());
                // SAFETY: as above.
                assert_eq!(unsafe { rows32(&Plane(words)) }, expected, "{first:#x} {step:#x} {lane}");
            }
        }
    }
}
