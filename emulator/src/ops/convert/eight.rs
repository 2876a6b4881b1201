//! The two 8-bit floating-point formats, which come in pairs: e4m3, without infinity, and e5m2.

use ::half::f16;

use super::super::half::{self, Small, positive};
use super::super::lanes::{Lanes, Pair, binary, unary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eight {
    E4m3,
    E5m2,
}

/// An 8-bit format as a type parameter.
trait Format: Copy {
    /// Bits of the significand that are stored.
    const STORED: i32;
    /// Exponent of the smallest subnormal number.
    const LEAST: i32;
    /// Code of the largest finite number.
    const LARGEST: u8;
}

#[derive(Clone, Copy)]
struct E4m3;
#[derive(Clone, Copy)]
struct E5m2;

impl Format for E4m3 {
    const STORED: i32 = 3;
    const LEAST: i32 = -9;
    const LARGEST: u8 = 0x7e;
}

impl Format for E5m2 {
    const STORED: i32 = 2;
    const LEAST: i32 = -16;
    const LARGEST: u8 = 0x7b;
}

const NAN: u8 = 0x7f;

/// Returns the nearest number of the format, ties to even; numbers above the largest become the largest.
#[inline(always)]
fn encoded<F: Format>(value: f64) -> u8 {
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return NAN;
    }
    let sign = u8::from(value.is_sign_negative()) << 7;
    let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
    // Codes are contiguous from one binade to the next, so rounding up into the next binade is right too.
    let unit = (exponent - F::STORED).max(F::LEAST);
    if unit > 16 {
        return sign | F::LARGEST;
    }
    let units = (magnitude * f64::from_bits(((1023 - unit) as u64) << 52)).round_ties_even() as i32;
    let code = ((unit - F::LEAST) << F::STORED) + units;
    sign | code.min(F::LARGEST.into()) as u8
}

#[inline(always)]
fn decoded<F: Format>(code: u8) -> f16 {
    let magnitude = i32::from(code & 0x7f);
    let sign = u16::from(code & 0x80) << 8;
    let (exponent, fraction) = (magnitude >> F::STORED, magnitude & ((1 << F::STORED) - 1));
    let significand = if exponent == 0 { fraction } else { fraction | 1 << F::STORED };
    let unit = exponent.max(1) - 1 + F::LEAST;
    let number = f64::from(significand) * f64::from_bits(((1023 + unit) as u64) << 52);
    let past = magnitude - i32::from(F::LARGEST);
    match past {
        ..=0 => f16::from_raw(f16::rounded(number).raw() | sign),
        // The code after e5m2's largest number is infinity; the code with all ones is a NaN in both formats.
        1 if magnitude < NAN.into() => f16::from_raw(<f16 as Small>::INFINITY | sign),
        _ => f16::from_raw(half::NAN),
    }
}

#[inline(always)]
fn joined(low: u8, high: u8) -> u16 {
    u16::from_le_bytes([low, high])
}

#[inline(always)]
fn not_below_zero(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// Converts two f32 to a pair; the first operand becomes the upper byte.
pub fn of_singles(to: Eight, relu: bool) -> Lanes {
    fn by<F: Format>(relu: bool) -> Lanes {
        if relu {
            binary(|a: f32, b: f32| {
                joined(encoded::<F>(not_below_zero(b).into()), encoded::<F>(not_below_zero(a).into()))
            })
        } else {
            binary(|a: f32, b: f32| joined(encoded::<F>(b.into()), encoded::<F>(a.into())))
        }
    }
    match to {
        Eight::E4m3 => by::<E4m3>(relu),
        Eight::E5m2 => by::<E5m2>(relu),
    }
}

/// Converts a pair of f16 to a pair of bytes.
pub fn of_pair(to: Eight, relu: bool) -> Lanes {
    fn by<F: Format>(relu: bool) -> Lanes {
        if relu {
            unary(|a: Pair<f16>| joined(encoded::<F>(positive(a.0).wide()), encoded::<F>(positive(a.1).wide())))
        } else {
            unary(|a: Pair<f16>| joined(encoded::<F>(a.0.wide()), encoded::<F>(a.1.wide())))
        }
    }
    match to {
        Eight::E4m3 => by::<E4m3>(relu),
        Eight::E5m2 => by::<E5m2>(relu),
    }
}

/// Converts a pair of bytes to a pair of f16, which can represent them exactly.
pub fn to_pair(from: Eight, relu: bool) -> Lanes {
    fn by<F: Format>(relu: bool) -> Lanes {
        if relu {
            unary(|a: u16| Pair(positive(decoded::<F>(a as u8)), positive(decoded::<F>((a >> 8) as u8))))
        } else {
            unary(|a: u16| Pair(decoded::<F>(a as u8), decoded::<F>((a >> 8) as u8)))
        }
    }
    match from {
        Eight::E4m3 => by::<E4m3>(relu),
        Eight::E5m2 => by::<E5m2>(relu),
    }
}
