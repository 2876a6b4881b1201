//! SIMD operations on the parts of a word: dot products of bytes, and packing of saturated integers.

use super::lanes::{Lanes, binary, ternary};

/// Returns `dp4a` or `dp2a`, by the signedness of the two factors.
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

/// Returns `vabsdiff2` or `vabsdiff4` on unsigned parts of `bits` bits: the packed differences, or their sum plus the
/// third operand.
pub fn differences(bits: u32, sum: bool) -> Option<Lanes> {
    #[inline(always)]
    fn parts<const BITS: u32>(a: u32, b: u32, join: impl Fn(u32, u32) -> u32) -> u32 {
        let part = |value: u32, at: u32| value >> at & ((1 << BITS) - 1);
        (0..32 / BITS)
            .map(|i| i * BITS)
            .fold(0, |all, at| all.wrapping_add(join(part(a, at).abs_diff(part(b, at)), at)))
    }
    Some(match (bits, sum) {
        (8, false) => ternary(|a: u32, b: u32, _: u32| parts::<8>(a, b, |part, at| part << at)),
        (16, false) => ternary(|a: u32, b: u32, _: u32| parts::<16>(a, b, |part, at| part << at)),
        (8, true) => ternary(|a: u32, b: u32, c: u32| c.wrapping_add(parts::<8>(a, b, |part, _| part))),
        (16, true) => ternary(|a: u32, b: u32, c: u32| c.wrapping_add(parts::<16>(a, b, |part, _| part))),
        _ => return None,
    })
}

/// Returns `cvt.pack.sat`: packs two saturated integers, with the low bits of a third word above them if there is room.
pub fn pack(name: &str) -> Option<Lanes> {
    #[inline(always)]
    fn joined<const BITS: u32, const SIGNED: bool>(a: i32, b: i32, c: u32) -> u32 {
        let (low, high) = if SIGNED { (-(1 << (BITS - 1)), (1 << (BITS - 1)) - 1) } else { (0, (1 << BITS) - 1) };
        let ones = (1 << BITS) - 1;
        let part = |value: i32| value.clamp(low, high) as u32 & ones;
        let pair = part(b) | part(a) << BITS;
        if BITS == 16 { pair } else { pair | c << (2 * BITS) }
    }
    Some(match name {
        "u16" => binary(|a: i32, b: i32| joined::<16, false>(a, b, 0)),
        "s16" => binary(|a: i32, b: i32| joined::<16, true>(a, b, 0)),
        "u8" => ternary(joined::<8, false>),
        "s8" => ternary(joined::<8, true>),
        "u4" => ternary(joined::<4, false>),
        "s4" => ternary(joined::<4, true>),
        "u2" => ternary(joined::<2, false>),
        "s2" => ternary(joined::<2, true>),
        _ => return None,
    })
}
