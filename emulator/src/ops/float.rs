//! Floating-point arithmetic on f32 and f64.

use super::exact::{self, DOUBLE, Down, Mode, Nearest, Rounding, SINGLE, Up, Zero, fma_single, narrow};
use super::lanes::{Lanes, binary, binary_sparse, ternary, ternary_sparse, unary, unary_sparse};
use super::order::{max32, max64, min32, min64};

/// Modifiers that change the result of a floating-point operation.
#[derive(Clone, Copy, Debug)]
pub struct Modifiers {
    pub rounding: Rounding,
    /// `.ftz`: subnormal inputs and results become zero.
    pub flush: bool,
    /// `.sat`: the result is clamped to 0..=1.
    pub saturate: bool,
}

/// Replaces a NaN by the only one that f32 operations return on a device. So results do not depend on the order of
/// operands either.
#[inline(always)]
pub fn canonical(value: f32) -> f32 {
    // Works on the bits, because the compiler may replace one NaN by another and drop a float comparison.
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

#[inline(always)]
pub fn canonical64(value: f64) -> f64 {
    let bits = value.to_bits();
    let is_nan = bits & 0x7fff_ffff_ffff_ffff > 0x7ff0_0000_0000_0000;
    f64::from_bits(if is_nan { 0xfff8_0000_0000_0000 } else { bits })
}

/// Returns a zero with the sign of the value if the value is subnormal.
#[inline(always)]
pub fn flush<const FLUSH: bool>(value: f32) -> f32 {
    if FLUSH && value.to_bits() & 0x7f80_0000 == 0 { f32::from_bits(value.to_bits() & 0x8000_0000) } else { value }
}

#[inline(always)]
pub fn saturate<const SATURATE: bool>(value: f32) -> f32 {
    if !SATURATE {
        value
    } else if value > 0.0 {
        if value < 1.0 { value } else { 1.0 }
    } else {
        0.0
    }
}

#[inline(always)]
fn finish<const FLUSH: bool, const SATURATE: bool>(value: f32) -> f32 {
    saturate::<SATURATE>(flush::<FLUSH>(canonical(value)))
}

pub fn unary32<F: Fn(f32) -> f32 + Copy>(m: Modifiers, f: F) -> Lanes {
    if m.flush {
        unary(move |a: f32| finish::<true, false>(f(flush::<true>(a))))
    } else {
        unary(move |a: f32| finish::<false, false>(f(a)))
    }
}

/// Makes an operation like [`unary32`] that skips lanes that are off, for expensive functions.
pub fn sparse32<F: Fn(f32) -> f32 + Copy>(m: Modifiers, f: F) -> Lanes {
    if m.flush {
        unary_sparse(move |a: f32| finish::<true, false>(f(flush::<true>(a))))
    } else {
        unary_sparse(move |a: f32| finish::<false, false>(f(a)))
    }
}

fn binary32<F: Fn(f32, f32) -> f32 + Copy>(m: Modifiers, f: F) -> Lanes {
    match (m.flush, m.saturate) {
        (false, false) => binary(move |a: f32, b: f32| finish::<false, false>(f(a, b))),
        (false, true) => binary(move |a: f32, b: f32| finish::<false, true>(f(a, b))),
        (true, false) => binary(move |a: f32, b: f32| finish::<true, false>(f(flush::<true>(a), flush::<true>(b)))),
        (true, true) => binary(move |a: f32, b: f32| finish::<true, true>(f(flush::<true>(a), flush::<true>(b)))),
    }
}

fn ternary32<F: Fn(f32, f32, f32) -> f32 + Copy>(m: Modifiers, f: F) -> Lanes {
    macro_rules! flushed {
        ($saturate:literal) => {
            ternary(move |a: f32, b: f32, c: f32| {
                finish::<true, $saturate>(f(flush::<true>(a), flush::<true>(b), flush::<true>(c)))
            })
        };
    }
    match (m.flush, m.saturate) {
        (false, false) => ternary(move |a: f32, b: f32, c: f32| finish::<false, false>(f(a, b, c))),
        (false, true) => ternary(move |a: f32, b: f32, c: f32| finish::<false, true>(f(a, b, c))),
        (true, false) => flushed!(false),
        (true, true) => flushed!(true),
    }
}

/// Evaluates an expression with a name for the type of a rounding mode.
macro_rules! by_mode {
    ($rounding:expr, $m:ident => $body:expr) => {
        match $rounding {
            Rounding::Nearest => {
                type $m = Nearest;
                $body
            }
            Rounding::Zero => {
                type $m = Zero;
                $body
            }
            Rounding::Down => {
                type $m = Down;
                $body
            }
            Rounding::Up => {
                type $m = Up;
                $body
            }
        }
    };
}
pub(crate) use by_mode;

/// Returns f32 arithmetic whose result is rounded.
pub fn single(name: &str, m: Modifiers) -> Option<Lanes> {
    if m.rounding != Rounding::Nearest {
        return single_directed(name, m);
    }
    Some(match name {
        "add" => binary32(m, |a, b| a + b),
        "sub" => binary32(m, |a, b| a - b),
        "mul" => binary32(m, |a, b| a * b),
        "div" => binary32(m, |a, b| a / b),
        "fma" => ternary32(m, f32::mul_add),
        "rcp" => unary32(m, |a| 1.0 / a),
        "sqrt" => unary32(m, f32::sqrt),
        "div.approx" => binary32(m, near_quotient),
        _ => return None,
    })
}

/// `div.approx` multiplies by a reciprocal. For divisors above 2^126 the reciprocal would be subnormal, so it is zero.
#[inline(always)]
fn near_quotient(a: f32, b: f32) -> f32 {
    if b.abs() > TWO_126 { a * 0f32.copysign(b) } else { a / b }
}

const TWO_126: f32 = f32::from_bits(0x7e80_0000);

fn single_directed(name: &str, m: Modifiers) -> Option<Lanes> {
    Some(by_mode!(m.rounding, M => match name {
        "add" => binary32(m, |a, b| fma_single::<M>(a, 1.0, b)),
        "sub" => binary32(m, |a, b| fma_single::<M>(a, 1.0, -b)),
        "mul" => binary32(m, |a, b| narrow::<M>(f64::from(a) * f64::from(b))),
        "div" => binary32(m, |a, b| exact::div(a.into(), b.into(), M::ROUNDING, SINGLE) as f32),
        "fma" => ternary32(m, fma_single::<M>),
        "rcp" => unary32(m, |a| exact::div(1.0, a.into(), M::ROUNDING, SINGLE) as f32),
        "sqrt" => unary32(m, |a| exact::sqrt(a.into(), M::ROUNDING, SINGLE) as f32),
        _ => return None,
    }))
}

/// Returns f64 arithmetic whose result is rounded.
pub fn double(name: &str, rounding: Rounding) -> Option<Lanes> {
    if rounding != Rounding::Nearest {
        return double_directed(name, rounding);
    }
    Some(match name {
        "add" => binary(|a: f64, b: f64| canonical64(a + b)),
        "sub" => binary(|a: f64, b: f64| canonical64(a - b)),
        "mul" => binary(|a: f64, b: f64| canonical64(a * b)),
        "div" => binary(|a: f64, b: f64| canonical64(a / b)),
        "fma" => ternary(|a: f64, b: f64, c: f64| canonical64(a.mul_add(b, c))),
        "rcp" => unary(|a: f64| canonical64(1.0 / a)),
        "sqrt" => unary(|a: f64| canonical64(a.sqrt())),
        _ => return None,
    })
}

fn double_directed(name: &str, rounding: Rounding) -> Option<Lanes> {
    Some(by_mode!(rounding, M => match name {
        "add" => binary_sparse(|a: f64, b: f64| canonical64(exact::add(a, b, M::ROUNDING, DOUBLE))),
        "sub" => binary_sparse(|a: f64, b: f64| canonical64(exact::add(a, -b, M::ROUNDING, DOUBLE))),
        "mul" => binary_sparse(|a: f64, b: f64| canonical64(exact::mul(a, b, M::ROUNDING, DOUBLE))),
        "div" => binary_sparse(|a: f64, b: f64| canonical64(exact::div(a, b, M::ROUNDING, DOUBLE))),
        "fma" => ternary_sparse(|a: f64, b: f64, c: f64| canonical64(exact::fma(a, b, c, M::ROUNDING, DOUBLE))),
        "rcp" => unary_sparse(|a: f64| canonical64(exact::div(1.0, a, M::ROUNDING, DOUBLE))),
        "sqrt" => unary_sparse(|a: f64| canonical64(exact::sqrt(a, M::ROUNDING, DOUBLE))),
        _ => return None,
    }))
}

/// Returns f32 operations that are exact.
pub fn single_exact(name: &str, m: Modifiers) -> Option<Lanes> {
    Some(match (name, m.flush) {
        ("neg", false) => unary(|a: f32| -a),
        ("neg", true) => unary(|a: f32| flush::<true>(-a)),
        ("abs", false) => unary(|a: f32| a.abs()),
        ("abs", true) => unary(|a: f32| flush::<true>(a.abs())),
        ("min", _) => binary32(m, min32::<false>),
        ("max", _) => binary32(m, max32::<false>),
        ("min.NaN", _) => binary32(m, min32::<true>),
        ("max.NaN", _) => binary32(m, max32::<true>),
        ("min.xorsign", _) => binary32(m, |a, b| with_signs(a, b, min32::<false>)),
        ("max.xorsign", _) => binary32(m, |a, b| with_signs(a, b, max32::<false>)),
        ("min.NaN.xorsign", _) => binary32(m, |a, b| with_signs(a, b, min32::<true>)),
        ("max.NaN.xorsign", _) => binary32(m, |a, b| with_signs(a, b, max32::<true>)),
        ("copysign", false) => binary(|a: f32, b: f32| b.copysign(a)),
        _ => return None,
    })
}

/// `.xorsign.abs`: chooses one of the magnitudes and gives it the XOR of both signs.
#[inline(always)]
fn with_signs(a: f32, b: f32, choose: impl Fn(f32, f32) -> f32) -> f32 {
    let signs = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    f32::from_bits(choose(a.abs(), b.abs()).to_bits() | signs)
}

pub fn double_exact(name: &str) -> Option<Lanes> {
    Some(match name {
        "neg" => unary(|a: f64| -a),
        "abs" => unary(|a: f64| a.abs()),
        "min" => binary(min64::<false>),
        "max" => binary(max64::<false>),
        "copysign" => binary(|a: f64, b: f64| b.copysign(a)),
        _ => return None,
    })
}
