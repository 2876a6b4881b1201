//! Conversions between number formats (`cvt`).

pub mod eight;
mod integers;
mod narrow;

use half::{bf16, f16};

use super::exact::{Down, Mode, Nearest, Rounding, Up, Zero, narrow};
use super::float::{by_mode, canonical, canonical64, flush, saturate};
use super::half::Small;
use super::lanes::{Lanes, unary};
use crate::ptx::types::Type;

pub use self::narrow::{pack, tf32};

/// A conversion, with the modifiers of the instruction.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub to: Type,
    pub from: Type,
    pub rounding: Rounding,
    /// Rounds to an integral value (`.rni` and the like).
    pub integral: bool,
    pub flush: bool,
    pub saturate: bool,
    /// `.relu`: a negative result becomes zero.
    pub relu: bool,
    /// `.satfinite`: a result above the format's largest number becomes that number.
    pub finite: bool,
}

/// Returns the operation for a conversion; `None` if PTX does not have it or if it is handled elsewhere.
pub fn conversion(c: Conversion) -> Option<Lanes> {
    match (c.from.is_float(), c.to.is_float()) {
        (false, false) => integers::between(c),
        (false, true) => integers::to_float(c),
        (true, false) => integers::of_float(c),
        (true, true) => between_floats(c),
    }
}

#[inline(always)]
fn integral32<M: Mode>(value: f32) -> f32 {
    match M::ROUNDING {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

#[inline(always)]
fn integral64<M: Mode>(value: f64) -> f64 {
    match M::ROUNDING {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

#[inline(always)]
fn saturate64(value: f64) -> f64 {
    if value > 0.0 { if value < 1.0 { value } else { 1.0 } } else { 0.0 }
}

fn between_floats(c: Conversion) -> Option<Lanes> {
    match (c.to, c.from) {
        (Type::F32, Type::F32) => Some(single_of_single(c)),
        (Type::F64, Type::F64) if c.integral => Some(by_mode!(c.rounding, M => if c.saturate {
            unary(|a: f64| saturate64(integral64::<M>(a)))
        } else {
            unary(|a: f64| canonical64(integral64::<M>(a)))
        })),
        (Type::F64, Type::F64) if c.saturate => Some(unary(saturate64)),
        (Type::F64, Type::F64) => Some(unary(|a: f64| a)),
        (Type::F64, Type::F32) => Some(match (c.flush, c.saturate) {
            (false, false) => unary(widened),
            (false, true) => unary(|a: f32| f64::from(saturate::<true>(a))),
            (true, false) => unary(|a: f32| widened(flush::<true>(a))),
            (true, true) => unary(|a: f32| f64::from(saturate::<true>(flush::<true>(a)))),
        }),
        (Type::F32, Type::F64) => Some(single_of_double(c)),
        (Type::F16 | Type::Bf16, _) => narrow::conversion(c),
        (_, Type::F16 | Type::Bf16) => of_small(c),
        _ => None,
    }
}

/// Converts an f32 to f64. A NaN keeps its sign and payload and becomes quiet.
#[inline(always)]
fn widened(value: f32) -> f64 {
    const QUIET: u64 = 0x7ff8_0000_0000_0000;
    let bits = u64::from(value.to_bits());
    let nan = QUIET | (bits & 0x8000_0000) << 32 | (bits & 0x003f_ffff) << 29;
    f64::from_bits(if value.is_nan() { nan } else { f64::from(value).to_bits() })
}

fn single_of_single(c: Conversion) -> Lanes {
    macro_rules! with {
        ($flush:literal, $saturate:literal) => {
            if c.integral {
                by_mode!(c.rounding, M => unary(|a: f32| {
                    saturate::<$saturate>(canonical(integral32::<M>(flush::<$flush>(a))))
                }))
            } else {
                unary(|a: f32| saturate::<$saturate>(flush::<$flush>(a)))
            }
        };
    }
    match (c.flush, c.saturate) {
        (false, false) => with!(false, false),
        (false, true) => with!(false, true),
        (true, false) => with!(true, false),
        (true, true) => with!(true, true),
    }
}

fn single_of_double(c: Conversion) -> Lanes {
    by_mode!(c.rounding, M => match (c.flush, c.saturate) {
        (false, false) => unary(|a: f64| canonical(narrow::<M>(a))),
        (false, true) => unary(|a: f64| saturate::<true>(narrow::<M>(a))),
        (true, false) => unary(|a: f64| canonical(flush::<true>(narrow::<M>(a)))),
        (true, true) => unary(|a: f64| saturate::<true>(flush::<true>(narrow::<M>(a)))),
    })
}

/// Conversions to f32 and f64, which can represent every 16-bit float.
fn of_small(c: Conversion) -> Option<Lanes> {
    Some(match (c.to, c.from, c.saturate) {
        // Subnormal numbers of f16 are normal in f32, so there is nothing to flush.
        (Type::F32, Type::F16, false) => unary(|a: f16| canonical(a.to_f32())),
        (Type::F32, Type::F16, true) => unary(|a: f16| saturate::<true>(a.to_f32())),
        (Type::F64, Type::F16, false) => unary(|a: f16| canonical64(a.to_f64())),
        (Type::F64, Type::F16, true) => unary(|a: f16| saturate64(a.to_f64())),
        (Type::F32, Type::Bf16, false) if c.flush => unary(|a: bf16| flush::<true>(canonical(a.to_f32()))),
        (Type::F32, Type::Bf16, false) => unary(|a: bf16| canonical(a.to_f32())),
        (Type::F64, Type::Bf16, false) => unary(|a: bf16| canonical64(a.wide())),
        _ => return None,
    })
}
