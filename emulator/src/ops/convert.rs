//! Conversions between number formats.

use half::{bf16, f16};

use super::exact::{Down, Mode, Nearest, Rounding, Up, Zero, narrow};
use super::float::{by_mode, canonical, canonical64, flush, saturate};
use super::half::{NAN, Small};
use super::integer::Integer;
use super::lanes::{Lanes, Pair, binary, unary};
use crate::ptx::types::Type;

/// A conversion as the instruction spells it.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub to: Type,
    pub from: Type,
    pub rounding: Rounding,
    /// Round to an integral value.
    pub integral: bool,
    pub flush: bool,
    pub saturate: bool,
    pub relu: bool,
}

/// Evaluates an expression with a name bound to the Rust type of any integer type.
macro_rules! by_any_integer {
    ($type:expr, $t:ident => $body:expr) => {
        match $type {
            Type::U8 | Type::B8 => {
                type $t = u8;
                Some($body)
            }
            Type::S8 => {
                type $t = i8;
                Some($body)
            }
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

/// The operation for a conversion, `None` where PTX has none or the emulator does not know it.
pub fn conversion(c: Conversion) -> Option<Lanes> {
    let between_floats = c.from.is_float() && c.to.is_float();
    let touches_single = c.from == Type::F32 || c.to == Type::F32;
    let touches_bf16 = c.from == Type::Bf16 || c.to == Type::Bf16;
    if c.relu && !between_floats || c.flush && (!touches_single || touches_bf16) {
        return None;
    }
    match (c.from.is_float(), c.to.is_float()) {
        (false, false) => by_any_integer!(c.from, S => integer_from::<S>(c))?,
        (false, true) => by_any_integer!(c.from, S => float_from::<S>(c))?,
        (true, false) => integer_of(c),
        (true, true) => float_of(c),
    }
}

fn integer_from<S: Integer + 'static>(c: Conversion) -> Option<Lanes> {
    by_any_integer!(c.to, D => if c.saturate {
        unary(|a: S| a.to_i128().clamp(D::MIN.into(), D::MAX.into()) as D)
    } else {
        unary(|a: S| D::from_i128(a.to_i128()))
    })
}

fn float_from<S: Integer>(c: Conversion) -> Option<Lanes> {
    by_mode!(c.rounding, M => match (c.to, c.saturate) {
        (Type::F32, false) => Some(unary(|a: S| single_from::<M>(a.to_i128()))),
        (Type::F32, true) => Some(unary(|a: S| saturate::<true>(single_from::<M>(a.to_i128())))),
        (Type::F64, false) => Some(unary(|a: S| double_from::<M>(a.to_i128()))),
        (Type::F16, false) if c.rounding == Rounding::Nearest => Some(unary(|a: S| small_from::<f16>(a.to_i128()))),
        (Type::Bf16, false) if c.rounding == Rounding::Nearest => Some(unary(|a: S| small_from::<bf16>(a.to_i128()))),
        _ => None,
    })
}

/// An integer as a 16-bit float: cut to an f64 whose last bit tells whether something fell off, then rounded.
#[inline(always)]
fn small_from<T: Small>(value: i128) -> T {
    let cut = double_from::<Zero>(value);
    T::rounded(f64::from_bits(cut.to_bits() | u64::from(cut as i128 != value)))
}

#[inline(always)]
fn single_from<M: Mode>(value: i128) -> f32 {
    // Values of 64 bits: the nearest is a native conversion, the rest corrects it by comparing back.
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

/// Float to integer, which always saturates. A NaN is 0, or the top bit alone where either side has 64 bits.
fn integer_of(c: Conversion) -> Option<Lanes> {
    macro_rules! to {
        ($source:ty, $m:ident, $integral:ident, |$v:ident| $prepare:expr) => {
            by_any_integer!(c.to, D => if c.to.bits() == 64 || size_of::<$source>() == 8 {
                unary(|$v: $source| if $v.is_nan() { D::from_i128(1i128 << (D::BITS - 1)) } else { $integral::<$m>($prepare) as D })
            } else {
                unary(|$v: $source| $integral::<$m>($prepare) as D)
            })
        };
    }
    by_mode!(c.rounding, M => match (c.from, c.flush) {
        (Type::F32, false) => to!(f32, M, integral32, |v| v),
        (Type::F32, true) => to!(f32, M, integral32, |v| flush::<true>(v)),
        (Type::F64, _) => to!(f64, M, integral64, |v| v),
        (Type::F16, _) => to!(f16, M, integral32, |v| v.to_f32()),
        (Type::Bf16, _) => to!(bf16, M, integral32, |v| v.to_f32()),
        _ => None,
    })
}

fn float_of(c: Conversion) -> Option<Lanes> {
    if c.relu {
        return relu(c);
    }
    match (c.to, c.from) {
        (Type::F32, Type::F32) => single_of_single(c),
        (Type::F64, Type::F64) if c.integral => Some(by_mode!(c.rounding, M => if c.saturate {
            unary(|a: f64| saturate64(integral64::<M>(a)))
        } else {
            unary(|a: f64| canonical64(integral64::<M>(a)))
        })),
        (Type::F64, Type::F64) if c.saturate => Some(unary(saturate64)),
        (Type::F64, Type::F64) => Some(unary(|a: f64| a)),
        (Type::F64, Type::F32) if !c.integral => Some(match (c.flush, c.saturate) {
            (false, false) => unary(|a: f32| canonical64(a.into())),
            (false, true) => unary(|a: f32| f64::from(saturate::<true>(a))),
            (true, false) => unary(|a: f32| canonical64(flush::<true>(a).into())),
            (true, true) => unary(|a: f32| f64::from(saturate::<true>(flush::<true>(a)))),
        }),
        (Type::F32, Type::F64) if !c.integral => single_of_double(c),
        (Type::F16 | Type::Bf16, _) | (_, Type::F16 | Type::Bf16) => small(c),
        _ => None,
    }
}

fn single_of_single(c: Conversion) -> Option<Lanes> {
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
    Some(match (c.flush, c.saturate) {
        (false, false) => with!(false, false),
        (false, true) => with!(false, true),
        (true, false) => with!(true, false),
        (true, true) => with!(true, true),
    })
}

fn single_of_double(c: Conversion) -> Option<Lanes> {
    Some(by_mode!(c.rounding, M => match (c.flush, c.saturate) {
        (false, false) => unary(|a: f64| canonical(narrow::<M>(a))),
        (false, true) => unary(|a: f64| saturate::<true>(narrow::<M>(a))),
        (true, false) => unary(|a: f64| canonical(flush::<true>(narrow::<M>(a)))),
        (true, true) => unary(|a: f64| saturate::<true>(flush::<true>(narrow::<M>(a)))),
    }))
}

#[inline(always)]
fn saturate64(value: f64) -> f64 {
    if value > 0.0 { if value < 1.0 { value } else { 1.0 } } else { 0.0 }
}

#[inline(always)]
fn is_nan(value: f32) -> bool {
    value.to_bits() & 0x7fff_ffff > 0x7f80_0000
}

/// Conversions to 16 bits that cut what does not fit.
#[inline(always)]
fn f16_cut(value: f32) -> f16 {
    let near = f16::rounded(value.into());
    if near.to_f32().abs() > value.abs() { f16::from_bits(near.to_bits() - 1) } else { near }
}

#[inline(always)]
fn bf16_cut(value: f32) -> bf16 {
    bf16::from_bits(if is_nan(value) { NAN } else { (value.to_bits() >> 16) as u16 })
}

fn small(c: Conversion) -> Option<Lanes> {
    let cut = c.rounding == Rounding::Zero;
    let nearest = c.rounding == Rounding::Nearest;
    if c.integral {
        return match (c.to, c.from) {
            _ if c.saturate => None,
            (Type::F16, Type::F16) => {
                Some(by_mode!(c.rounding, M => unary(|a: f16| f16::rounded(integral32::<M>(a.to_f32()).into()))))
            }
            (Type::Bf16, Type::Bf16) => {
                Some(by_mode!(c.rounding, M => unary(|a: bf16| bf16::rounded(integral32::<M>(a.to_f32()).into()))))
            }
            _ => None,
        };
    }
    Some(match (c.to, c.from, c.saturate) {
        (Type::F16, Type::F32, false) if nearest && c.flush => unary(|a: f32| f16::rounded(flush::<true>(a).into())),
        (Type::F16, Type::F32, false) if nearest => unary(|a: f32| f16::rounded(a.into())),
        (Type::F16, Type::F32, true) if nearest => unary(|a: f32| f16::rounded(saturate::<true>(a).into())),
        (Type::F16, Type::F32, false) if cut => unary(f16_cut),
        (Type::F16, Type::F64, false) if nearest => unary(f16::rounded),
        (Type::Bf16, Type::F32, false) if nearest => unary(|a: f32| bf16::rounded(a.into())),
        (Type::Bf16, Type::F32, false) if cut => unary(bf16_cut),
        (Type::Bf16, Type::F64, false) if nearest => unary(bf16::rounded),
        (Type::F32, Type::F16, false) => unary(|a: f16| canonical(a.to_f32())),
        (Type::F32, Type::F16, true) => unary(|a: f16| saturate::<true>(a.to_f32())),
        (Type::F64, Type::F16, false) => unary(|a: f16| canonical64(a.to_f64())),
        (Type::F32, Type::Bf16, false) => unary(|a: bf16| canonical(a.to_f32())),
        (Type::F64, Type::Bf16, false) => unary(|a: bf16| canonical64(a.to_f64())),
        (Type::F16, Type::F16, false) => unary(|a: f16| a),
        (Type::Bf16, Type::Bf16, false) => unary(|a: bf16| a),
        _ => return None,
    })
}

/// Narrowing that also turns negative numbers into zero. A NaN stays one.
fn relu(c: Conversion) -> Option<Lanes> {
    #[inline(always)]
    fn positive(value: f32) -> f64 {
        f32::from_bits(if value > 0.0 || is_nan(value) { value.to_bits() } else { 0 }).into()
    }
    if c.saturate || c.integral || c.flush || c.rounding != Rounding::Nearest || c.from != Type::F32 {
        return None;
    }
    match c.to {
        Type::F16 => Some(unary(|a: f32| f16::rounded(positive(a)))),
        Type::Bf16 => Some(unary(|a: f32| bf16::rounded(positive(a)))),
        _ => None,
    }
}

/// Two f32 into a pair: the first operand goes to the upper half.
pub fn pack(to: Type, rounding: Rounding, relu: bool) -> Option<Lanes> {
    Some(match (to, rounding, relu) {
        (Type::F16x2, Rounding::Nearest, false) => {
            binary(|a: f32, b: f32| Pair(f16::rounded(b.into()), f16::rounded(a.into())))
        }
        (Type::F16x2, Rounding::Zero, false) => binary(|a: f32, b: f32| Pair(f16_cut(b), f16_cut(a))),
        (Type::Bf16x2, Rounding::Nearest, false) => {
            binary(|a: f32, b: f32| Pair(bf16::rounded(b.into()), bf16::rounded(a.into())))
        }
        (Type::Bf16x2, Rounding::Zero, false) => binary(|a: f32, b: f32| Pair(bf16_cut(b), bf16_cut(a))),
        _ => return None,
    })
}
