//! Arithmetic on 16-bit floats (f16, bf16), single and in pairs. Products are exact in f64, and inexact sums are
//! rounded to odd, so that a single rounding at the end is correct.

use half::{bf16, f16};

use super::exact::{odd_single, odd_sum};
use super::lanes::{Lane, Lanes, Pair, binary, ternary, unary};
use crate::ptx::types::Type;

/// Properties of a 16-bit float that the operations need.
pub trait Small: Lane {
    fn wide(self) -> f64;
    fn rounded(value: f64) -> Self;
    fn raw(self) -> u16;
    fn from_raw(bits: u16) -> Self;
    const ONE: u16;
    const INFINITY: u16;
}

macro_rules! small {
    ($($t:ty, $one:expr, $infinity:expr;)*) => {$(
        impl Small for $t {
            #[inline(always)]
            fn wide(self) -> f64 { self.to_f64() }
            #[inline(always)]
            fn rounded(value: f64) -> Self {
                // Rounds to odd f32 first, because `from_f64` rounds to nearest twice on some machines. Detects a NaN
                // by its bits, because the compiler may replace one NaN by another.
                let is_nan = value.to_bits() << 1 > f64::INFINITY.to_bits() << 1;
                if is_nan { <$t>::from_bits(NAN) } else { <$t>::from_f32(odd_single(value)) }
            }
            #[inline(always)]
            fn raw(self) -> u16 { self.to_bits() }
            #[inline(always)]
            fn from_raw(bits: u16) -> Self { <$t>::from_bits(bits) }
            const ONE: u16 = $one;
            const INFINITY: u16 = $infinity;
        }
    )*};
}

small! {
    f16, 0x3c00, 0x7c00;
    bf16, 0x3f80, 0x7f80;
}

/// The NaN that operations on either format return.
pub const NAN: u16 = 0x7fff;

#[inline(always)]
pub fn flush<T: Small, const FLUSH: bool>(value: T) -> T {
    if FLUSH && value.raw() & T::INFINITY == 0 { T::from_raw(value.raw() & 0x8000) } else { value }
}

#[inline(always)]
fn clamp<T: Small, const SATURATE: bool>(value: T) -> T {
    let number = value.wide();
    if !SATURATE {
        value
    } else if number > 0.0 {
        if number < 1.0 { value } else { T::from_raw(T::ONE) }
    } else {
        T::from_raw(0)
    }
}

#[inline(always)]
pub fn sum<T: Small>(a: T, b: T) -> T {
    T::rounded(odd_sum(a.wide(), b.wide()))
}

/// Returns `a * b + c`, rounded once; the product is exact in f64.
#[inline(always)]
fn fused<T: Small>(a: T, b: T, c: T) -> T {
    T::rounded(odd_sum(a.wide() * b.wide(), c.wide()))
}

/// Replaces numbers that are not above zero by +0; a NaN stays one.
#[inline(always)]
pub fn positive<T: Small>(value: T) -> T {
    if is_nan(value) { T::from_raw(NAN) } else { T::from_raw((value.raw() as i16).max(0) as u16) }
}

#[inline(always)]
pub fn is_nan<T: Small>(value: T) -> bool {
    value.raw() & 0x7fff > T::INFINITY
}

/// Returns the lesser or the greater number: -0 is below +0. The result is a NaN if both are NaN, or with `STRICT` if
/// either is.
#[inline(always)]
pub fn extreme<T: Small, const MAX: bool, const STRICT: bool>(a: T, b: T) -> T {
    // As 16-bit integers, negative floats are ordered backwards, so all their bits but the sign are inverted.
    let rank = |value: T| {
        let bits = value.raw() as i16;
        bits ^ (bits >> 15 & 0x7fff)
    };
    let chosen = if (rank(a) < rank(b)) != MAX { a } else { b };
    let none = if STRICT { is_nan(a) || is_nan(b) } else { is_nan(a) && is_nan(b) };
    if none {
        T::from_raw(NAN)
    } else if is_nan(a) {
        b
    } else if is_nan(b) {
        a
    } else {
        chosen
    }
}

/// `.xorsign.abs`: chooses one of the magnitudes and gives it the XOR of both signs.
#[inline(always)]
fn signed_extreme<T: Small, const MAX: bool, const STRICT: bool>(a: T, b: T) -> T {
    let chosen = extreme::<T, MAX, STRICT>(absolute(a), absolute(b));
    let signs = (a.raw() ^ b.raw()) & 0x8000;
    if is_nan(chosen) { chosen } else { T::from_raw(chosen.raw() | signs) }
}

#[inline(always)]
fn negated<T: Small>(a: T) -> T {
    T::from_raw(a.raw() ^ 0x8000)
}

#[inline(always)]
fn absolute<T: Small>(a: T) -> T {
    T::from_raw(a.raw() & 0x7fff)
}

fn one<T: Small, const PAIR: bool, F: Fn(T) -> T + Copy>(f: F) -> Lanes
where
    Pair<T>: Lane,
{
    if PAIR { unary(move |a: Pair<T>| Pair(f(a.0), f(a.1))) } else { unary(f) }
}

