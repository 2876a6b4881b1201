//! Integer and bit operations.

use super::lanes::{Lane, Lanes, binary, carry, choose, compare, quaternary, ternary, unary};
use crate::ptx::types::Type;

/// What the operations need of an integer type.
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
            // PTX leaves division by zero open; devices give all ones, and the dividend as the remainder.
            #[inline(always)] fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)] fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
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

/// Evaluates an expression with a name bound to the Rust type of an integer type of 16 to 64 bits.
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

/// The same for the three unsigned sizes.
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

/// The same for 32 and 64 bits.
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

pub fn arithmetic(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "add" => by_integer!(ty, T => binary(|a: T, b: T| Integer::add(a, b))),
        "sub" => by_integer!(ty, T => binary(|a: T, b: T| Integer::sub(a, b))),
        "mul.lo" => by_integer!(ty, T => binary(|a: T, b: T| Integer::mul(a, b))),
        "mul.hi" => by_integer!(ty, T => binary(|a: T, b: T| a.mul_high(b))),
        "div" => by_integer!(ty, T => binary(|a: T, b: T| Integer::div(a, b))),
        "rem" => by_integer!(ty, T => binary(|a: T, b: T| Integer::rem(a, b))),
        "min" => by_integer!(ty, T => binary(|a: T, b: T| Ord::min(a, b))),
        "max" => by_integer!(ty, T => binary(|a: T, b: T| Ord::max(a, b))),
        "neg" => by_integer!(ty, T => unary(|a: T| Integer::neg(a))),
        "abs" => by_integer!(ty, T => unary(|a: T| Integer::abs(a))),
        "mad.lo" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(Integer::mul(a, b), c))),
        "mad.hi" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(a.mul_high(b), c))),
        "sad" => by_integer!(ty, T => ternary(|a: T, b: T, c: T| Integer::add(Integer::abs_diff(a, b), c))),
        "add.sat" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.saturating_add(b))),
        "sub.sat" if ty == Type::S32 => Some(binary(|a: i32, b: i32| a.saturating_sub(b))),
        "mad.hi.sat" if ty == Type::S32 => Some(ternary(|a: i32, b: i32, c: i32| a.mul_high(b).saturating_add(c))),
        _ => wide(name, ty),
    }
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

/// Bits 47 to 16 of the 48-bit product.
#[inline(always)]
fn high48(a: u32, b: u32) -> u32 {
    ((u64::from(low24(a)) * u64::from(low24(b))) >> 16) as u32
}

#[inline(always)]
fn signed_high48(a: i32, b: i32) -> i32 {
    ((i64::from(signed24(a)) * i64::from(signed24(b))) >> 16) as i32
}

/// Operations that read or write the carry.
pub fn carrying(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "add" => by_word!(ty, T => carry(|a: T, _: T, c: T, _| a.overflowing_add(c))),
        "addc" => by_word!(ty, T => carry(|a: T, _: T, c: T, carry| with_carry(a.to_i128() + c.to_i128(), carry))),
        "sub" => by_word!(ty, T => carry(|a: T, _: T, c: T, _| a.overflowing_sub(c))),
        "subc" => by_word!(ty, T => carry(|a: T, _: T, c: T, carry| {
            let (first, one) = a.overflowing_sub(c);
            let (second, two) = first.overflowing_sub(carry.into());
            (second, one | two)
        })),
        "mad.lo" => by_word!(ty, T => carry(|a: T, b: T, c: T, _| a.wrapping_mul(b).overflowing_add(c))),
        "mad.hi" => by_word!(ty, T => carry(|a: T, b: T, c: T, _| a.mul_high(b).overflowing_add(c))),
        "madc.lo" => by_word!(ty, T => carry(|a: T, b: T, c: T, carry| {
            with_carry(a.wrapping_mul(b).to_i128() + c.to_i128(), carry)
        })),
        "madc.hi" => by_word!(ty, T => carry(|a: T, b: T, c: T, carry| {
            with_carry(a.mul_high(b).to_i128() + c.to_i128(), carry)
        })),
        // The high half of a signed product; the addition's carry is that of the unsigned sum.
        "mad.hi.signed" => match ty.bits() {
            32 => Some(carry(|a: u32, b: u32, c: u32, _| ((a as i32).mul_high(b as i32) as u32).overflowing_add(c))),
            64 => Some(carry(|a: u64, b: u64, c: u64, _| ((a as i64).mul_high(b as i64) as u64).overflowing_add(c))),
            _ => None,
        },
        "madc.hi.signed" => match ty.bits() {
            32 => Some(carry(|a: u32, b: u32, c: u32, carry| {
                with_carry(i128::from((a as i32).mul_high(b as i32) as u32) + i128::from(c), carry)
            })),
            64 => Some(carry(|a: u64, b: u64, c: u64, carry| {
                with_carry(i128::from((a as i64).mul_high(b as i64) as u64) + i128::from(c), carry)
            })),
            _ => None,
        },
        _ => None,
    }
}

