//! Bit operations: logic, shifts, bit fields and permutations of bytes.

use super::integer::{Integer, by_bits, by_integer, by_word};
use super::lanes::{Lanes, binary, choose, quaternary, ternary, ternary_sparse, unary};
use crate::ptx::types::Type;

/// Returns the bit operation of this name, if PTX has it for the type.
pub fn bitwise(name: &str, ty: Type) -> Option<Lanes> {
    let is_bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
    match name {
        "and" if is_bits => by_bits!(ty, T => binary(|a: T, b: T| a & b)),
        "or" if is_bits => by_bits!(ty, T => binary(|a: T, b: T| a | b)),
        "xor" if is_bits => by_bits!(ty, T => binary(|a: T, b: T| a ^ b)),
        "not" if is_bits => by_bits!(ty, T => unary(|a: T| !a)),
        "cnot" if is_bits => by_bits!(ty, T => unary(|a: T| T::from(a == 0))),
        "shl" if is_bits => by_bits!(ty, T => binary(|a: T, b: u32| Integer::shl(a, b))),
        "shr" => by_integer!(ty, T => binary(|a: T, b: u32| Integer::shr(a, b))),
        "popc" if is_bits => by_word!(ty, T => unary(|a: T| a.count_ones())),
        "clz" if is_bits => by_word!(ty, T => unary(|a: T| a.leading_zeros())),
        "brev" if is_bits => by_word!(ty, T => unary(|a: T| a.reverse_bits())),
        "bfi" if is_bits => by_word!(ty, T => quaternary(|a: T, b: T, c: u32, e: u32| {
            let (at, length) = (c & 0xff, e & 0xff);
            let ones = Integer::shl(if length < T::BITS { ((1 as T) << length) - 1 } else { T::MAX }, at);
            b & !ones | Integer::shl(a, at) & ones
        })),
        "bfind" => bfind(ty),
        "bfind.shiftamt" => bfind_shift(ty),
        "bfe" => bfe(ty),
        "lop3" if ty == Type::B32 => Some(quaternary(lop3)),
        "fns" if ty == Type::B32 => Some(ternary_sparse(nth_set)),
        "bmsk.clamp" if ty == Type::B32 => Some(binary(|a: u32, b: u32| mask::<true>(a, b))),
        "bmsk.wrap" if ty == Type::B32 => Some(binary(|a: u32, b: u32| mask::<false>(a, b))),
        "szext.clamp" | "szext.wrap" => extend(name, ty),
        _ => None,
    }
}

/// Returns operations that copy values without looking at them: moves and selections.
pub fn copy(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "mov" => by_bits!(ty, T => unary(|a: T| a)),
        "selp" => by_bits!(ty, T => choose(|a: T, b: T, p: bool| if p { a } else { b })),
        "slct.s32" => by_bits!(ty, T => ternary(|a: T, b: T, c: i32| if c >= 0 { a } else { b })),
        "slct.f32" => by_bits!(ty, T => ternary(|a: T, b: T, c: f32| if c >= 0.0 { a } else { b })),
        // `.ftz` flushes a negative subnormal to a zero, which is not below zero.
        "slct.ftz.f32" => by_bits!(ty, T => ternary(|a: T, b: T, c: f32| if c > -f32::MIN_POSITIVE { a } else { b })),
        _ => None,
    }
}

/// Returns the position of the n-th set bit from `base`, upwards for a positive offset, downwards for a negative one
/// (`fns`).
fn nth_set(value: u32, base: u32, offset: i32) -> u32 {
    let mut position = i64::from(base);
    let mut left = offset.unsigned_abs().max(1);
    while (0..32).contains(&position) {
        left -= value >> position & 1;
        if left == 0 {
            return position as u32;
        }
        if offset == 0 {
            break;
        }
        position += i64::from(offset.signum());
    }
    u32::MAX
}

/// Returns a mask with `length` ones from bit `at` upwards; ones above bit 31 are dropped (`bmsk`).
#[inline(always)]
fn mask<const CLAMP: bool>(at: u32, length: u32) -> u32 {
    let from = if CLAMP && at >= 32 { 0 } else { u32::MAX << (at & 31) };
    let end = (at & 31) + (length & 31);
    let too_long = end >= 32 || CLAMP && (at >= 32 || length >= 32);
    if too_long { from } else { from & !(u32::MAX << end) }
}

/// Returns the operation that extends the low `b` bits to 32, with sign for a signed type (`szext`).
fn extend(name: &str, ty: Type) -> Option<Lanes> {
    #[inline(always)]
    fn unused(length: u32) -> u32 {
        32 - length.clamp(1, 32)
    }
    #[inline(always)]
    fn unsigned(a: u32, length: u32) -> u32 {
        if length == 0 { 0 } else { a << unused(length) >> unused(length) }
    }
    #[inline(always)]
    fn signed(a: i32, length: u32) -> i32 {
        if length == 0 { 0 } else { a << unused(length) >> unused(length) }
    }
    Some(match (name, ty) {
        ("szext.clamp", Type::U32) => binary(|a: u32, b: u32| unsigned(a, b)),
        ("szext.clamp", Type::S32) => binary(|a: i32, b: u32| signed(a, b)),
        ("szext.wrap", Type::U32) => binary(|a: u32, b: u32| unsigned(a, b & 31)),
        ("szext.wrap", Type::S32) => binary(|a: i32, b: u32| signed(a, b & 31)),
        _ => return None,
    })
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
    /// Returns the field as an unsigned number.
    #[inline(always)]
    fn field(value: u64, at: u32, length: u32) -> u64 {
        let shifted = Integer::shr(value, at);
        if length >= 64 { shifted } else { shifted & ((1 << length) - 1) }
    }
    /// Returns the field, extended with its top bit, or with the value's top bit if the field reaches past the value.
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

/// Returns `shf`, the funnel shift, by direction and by how it treats amounts above 32.
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

/// Returns `prmt`, the byte permutation, by its mode; "" is the general one.
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