fn two<T: Small, const PAIR: bool, F: Fn(T, T) -> T + Copy>(f: F) -> Lanes
where
    Pair<T>: Lane,
{
    if PAIR { binary(move |a: Pair<T>, b: Pair<T>| Pair(f(a.0, b.0), f(a.1, b.1))) } else { binary(f) }
}

fn three<T: Small, const PAIR: bool, F: Fn(T, T, T) -> T + Copy>(f: F) -> Lanes
where
    Pair<T>: Lane,
{
    if PAIR {
        ternary(move |a: Pair<T>, b: Pair<T>, c: Pair<T>| Pair(f(a.0, b.0, c.0), f(a.1, b.1, c.1)))
    } else {
        ternary(f)
    }
}

fn operation<T: Small, const PAIR: bool, const FLUSH: bool, const SATURATE: bool>(name: &str) -> Option<Lanes>
where
    Pair<T>: Lane,
{
    #[inline(always)]
    fn finish<T: Small, const FLUSH: bool, const SATURATE: bool>(value: T) -> T {
        clamp::<T, SATURATE>(flush::<T, FLUSH>(value))
    }
    Some(match name {
        "add" => two::<T, PAIR, _>(|a, b| {
            let (a, b) = (flush::<T, FLUSH>(a), flush::<T, FLUSH>(b));
            finish::<T, FLUSH, SATURATE>(sum(a, b))
        }),
        "sub" => two::<T, PAIR, _>(|a, b| {
            let (a, b) = (flush::<T, FLUSH>(a), flush::<T, FLUSH>(b));
            finish::<T, FLUSH, SATURATE>(sum(a, negated(b)))
        }),
        "mul" => two::<T, PAIR, _>(|a, b| {
            let (a, b) = (flush::<T, FLUSH>(a), flush::<T, FLUSH>(b));
            finish::<T, FLUSH, SATURATE>(T::rounded(a.wide() * b.wide()))
        }),
        "fma" => three::<T, PAIR, _>(|a, b, c| {
            let (a, b, c) = (flush::<T, FLUSH>(a), flush::<T, FLUSH>(b), flush::<T, FLUSH>(c));
            finish::<T, FLUSH, SATURATE>(fused(a, b, c))
        }),
        "fma.relu" => three::<T, PAIR, _>(|a, b, c| {
            let (a, b, c) = (flush::<T, FLUSH>(a), flush::<T, FLUSH>(b), flush::<T, FLUSH>(c));
            positive(flush::<T, FLUSH>(fused(a, b, c)))
        }),
        "min" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(extreme::<T, false, false>(a, b))),
        "max" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(extreme::<T, true, false>(a, b))),
        "min.NaN" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(extreme::<T, false, true>(a, b))),
        "max.NaN" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(extreme::<T, true, true>(a, b))),
        "min.xorsign" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(signed_extreme::<T, false, false>(a, b))),
        "max.xorsign" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(signed_extreme::<T, true, false>(a, b))),
        "min.NaN.xorsign" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(signed_extreme::<T, false, true>(a, b))),
        "max.NaN.xorsign" => two::<T, PAIR, _>(|a, b| flush::<T, FLUSH>(signed_extreme::<T, true, true>(a, b))),
        "neg" => one::<T, PAIR, _>(|a| flush::<T, FLUSH>(negated(a))),
        "abs" => one::<T, PAIR, _>(|a| flush::<T, FLUSH>(absolute(a))),
        "ex2" => one::<T, PAIR, _>(|a| flush::<T, FLUSH>(T::rounded(libm::exp2(flush::<T, FLUSH>(a).wide())))),
        "tanh" => one::<T, PAIR, _>(|a| T::rounded(libm::tanh(a.wide()))),
        _ => return None,
    })
}

/// Returns an operation on `f16`, `f16x2`, `bf16` or `bf16x2`.
pub fn arithmetic(name: &str, ty: Type, flushing: bool, saturate: bool) -> Option<Lanes> {
    macro_rules! variants {
        ($t:ty, $pair:literal) => {
            match (flushing, saturate) {
                (false, false) => operation::<$t, $pair, false, false>(name),
                (false, true) => operation::<$t, $pair, false, true>(name),
                (true, false) => operation::<$t, $pair, true, false>(name),
                (true, true) => operation::<$t, $pair, true, true>(name),
            }
        };
    }
    match (ty, flushing, saturate) {
        (Type::F16, _, _) => variants!(f16, false),
        (Type::F16x2, _, _) => variants!(f16, true),
        (Type::Bf16, false, false) => operation::<bf16, false, false, false>(name),
        (Type::Bf16x2, false, false) => operation::<bf16, true, false, false>(name),
        // bf16 has the exponent range of f32, so subnormals need flushing only in `ex2`, as a device's table of
        // exponentials does.
        (Type::Bf16, true, false) if name == "ex2" => operation::<bf16, false, true, false>(name),
        (Type::Bf16x2, true, false) if name == "ex2" => operation::<bf16, true, true, false>(name),
        _ => None,
    }
}
