//! Integer arithmetic and comparison.

use super::lanes::{Lane, Lanes, Pair, binary, compare, ternary, unary};
use crate::ptx::types::Type;

/// Properties of an integer type that the operations need.
pub trait Integer: Lane + Ord {
    const BITS: u32;
    fn from_i128(value: i128) -> Self;
    fn to_i128(self) -> i128;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn abs_diff(self, other: Self) -> Self;
    fn shr(self, by: u32) -> Self;
    fn shl(self, by: u32) -> Self;
}

macro_rules! integers {
    ($($t:ty, $wide:ty, $abs:expr;)*) => {$(
        impl Integer for $t {
            const BITS: u32 = <$t>::BITS;
            #[inline(always)] fn from_i128(value: i128) -> Self { value as $t }
            #[inline(always)] fn to_i128(self) -> i128 { self as i128 }
            #[inline(always)] fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)] fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)] fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)] fn mul_high(self, other: Self) -> Self {
                ((self as $wide * other as $wide) >> <$t>::BITS) as $t
            }
            // PTX does not define division by zero; devices return all ones, for the remainder too.
            #[inline(always)] fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)] fn rem(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)] fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)] fn abs(self) -> Self { let abs: fn($t) -> $t = $abs; abs(self) }
            #[inline(always)] fn abs_diff(self, other: Self) -> Self { <$t>::abs_diff(self, other) as $t }
            #[inline(always)] fn shr(self, by: u32) -> Self {
                if by < <$t>::BITS { self >> by } else { self >> (<$t>::BITS - 1) >> 1 }
            }
            #[inline(always)] fn shl(self, by: u32) -> Self { if by < <$t>::BITS { self << by } else { 0 } }
        }
    )*};
}

integers! {
    u8, u16, |v| v;
    i8, i16, |v| v.wrapping_abs();
    u16, u32, |v| v;
    i16, i32, |v| v.wrapping_abs();
    u32, u64, |v| v;
    i32, i64, |v| v.wrapping_abs();
    u64, u128, |v| v;
    i64, i128, |v| v.wrapping_abs();
}

macro_rules! pairs {
    ($($t:ty)*) => {$(
        impl Lane for Pair<$t> {
            type Plane = u32;
            #[inline(always)]
            fn read(plane: u32) -> Self {
                Pair(plane as $t, (plane >> 16) as $t)
            }
            #[inline(always)]
            fn plane(self) -> u32 {
                u32::from(self.0 as u16) | u32::from(self.1 as u16) << 16
            }
            #[inline(always)]
            fn zero() -> u32 {
                0
            }
        }
    )*};
}

pairs! { u16 i16 }

/// Evaluates an expression with a name for the Rust type of an integer type of 16 to 64 bits.
macro_rules! by_integer {
    ($type:expr, $t:ident => $body:expr) => {
        match $type {
            Type::U16 | Type::B16 => {
                type $t = u16;
                Some($body)
            }
            Type::S16 => {
                type $t = i16;
                Some($body)
            }
            Type::U32 | Type::B32 => {
                type $t = u32;
                Some($body)
            }
            Type::S32 => {
                type $t = i32;
                Some($body)
            }
            Type::U64 | Type::B64 => {
                type $t = u64;
                Some($body)
            }
            Type::S64 => {
                type $t = i64;
                Some($body)
            }
            _ => None,
        }
    };
}

/// Evaluates an expression with a name for the unsigned Rust type of 16, 32 or 64 bits.
macro_rules! by_bits {
    ($type:expr, $t:ident => $body:expr) => {
        match $type.bits() {
            16 => {
                type $t = u16;
                Some($body)
            }
            32 => {
                type $t = u32;
                Some($body)
            }
            64 => {
                type $t = u64;
                Some($body)
            }
            _ => None,
        }
    };
}

/// Evaluates an expression with a name for the unsigned Rust type of 32 or 64 bits.
macro_rules! by_word {
    ($type:expr, $t:ident => $body:expr) => {
        match $type.bits() {
            32 => {
                type $t = u32;
                Some($body)
            }
            64 => {
                type $t = u64;
                Some($body)
            }
            _ => None,
        }
    };
}
pub(super) use {by_bits, by_integer, by_word};

/// Returns the integer arithmetic of this name; untyped bits (`.b32`) have none.
pub fn arithmetic(name: &str, ty: Type) -> Option<Lanes> {
    if matches!(ty, Type::B16 | Type::B32 | Type::B64) {
        return None;
    }
    match name {
        "add" => by_integer!(ty, T => binary(|a: T, b: T| Integer::add(a, b))),
        "sub" => by_integer!(ty, T => binary(|a: T, b: T| Integer::sub(a, b))),
        "mul.lo" => by_integer!(ty, T => binary(|a: T, b: T| Integer::mul(a, b))),
        "mul.hi" => by_integer!(ty, T => binary(|a: T, b: T| a.mul_high(b))),
        "div" => by_integer!(ty, T => binary(|a: T, b: T| Integer::div(a, b))),
        "rem" => by_integer!(ty, T => binary(|a: T, b: T| Integer::rem(a, b))),
        "min" => by_integer!(ty, T => binary(|a: T, b: T| Ord::min(a, b))),
        "max" => by_integer!(ty, T => binary(|a: T, b: T| Ord::max(a, b))),
        "min.relu" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.min(b).max(0))),
        "max.relu" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.max(b).max(0))),
        "neg" if ty.is_signed() => by_integer!(ty, T => unary(|a: T| Integer::neg(a))),
        "abs" if ty.is_signed() => by_integer!(ty, T => unary(|a: T| Integer::abs(a))),
        "mad.lo" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(Integer::mul(a, b), c))),
        "mad.hi" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(a.mul_high(b), c))),
        "sad" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(Integer::abs_diff(a, b), c))),
        "add.sat" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.saturating_add(b))),
        "sub.sat" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.saturating_sub(b))),
        "mad.hi.sat" if ty == Type::S32 => Some(ternary(|a: i32, b: i32, c: i32| a.mul_high(b).saturating_add(c))),
        "mad24.hi.sat" if ty == Type::S32 => {
            Some(ternary(|a: i32, b: i32, c: i32| signed_high48(a, b).saturating_add(c)))
        }
        _ => wide(name, ty),
    }
}

