//! Vector code for elements of four words: transposes the words of half a warp between rows in memory and one plane per
//! word.

use std::arch::x86_64::{
    __m256, _mm_loadu_ps, _mm_storeu_ps, _mm256_castps128_ps256, _mm256_castps256_ps128, _mm256_extractf128_ps,
    _mm256_insertf128_ps, _mm256_loadu_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use crate::ops::lanes::HALF;

/// Lanes in a vector.
const WIDTH: usize = 8;

/// Transposes four vectors within each of their halves: element `n` of vector `m` becomes element `m` of vector `n`.
#[inline]
#[target_feature(enable = "avx2")]
fn turn([a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    [
        _mm256_shuffle_ps::<0b0100_0100>(ab_low, cd_low),
        _mm256_shuffle_ps::<0b1110_1110>(ab_low, cd_low),
        _mm256_shuffle_ps::<0b0100_0100>(ab_high, cd_high),
        _mm256_shuffle_ps::<0b1110_1110>(ab_high, cd_high),
    ]
}

/// Loads four words for each lane of half a warp, `step` bytes from lane to lane, to one plane per word.
///
/// # Safety
/// The words can be read, and each target has room for half a plane.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn split(from: *const f32, step: usize, targets: [*mut f32; 4]) {
    for lane in (0..HALF).step_by(WIDTH) {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let of = |lane: usize| _mm_loadu_ps(from.byte_add(step * lane));
            // Lane n in the lower half of a vector, lane n + 4 in its upper half.
            let pair = |n: usize| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(of(lane + n)), of(lane + n + 4));
            let turned = turn([pair(0), pair(1), pair(2), pair(3)]);
            for (target, plane) in targets.iter().zip(turned) {
                _mm256_storeu_ps(target.add(lane), plane);
            }
        }
    }
}

/// Stores four words of each lane of half a warp, from one plane per word, `step` bytes from lane to lane.
///
/// # Safety
/// Each source holds half a plane, and the words can be written.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn join(sources: [*const f32; 4], to: *mut f32, step: usize) {
    for lane in (0..HALF).step_by(WIDTH) {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let plane = |component: usize| _mm256_loadu_ps(sources[component].add(lane));
            let turned = turn([plane(0), plane(1), plane(2), plane(3)]);
            for (n, pair) in turned.into_iter().enumerate() {
                _mm_storeu_ps(to.byte_add(step * (lane + n)), _mm256_castps256_ps128(pair));
                _mm_storeu_ps(to.byte_add(step * (lane + n + 4)), _mm256_extractf128_ps::<1>(pair));
            }
        }
    }
}
