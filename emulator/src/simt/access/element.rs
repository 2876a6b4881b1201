//! Conversion of elements in memory to and from planes of registers.

use std::sync::atomic::{AtomicI8, AtomicI16, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::ops::lanes::Lane;

/// An element in memory, as plain bytes; the plane decides how it is extended.
pub trait Element: Copy {
    /// True if wider registers repeat the sign.
    const SIGNED: bool;
    fn word(self) -> u32;
    fn double(self) -> u64;
    fn of_word(plane: u32) -> Self;
    fn of_double(plane: u64) -> Self;
    /// Reads an element that other threads may write concurrently. Fences order it among other accesses.
    ///
    /// # Safety
    /// The place can be read and is aligned.
    unsafe fn load_atomic(place: *const Self) -> Self;
    /// Writes an element that other threads may read concurrently.
    ///
    /// # Safety
    /// The place can be written and is aligned.
    unsafe fn store_atomic(place: *mut Self, element: Self);
}

macro_rules! element {
    ($($t:ty: $atomic:ty;)*) => {$(
        impl Element for $t {
            const SIGNED: bool = <$t>::MIN != 0;
            #[inline(always)] fn word(self) -> u32 { self as u32 }
            #[inline(always)] fn double(self) -> u64 { self as u64 }
            #[inline(always)] fn of_word(plane: u32) -> Self { plane as $t }
            #[inline(always)] fn of_double(plane: u64) -> Self { plane as $t }
            #[inline(always)]
            unsafe fn load_atomic(place: *const Self) -> Self {
                // SAFETY: the caller vouches for the place.
                unsafe { <$atomic>::from_ptr(place.cast_mut()) }.load(Ordering::Relaxed)
            }
            #[inline(always)]
            unsafe fn store_atomic(place: *mut Self, element: Self) {
                // SAFETY: the caller vouches for the place.
                unsafe { <$atomic>::from_ptr(place) }.store(element, Ordering::Relaxed);
            }
        }
    )*};
}

element! { u8: AtomicU8; i8: AtomicI8; u16: AtomicU16; i16: AtomicI16; u32: AtomicU32; i32: AtomicI32; u64: AtomicU64; }

/// A plane of registers, which elements are loaded to or stored from.
pub trait Plane: Lane<Plane = Self> {
    fn from_element<E: Element>(element: E) -> Self;
    fn to_element<E: Element>(self) -> E;
}

impl Plane for u32 {
    #[inline(always)]
    fn from_element<E: Element>(element: E) -> u32 {
        element.word()
    }
    #[inline(always)]
    fn to_element<E: Element>(self) -> E {
        E::of_word(self)
    }
}

impl Plane for u64 {
    #[inline(always)]
    fn from_element<E: Element>(element: E) -> u64 {
        element.double()
    }
    #[inline(always)]
    fn to_element<E: Element>(self) -> E {
        E::of_double(self)
    }
}
