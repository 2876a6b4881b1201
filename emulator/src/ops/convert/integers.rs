//! Conversions from and to integers.

use half::{bf16, f16};

use super::super::exact::{Down, Mode, Nearest, Rounding, Up, Zero};
use super::super::float::{by_mode, flush};
use super::super::half::Small;
use super::super::integer::Integer;
use super::super::lanes::{Lanes, unary};
use super::super::rare::rare;
use super::narrow::to_small;
use super::{Conversion, integral32, integral64};
use crate::ptx::types::Type;

/// Evaluates an expression with a name for the Rust type of an integer type.
macro_rules! by_any_integer {
    ($type:expr, $t:ident => $body:expr) => {
        match $type {
            Type::U8 => {
                type $t = u8;
                Some($body)
            }
            Type::S8 => {
                type $t = i8;
                Some($body)
            }
            Type::U16 => {
                type $t = u16;
                Some($body)
            }
            Type::S16 => {
                type $t = i16;
                Some($body)
            }
            Type::U32 => {
                type $t = u32;
                Some($body)
            }
            Type::S32 => {
                type $t = i32;
                Some($body)
            }
            Type::U64 => {
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

pub fn between(c: Conversion) -> Option<Lanes> {
    by_any_integer!(c.from, S => from::<S>(c))?
}

fn from<S: Integer + 'static>(c: Conversion) -> Option<Lanes> {
    by_any_integer!(c.to, D => if c.saturate {
        rare(|a: S| a.to_i128().clamp(D::MIN.into(), D::MAX.into()) as D)
    } else {
        unary(|a: S| D::from_i128(a.to_i128()))
    })
}

pub fn to_float(c: Conversion) -> Option<Lanes> {
    by_any_integer!(c.from, S => float_from::<S>(c))?
}

fn float_from<S: Integer>(c: Conversion) -> Option<Lanes> {
    match (c.to, c.saturate, c.rounding) {
        (Type::F32, false, Rounding::Nearest) => return Some(unary(|a: S| single_from::<Nearest>(a.to_i128()))),
        (Type::F64, false, Rounding::Nearest) => return Some(unary(|a: S| double_from::<Nearest>(a.to_i128()))),
        _ => {}
    }
    by_mode!(c.rounding, M => Some(match (c.to, c.saturate) {
        // Integers are never subnormal, so there is nothing to flush.
        (Type::F32, false) => rare(|a: S| single_from::<M>(a.to_i128())),
        (Type::F64, false) => rare(|a: S| double_from::<M>(a.to_i128())),
        // Saturation leaves 0 or 1, which need no rounding.
        (Type::F32, true) => rare(|a: S| a.to_i128().clamp(0, 1) as f32),
        (Type::F64, true) => rare(|a: S| a.to_i128().clamp(0, 1) as f64),
        (Type::F16, true) => rare(|a: S| f16::rounded(a.to_i128().clamp(0, 1) as f64)),
        (Type::F16, false) => rare(|a: S| small_from::<f16, M>(a.to_i128())),
        (Type::Bf16, false) => rare(|a: S| small_from::<bf16, M>(a.to_i128())),
        _ => return None,
    }))
}

/// Converts an integer to a 16-bit float: truncates it to an f64, sets the last bit if that lost anything, then rounds
/// once.
#[inline(always)]
fn small_from<T: Small, M: Mode>(value: i128) -> T {
    let cut = double_from::<Zero>(value);
    to_small::<T, M>(f64::from_bits(cut.to_bits() | u64::from(cut as i128 != value)))
}

#[inline(always)]
fn single_from<M: Mode>(value: i128) -> f32 {
    // 64-bit values: the native conversion rounds to nearest; converting back shows whether to correct it.
    let nearest = if value >= 0 { value as u64 as f32 } else { value as i64 as f32 };
    let back = nearest as i128;
    match M::ROUNDING {
        Rounding::Zero if back.abs() > value.abs() => f32::from_bits(nearest.to_bits() - 1),
        Rounding::Down if back > value => nearest.next_down(),
        Rounding::Up if back < value => nearest.next_up(),
        _ => nearest,
    }
}

#[inline(always)]
fn double_from<M: Mode>(value: i128) -> f64 {
    let nearest = if value >= 0 { value as u64 as f64 } else { value as i64 as f64 };
    let back = nearest as i128;
    match M::ROUNDING {
        Rounding::Zero if back.abs() > value.abs() => f64::from_bits(nearest.to_bits() - 1),
        Rounding::Down if back > value => nearest.next_down(),
        Rounding::Up if back < value => nearest.next_up(),
        _ => nearest,
    }
}

/// Converts a float to an integer; always saturates. A NaN becomes 0, or only the top bit if either side has 64 bits.
pub fn of_float(c: Conversion) -> Option<Lanes> {
    macro_rules! to {
        ($make:ident, $source:ty, $m:ident, $integral:ident, |$v:ident| $prepare:expr) => {
            by_any_integer!(c.to, D => if c.to.bits() == 64 || size_of::<$source>() == 8 {
                $make(|$v: $source| if $v.is_nan() { D::from_i128(1i128 << (D::BITS - 1)) } else { $integral::<$m>($prepare) as D })
            } else {
                $make(|$v: $source| $integral::<$m>($prepare) as D)
            })
        };
    }
    by_mode!(c.rounding, M => match (c.from, c.flush) {
        (Type::F32, false) => to!(unary, f32, M, integral32, |v| v),
        (Type::F32, true) => to!(unary, f32, M, integral32, |v| flush::<true>(v)),
        (Type::F64, _) => to!(unary, f64, M, integral64, |v| v),
        (Type::F16, _) => to!(rare, f16, M, integral32, |v| v.to_f32()),
        (Type::Bf16, _) => to!(rare, bf16, M, integral32, |v| v.to_f32()),
        _ => None,
    })
}