#[inline(always)]
fn with_carry<T: Integer>(sum: i128, carry: bool) -> (T, bool) {
    let sum = sum + i128::from(carry);
    (T::from_i128(sum), sum >> T::BITS != 0)
}

pub fn bitwise(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "and" => by_bits!(ty, T => binary(|a: T, b: T| a & b)),
        "or" => by_bits!(ty, T => binary(|a: T, b: T| a | b)),
        "xor" => by_bits!(ty, T => binary(|a: T, b: T| a ^ b)),
        "not" => by_bits!(ty, T => unary(|a: T| !a)),
        "cnot" => by_bits!(ty, T => unary(|a: T| T::from(a == 0))),
        "shl" => by_bits!(ty, T => binary(|a: T, b: u32| Integer::shl(a, b))),
        "shr" => by_integer!(ty, T => binary(|a: T, b: u32| Integer::shr(a, b))),
        "mov" => by_bits!(ty, T => unary(|a: T| a)),
        "selp" => by_bits!(ty, T => choose(|a: T, b: T, p: bool| if p { a } else { b })),
        "slct.s32" => by_bits!(ty, T => ternary(|a: T, b: T, c: i32| if c >= 0 { a } else { b })),
        "slct.f32" => by_bits!(ty, T => ternary(|a: T, b: T, c: f32| if c >= 0.0 { a } else { b })),
        "popc" => by_word!(ty, T => unary(|a: T| a.count_ones())),
        "clz" => by_word!(ty, T => unary(|a: T| a.leading_zeros())),
        "brev" => by_word!(ty, T => unary(|a: T| a.reverse_bits())),
        "bfi" => by_word!(ty, T => quaternary(|a: T, b: T, c: u32, e: u32| {
            let (at, length) = (c & 0xff, e & 0xff);
            let ones = Integer::shl(if length < T::BITS { ((1 as T) << length) - 1 } else { T::MAX }, at);
            b & !ones | Integer::shl(a, at) & ones
        })),
        "bfind" => bfind(ty),
        "bfind.shiftamt" => bfind_shift(ty),
        "bfe" => bfe(ty),
        "lop3" if ty.bits() == 32 => Some(quaternary(lop3)),
        _ => None,
    }
}

#[inline(always)]
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        let pick = |value: u32, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
        let chosen = (table >> row & 1).wrapping_neg();
        result |= pick(a, 2) & pick(b, 1) & pick(c, 0) & chosen;
    }
    result
}

fn bfind(ty: Type) -> Option<Lanes> {
    Some(match ty {
        Type::U32 => unary(|a: u32| 31u32.wrapping_sub(a.leading_zeros())),
        Type::S32 => unary(|a: i32| 31u32.wrapping_sub((a ^ (a >> 31)).leading_zeros())),
        Type::U64 => unary(|a: u64| 63u32.wrapping_sub(a.leading_zeros())),
        Type::S64 => unary(|a: i64| 63u32.wrapping_sub((a ^ (a >> 63)).leading_zeros())),
        _ => return None,
    })
}

