//! Conversions to 16-bit floats and to tf32, an f32 with a shorter significand.

use half::{bf16, f16};

use super::super::exact::{Down, Mode, Nearest, Rounding, Up, Zero};
use super::super::float::{by_mode, flush, saturate};
use super::super::half::{Small, positive};
use super::super::lanes::{Lane, Lanes, Pair, binary, unary};
use super::super::rare::rare;
use super::{Conversion, integral32, saturate64};
use crate::ptx::types::Type;

/// Rounds a number once: rounds to nearest, then corrects that by comparing it with the exact value.
#[inline(always)]
pub fn to_small<T: Small, M: Mode>(value: f64) -> T {
    let nearest = T::rounded(value);
    let (bits, back) = (nearest.raw(), nearest.wide());
    let negative = bits & 0x8000 != 0;
    let down = if negative { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let up = if negative { bits.wrapping_sub(1) } else { bits.wrapping_add(1) };
    // Comparisons with a NaN are false. A zero has the sign of the value, so stepping towards zero never starts from a
    // zero.
    T::from_raw(match M::ROUNDING {
        Rounding::Zero if back.abs() > value.abs() => bits.wrapping_sub(1),
        Rounding::Down if back > value => down,
        Rounding::Up if back < value => up,
        _ => bits,
    })
}

/// Replaces infinity by the largest number.
#[inline(always)]
fn finite<T: Small>(value: T) -> T {
    if value.raw() & 0x7fff == T::INFINITY { T::from_raw(value.raw() - 1) } else { value }
}

#[inline(always)]
fn shortened<T: Small, M: Mode, const RELU: bool, const FINITE: bool>(value: f32) -> T {
    let short = to_small::<T, M>(value.into());
    let short = if RELU { positive(short) } else { short };
    if FINITE { finite(short) } else { short }
}

/// Evaluates an expression with constants for `.relu` and `.satfinite`.
macro_rules! by_limits {
    ($relu:expr, $finite:expr, $r:ident, $f:ident => $body:expr) => {
        match ($relu, $finite) {
            (false, false) => by_limits!(@ false, false, $r, $f, $body),
            (false, true) => by_limits!(@ false, true, $r, $f, $body),
            (true, false) => by_limits!(@ true, false, $r, $f, $body),
            (true, true) => by_limits!(@ true, true, $r, $f, $body),
        }
    };
    (@ $relu:literal, $finite:literal, $r:ident, $f:ident, $body:expr) => {{
        const $r: bool = $relu;
        const $f: bool = $finite;
        $body
    }};
}

pub fn conversion(c: Conversion) -> Option<Lanes> {
    match c.to {
        Type::F16 => to::<f16>(c),
        _ => to::<bf16>(c),
    }
}

fn to<T: Small>(c: Conversion) -> Option<Lanes> {
    match c.from {
        Type::F32 => Some(of_single::<T>(c)),
        Type::F64 if c.saturate => Some(by_mode!(c.rounding, M => rare(|a: f64| to_small::<T, M>(saturate64(a))))),
        Type::F64 => Some(by_mode!(c.rounding, M => rare(|a: f64| to_small::<T, M>(a)))),
        from if from != c.to && from == Type::F16 => {
            Some(by_mode!(c.rounding, M => rare(|a: f16| to_small::<T, M>(a.wide()))))
        }
        from if from != c.to && from == Type::Bf16 => {
            Some(by_mode!(c.rounding, M => rare(|a: bf16| to_small::<T, M>(a.wide()))))
        }
        Type::F16 | Type::Bf16 => Some(itself::<T>(c)),
        _ => None,
    }
}

fn of_single<T: Small>(c: Conversion) -> Lanes {
    if c.rounding == Rounding::Nearest && !(c.flush || c.saturate || c.relu || c.finite) {
        return unary(shortened::<T, Nearest, false, false>);
    }
    by_mode!(c.rounding, M => match (c.flush, c.saturate) {
        (true, true) => rare(|a: f32| to_small::<T, M>(saturate::<true>(flush::<true>(a)).into())),
        (true, false) => rare(|a: f32| to_small::<T, M>(flush::<true>(a).into())),
        (false, true) => rare(|a: f32| to_small::<T, M>(saturate::<true>(a).into())),
        (false, false) => by_limits!(c.relu, c.finite, RELU, FINITE => rare(shortened::<T, M, RELU, FINITE>)),
    })
}

/// Rounds to an integral value, clamps, or copies a number of this format.
fn itself<T: Small>(c: Conversion) -> Lanes {
    #[inline(always)]
    fn clamped<T: Small>(value: T) -> T {
        T::rounded(saturate64(value.wide()))
    }
    #[inline(always)]
    fn integral<T: Small, M: Mode>(value: T) -> T {
        T::rounded(integral32::<M>(value.wide() as f32).into())
    }
    match (c.integral, c.saturate) {
        (false, false) => unary(|a: T| a),
        (false, true) => rare(clamped::<T>),
        (true, false) => by_mode!(c.rounding, M => rare(integral::<T, M>)),
        (true, true) => by_mode!(c.rounding, M => rare(|a: T| clamped(integral::<T, M>(a)))),
    }
}

/// Converts two f32 to a pair; the first operand becomes the upper half.
pub fn pack(to: Type, rounding: Rounding, relu: bool, finite: bool) -> Option<Lanes> {
    fn both<T: Small, M: Mode>(relu: bool, finite: bool) -> Lanes
    where
        Pair<T>: Lane,
    {
        by_limits!(relu, finite, RELU, FINITE => binary(|a: f32, b: f32| {
            Pair(shortened::<T, M, RELU, FINITE>(b), shortened::<T, M, RELU, FINITE>(a))
        }))
    }
    Some(match (to, rounding) {
        (Type::F16x2, Rounding::Nearest) => both::<f16, Nearest>(relu, finite),
        (Type::F16x2, Rounding::Zero) => both::<f16, Zero>(relu, finite),
        (Type::Bf16x2, Rounding::Nearest) => both::<bf16, Nearest>(relu, finite),
        (Type::Bf16x2, Rounding::Zero) => both::<bf16, Zero>(relu, finite),
        _ => return None,
    })
}

/// Low significand bits of an f32 that tf32 does not have.
const TF32_CUT: u32 = 0x1fff;

/// Rounds an f32 to tf32. Without a rounding mode it rounds to nearest with ties away from zero (`.rna`). A device does
/// that with an addition and a mask, which also truncate the payload of a NaN.
pub fn tf32(rounding: Option<Rounding>, relu: bool, finite: bool) -> Option<Lanes> {
    #[inline(always)]
    fn away(bits: u32) -> u32 {
        let is_number = bits & 0x7fff_ffff < 0x7f80_0000;
        bits.wrapping_add(if is_number { 0x1000 } else { 0 }) & !TF32_CUT
    }
    #[inline(always)]
    fn finite_away(bits: u32) -> u32 {
        let rounded = away(bits);
        if rounded & 0x7fff_ffff < 0x7f80_0000 { rounded } else { rounded - (TF32_CUT + 1) }
    }
    #[inline(always)]
    fn short<const NEAREST: bool, const RELU: bool>(value: f32) -> u32 {
        let bits = value.to_bits();
        let tie = bits >> 13 & 1;
        let rounded = if NEAREST { bits.wrapping_add(0xfff + tie) } else { bits } & !TF32_CUT;
        if value.is_nan() {
            0x7fff_ffff & !TF32_CUT
        } else if RELU && value.is_sign_negative() {
            0
        } else {
            rounded
        }
    }
    Some(match (rounding, relu, finite) {
        (None, false, false) => unary(away),
        (None, false, true) => unary(finite_away),
        (Some(Rounding::Nearest), false, false) => unary(short::<true, false>),
        (Some(Rounding::Nearest), true, false) => unary(short::<true, true>),
        (Some(Rounding::Zero), false, false) => unary(short::<false, false>),
        (Some(Rounding::Zero), true, false) => unary(short::<false, true>),
        _ => return None,
    })
}
