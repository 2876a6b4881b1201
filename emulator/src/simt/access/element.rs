//! Elements in memory, and the planes of registers that they go to or come from.

use crate::ops::lanes::Lane;

/// An element in memory. The trait is over its bytes; what the register makes of it is the plane's business.
pub trait Element: Copy {
    fn word(self) -> u32;
    fn double(self) -> u64;
    fn of_word(plane: u32) -> Self;
    fn of_double(plane: u64) -> Self;
}

macro_rules! element {
    ($($t:ty)*) => {$(
        impl Element for $t {
            #[inline(always)] fn word(self) -> u32 { self as u32 }
            #[inline(always)] fn double(self) -> u64 { self as u64 }
            #[inline(always)] fn of_word(plane: u32) -> Self { plane as $t }
            #[inline(always)] fn of_double(plane: u64) -> Self { plane as $t }
        }
    )*};
}

element! { u8 i8 u16 i16 u32 i32 u64 }

/// A plane of registers that elements go to or come from.
pub trait Plane: Lane {
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