fn bfind_shift(ty: Type) -> Option<Lanes> {
    #[inline(always)]
    fn amount(zeros: u32, bits: u32) -> u32 {
        if zeros == bits { u32::MAX } else { zeros }
    }
    Some(match ty {
        Type::U32 => unary(|a: u32| amount(a.leading_zeros(), 32)),
        Type::S32 => unary(|a: i32| amount((a ^ (a >> 31)).leading_zeros(), 32)),
        Type::U64 => unary(|a: u64| amount(a.leading_zeros(), 64)),
        Type::S64 => unary(|a: i64| amount((a ^ (a >> 63)).leading_zeros(), 64)),
        _ => return None,
    })
}

fn bfe(ty: Type) -> Option<Lanes> {
    /// The field as an unsigned number, and how many bits it has inside the value.
    #[inline(always)]
    fn field(value: u64, at: u32, length: u32) -> u64 {
        let shifted = Integer::shr(value, at);
        if length >= 64 { shifted } else { shifted & ((1 << length) - 1) }
    }
    /// Copies of the sign above the field: its top bit, or the value's own where the field reaches beyond.
    #[inline(always)]
    fn signed(value: i64, at: u32, length: u32, bits: u32) -> i64 {
        if length == 0 {
            return 0;
        }
        let top = (at + length - 1).min(bits - 1);
        if at > top {
            return if value >> top & 1 != 0 { -1 } else { 0 };
        }
        let unused = 63 - top;
        value << unused >> unused >> at
    }
    Some(match ty {
        Type::U32 => ternary(|a: u32, b: u32, c: u32| field(u64::from(a), b & 0xff, c & 0xff) as u32),
        Type::U64 => ternary(|a: u64, b: u32, c: u32| field(a, b & 0xff, c & 0xff)),
        Type::S32 => ternary(|a: i32, b: u32, c: u32| signed(i64::from(a), b & 0xff, c & 0xff, 32) as i32),
        Type::S64 => ternary(|a: i64, b: u32, c: u32| signed(a, b & 0xff, c & 0xff, 64)),
        _ => return None,
    })
}

/// `shf`, the funnel shift, by direction and treatment of amounts above 32.
pub fn funnel(left: bool, wrap: bool) -> Lanes {
    #[inline(always)]
    fn join(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }
    match (left, wrap) {
        (true, true) => ternary(|a: u32, b: u32, c: u32| (join(a, b) << (c & 31) >> 32) as u32),
        (true, false) => ternary(|a: u32, b: u32, c: u32| (join(a, b) << c.min(32) >> 32) as u32),
        (false, true) => ternary(|a: u32, b: u32, c: u32| (join(a, b) >> (c & 31)) as u32),
        (false, false) => ternary(|a: u32, b: u32, c: u32| (join(a, b) >> c.min(32)) as u32),
    }
}