/// Returns arithmetic on two 16-bit integers in one register.
pub fn paired(name: &str, signed: bool) -> Option<Lanes> {
    #[inline(always)]
    fn both<T>(a: Pair<T>, b: Pair<T>, f: impl Fn(T, T) -> T) -> Pair<T> {
        Pair(f(a.0, b.0), f(a.1, b.1))
    }
    Some(match (name, signed) {
        ("add", _) => binary(|a: Pair<u16>, b: Pair<u16>| both(a, b, u16::wrapping_add)),
        ("min", false) => binary(|a: Pair<u16>, b: Pair<u16>| both(a, b, Ord::min)),
        ("max", false) => binary(|a: Pair<u16>, b: Pair<u16>| both(a, b, Ord::max)),
        ("min", true) => binary(|a: Pair<i16>, b: Pair<i16>| both(a, b, Ord::min)),
        ("max", true) => binary(|a: Pair<i16>, b: Pair<i16>| both(a, b, Ord::max)),
        ("min.relu", true) => binary(|a: Pair<i16>, b: Pair<i16>| both(a, b, |a, b| a.min(b).max(0))),
        ("max.relu", true) => binary(|a: Pair<i16>, b: Pair<i16>| both(a, b, |a, b| a.max(b).max(0))),
        _ => return None,
    })
}

fn wide(name: &str, ty: Type) -> Option<Lanes> {
    Some(match (name, ty) {
        ("mul.wide", Type::U16) => binary(|a: u16, b: u16| u32::from(a) * u32::from(b)),
        ("mul.wide", Type::S16) => binary(|a: i16, b: i16| i32::from(a) * i32::from(b)),
        ("mul.wide", Type::U32) => binary(|a: u32, b: u32| u64::from(a) * u64::from(b)),
        ("mul.wide", Type::S32) => binary(|a: i32, b: i32| i64::from(a) * i64::from(b)),
        ("mad.wide", Type::U16) => ternary(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        ("mad.wide", Type::S16) => ternary(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        ("mad.wide", Type::U32) => ternary(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        ("mad.wide", Type::S32) => ternary(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        ("mul24.lo", Type::U32) => binary(|a: u32, b: u32| low24(a).wrapping_mul(low24(b))),
        ("mul24.lo", Type::S32) => binary(|a: i32, b: i32| signed24(a).wrapping_mul(signed24(b))),
        ("mul24.hi", Type::U32) => binary(|a: u32, b: u32| high48(a, b)),
        ("mul24.hi", Type::S32) => binary(|a: i32, b: i32| signed_high48(a, b)),
        ("mad24.lo", Type::U32) => ternary(|a: u32, b: u32, c: u32| low24(a).wrapping_mul(low24(b)).wrapping_add(c)),
        ("mad24.lo", Type::S32) => {
            ternary(|a: i32, b: i32, c: i32| signed24(a).wrapping_mul(signed24(b)).wrapping_add(c))
        }
        ("mad24.hi", Type::U32) => ternary(|a: u32, b: u32, c: u32| high48(a, b).wrapping_add(c)),
        ("mad24.hi", Type::S32) => ternary(|a: i32, b: i32, c: i32| signed_high48(a, b).wrapping_add(c)),
        _ => return None,
    })
}

#[inline(always)]
fn low24(value: u32) -> u32 {
    value & 0x00ff_ffff
}

#[inline(always)]
fn signed24(value: i32) -> i32 {
    value << 8 >> 8
}

/// Returns bits 47 to 16 of the 48-bit product (`mul24.hi`).
#[inline(always)]
fn high48(a: u32, b: u32) -> u32 {
    ((u64::from(low24(a)) * u64::from(low24(b))) >> 16) as u32
}

#[inline(always)]
fn signed_high48(a: i32, b: i32) -> i32 {
    ((i64::from(signed24(a)) * i64::from(signed24(b))) >> 16) as i32
}

/// Returns an integer comparison. Untyped bits have only `eq` and `ne`; `lo`, `ls`, `hi` and `hs` are for unsigned
/// types.
pub fn comparison(name: &str, ty: Type) -> Option<Lanes> {
    let is_bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
    match name {
        "eq" => by_bits!(ty, T => compare(|a: T, b: T| a == b)),
        "ne" => by_bits!(ty, T => compare(|a: T, b: T| a != b)),
        _ if is_bits => None,
        "lt" => by_integer!(ty, T => compare(|a: T, b: T| a < b)),
        "le" => by_integer!(ty, T => compare(|a: T, b: T| a <= b)),
        "gt" => by_integer!(ty, T => compare(|a: T, b: T| a > b)),
        "ge" => by_integer!(ty, T => compare(|a: T, b: T| a >= b)),
        _ if ty.is_signed() => None,
        "lo" => by_bits!(ty, T => compare(|a: T, b: T| a < b)),
        "ls" => by_bits!(ty, T => compare(|a: T, b: T| a <= b)),
        "hi" => by_bits!(ty, T => compare(|a: T, b: T| a > b)),
        "hs" => by_bits!(ty, T => compare(|a: T, b: T| a >= b)),
        _ => None,
    }
}
