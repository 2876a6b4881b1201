//! Moves contiguous elements in memory to the lanes of half a warp and back.

use super::element::{Element, Plane};
use crate::ops::lanes::HALF;

/// Loads an element for each lane.
///
/// # Safety
/// The elements can be read, the target has room for half a plane; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn widen<E: Element, P: Plane, const VECTOR: bool>(from: *const E, to: *mut P) {
    // SAFETY: the caller vouches for the pointers and the machine.
    unsafe {
        if size_of::<E>() == size_of::<P>() {
            to.cast::<[E; HALF]>().write_unaligned(from.cast::<[E; HALF]>().read_unaligned());
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if VECTOR && size_of::<P>() == 4 {
            return match size_of::<E>() {
                1 => vector::bytes::<E>(from.cast(), to.cast()),
                _ => vector::halves::<E>(from.cast(), to.cast()),
            };
        }
        let elements = *from.cast::<[E; HALF]>();
        *to.cast::<[P; HALF]>() = std::array::from_fn(|lane| P::from_element(elements[lane]));
    }
}

/// Writes the values of half a warp's lanes to a plane, as whole vectors, because processors are slow to read a vector
/// that was just written in pieces.
///
/// # Safety
/// The target has room for half a plane; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn gather<P: Plane, const VECTOR: bool>(to: *mut P, value: impl Fn(usize) -> P) {
    // SAFETY: the caller vouches for the target and the machine.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR {
            return match size_of::<P>() {
                4 => vector::words(to.cast(), |lane| value(lane).to_element::<u32>()),
                _ => vector::doubles(to.cast(), |lane| value(lane).to_element::<u64>()),
            };
        }
        *to.cast::<[P; HALF]>() = std::array::from_fn(value);
    }
}

/// Stores the element of each lane.
///
/// # Safety
/// The source holds half a plane, the elements can be written; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn narrow<E: Element, P: Plane, const VECTOR: bool>(from: *const P, to: *mut E) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        if size_of::<E>() == size_of::<P>() {
            to.cast::<[E; HALF]>().write_unaligned(from.cast::<[E; HALF]>().read_unaligned());
            return;
        }
        let plane = *from.cast::<[P; HALF]>();
        *to.cast::<[E; HALF]>() = std::array::from_fn(|lane| plane[lane].to_element());
    }
}

/// Vector code: moves lanes to vectors, and extends narrow integers to words, with or without sign.
#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_cvtepi8_epi32, _mm256_cvtepi16_epi32,
        _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_storeu_si256,
    };

    use super::{Element, HALF};

    /// Lanes in a vector of 32-bit and of 64-bit elements.
    const WIDTH: usize = 8;
    const DOUBLES: usize = 4;

    /// # Safety
    /// The target has room for the words of half a warp.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn words(to: *mut u32, word: impl Fn(usize) -> u32) {
        for lane in (0..HALF).step_by(WIDTH) {
            let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| word(lane + n) as i32);
            // SAFETY: the caller vouches for the target.
            unsafe { _mm256_storeu_si256(to.add(lane).cast::<__m256i>(), _mm256_setr_epi32(a, b, c, d, e, f, g, h)) };
        }
    }

    /// # Safety
    /// The target has room for the doubles of half a warp.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn doubles(to: *mut u64, double: impl Fn(usize) -> u64) {
        for lane in (0..HALF).step_by(DOUBLES) {
            let [a, b, c, d] = std::array::from_fn(|n| double(lane + n) as i64);
            // SAFETY: the caller vouches for the target.
            unsafe { _mm256_storeu_si256(to.add(lane).cast::<__m256i>(), _mm256_setr_epi64x(a, b, c, d)) };
        }
    }

    /// # Safety
    /// Half a warp's bytes can be read, and the target has room for their words.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn bytes<E: Element>(from: *const u8, to: *mut u32) {
        for lane in (0..HALF).step_by(WIDTH) {
            // SAFETY: the caller vouches for the pointers.
            unsafe {
                let part = _mm_loadl_epi64(from.add(lane).cast::<__m128i>());
                let wide = if E::SIGNED { _mm256_cvtepi8_epi32(part) } else { _mm256_cvtepu8_epi32(part) };
                _mm256_storeu_si256(to.add(lane).cast::<__m256i>(), wide);
            }
        }
    }

    /// # Safety
    /// Half a warp's elements of two bytes can be read, and the target has room for their words.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn halves<E: Element>(from: *const u16, to: *mut u32) {
        for lane in (0..HALF).step_by(WIDTH) {
            // SAFETY: the caller vouches for the pointers.
            unsafe {
                let part = _mm_loadu_si128(from.add(lane).cast::<__m128i>());
                let wide = if E::SIGNED { _mm256_cvtepi16_epi32(part) } else { _mm256_cvtepu16_epi32(part) };
                _mm256_storeu_si256(to.add(lane).cast::<__m256i>(), wide);
            }
        }
    }
}