/// `prmt`, the byte permutation, by its mode ("" is the general one).
pub fn permute(mode: &str) -> Option<Lanes> {
    #[inline(always)]
    fn byte(a: u32, b: u32, selector: u32) -> u32 {
        ((u64::from(a) | u64::from(b) << 32) >> (8 * (selector & 7))) as u32 & 0xff
    }
    #[inline(always)]
    fn general(a: u32, b: u32, c: u32) -> u32 {
        let mut result = 0;
        for index in 0..4 {
            let selector = c >> (4 * index);
            let value = byte(a, b, selector);
            let sign = (value >> 7).wrapping_neg() & 0xff;
            result |= (if selector & 8 != 0 { sign } else { value }) << (8 * index);
        }
        result
    }
    #[inline(always)]
    fn four(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
        byte(a, b, selectors[0])
            | byte(a, b, selectors[1]) << 8
            | byte(a, b, selectors[2]) << 16
            | byte(a, b, selectors[3]) << 24
    }
    Some(match mode {
        "" => ternary(general),
        "f4e" => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            four(a, b, [c, c + 1, c + 2, c + 3])
        }),
        "b4e" => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            four(a, b, [c, c.wrapping_sub(1), c.wrapping_sub(2), c.wrapping_sub(3)])
        }),
        "rc8" => ternary(|a: u32, b: u32, c: u32| four(a, b, [c & 3; 4])),
        "ecl" => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            four(a, b, [c, c.max(1), c.max(2), 3])
        }),
        "ecr" => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            four(a, b, [0, c.min(1), c.min(2), c.min(3)])
        }),
        "rc16" => ternary(|a: u32, b: u32, c: u32| {
            let c = (c & 1) * 2;
            four(a, b, [c, c + 1, c, c + 1])
        }),
        _ => return None,
    })
}

/// `dp4a` and `dp2a`, by the signedness of the two factors.
pub fn dot(name: &str, a_signed: bool, b_signed: bool) -> Option<Lanes> {
    #[inline(always)]
    fn part(value: u32, index: u32, bits: u32, signed: bool) -> i32 {
        let raised = value << (32 - bits * (index + 1));
        if signed { raised as i32 >> (32 - bits) } else { (raised >> (32 - bits)) as i32 }
    }
    #[inline(always)]
    fn four(a: u32, b: u32, c: u32, sa: bool, sb: bool) -> u32 {
        (0..4).fold(c, |sum, i| sum.wrapping_add((part(a, i, 8, sa) * part(b, i, 8, sb)) as u32))
    }
    #[inline(always)]
    fn two(a: u32, b: u32, c: u32, sa: bool, sb: bool, first: u32) -> u32 {
        (0..2).fold(c, |sum, i| sum.wrapping_add(part(a, i, 16, sa).wrapping_mul(part(b, first + i, 8, sb)) as u32))
    }
    macro_rules! signs {
        ($f:ident $(, $extra:expr)?) => {
            match (a_signed, b_signed) {
                (true, true) => ternary(|a: u32, b: u32, c: u32| $f(a, b, c, true, true $(, $extra)?)),
                (true, false) => ternary(|a: u32, b: u32, c: u32| $f(a, b, c, true, false $(, $extra)?)),
                (false, true) => ternary(|a: u32, b: u32, c: u32| $f(a, b, c, false, true $(, $extra)?)),
                (false, false) => ternary(|a: u32, b: u32, c: u32| $f(a, b, c, false, false $(, $extra)?)),
            }
        };
    }
    Some(match name {
        "dp4a" => signs!(four),
        "dp2a.lo" => signs!(two, 0),
        "dp2a.hi" => signs!(two, 2),
        _ => return None,
    })
}

/// Integer comparison.
pub fn comparison(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "eq" => by_bits!(ty, T => compare(|a: T, b: T| a == b)),
        "ne" => by_bits!(ty, T => compare(|a: T, b: T| a != b)),
        "lt" => by_integer!(ty, T => compare(|a: T, b: T| a < b)),
        "le" => by_integer!(ty, T => compare(|a: T, b: T| a <= b)),
        "gt" => by_integer!(ty, T => compare(|a: T, b: T| a > b)),
        "ge" => by_integer!(ty, T => compare(|a: T, b: T| a >= b)),
        "lo" => by_bits!(ty, T => compare(|a: T, b: T| a < b)),
        "ls" => by_bits!(ty, T => compare(|a: T, b: T| a <= b)),
        "hi" => by_bits!(ty, T => compare(|a: T, b: T| a > b)),
        "hs" => by_bits!(ty, T => compare(|a: T, b: T| a >= b)),
        _ => None,
    }
}
