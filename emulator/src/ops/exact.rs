//! Correctly rounded arithmetic in the directed rounding modes. The processor rounds to nearest; the other three modes
//! are rare, so they are computed on integers.

/// IEEE 754 rounding mode of a result that is not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A rounding mode as a type parameter, so that operations need not capture one.
pub trait Mode: Copy {
    const ROUNDING: Rounding;
}

macro_rules! modes {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Mode for $name {
            const ROUNDING: Rounding = Rounding::$name;
        }
    )*};
}

modes! { Nearest Zero Down Up }

/// A binary floating-point format: bits of the significand, exponent of the smallest subnormal number, exponent above
/// the largest value.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    precision: i32,
    least: i32,
    top: i32,
}

pub const SINGLE: Format = Format { precision: 24, least: -149, top: 128 };
pub const DOUBLE: Format = Format { precision: 53, least: -1074, top: 1024 };

/// The number `(-1)^negative * significand * 2^exponent`, plus less than one unit of the significand if `inexact`.
#[derive(Clone, Copy, Debug)]
struct Exact {
    negative: bool,
    significand: u128,
    exponent: i32,
    inexact: bool,
}

/// Bits kept free at the top of a significand, so that a sum does not overflow.
const HEADROOM: u32 = 2;

impl Exact {
    fn of(value: f64) -> Exact {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let negative = value.is_sign_negative();
        if exponent == 0 {
            Exact { negative, significand: fraction.into(), exponent: -1074, inexact: false }
        } else {
            Exact { negative, significand: (fraction | 1 << 52).into(), exponent: exponent - 1075, inexact: false }
        }
    }

    fn is_zero(self) -> bool {
        self.significand == 0 && !self.inexact
    }

    /// Shifts the significand up as far as the headroom allows.
    fn normalised(mut self) -> Exact {
        let room = self.significand.leading_zeros().saturating_sub(HEADROOM);
        if self.significand != 0 {
            self.significand <<= room;
            self.exponent -= room as i32;
        }
        self
    }

    /// Returns the number with a larger exponent; lost bits make it inexact.
    fn lowered_to(mut self, exponent: i32) -> Exact {
        let by = exponent.saturating_sub(self.exponent).max(0) as u32;
        let kept = self.significand.checked_shr(by).unwrap_or(0);
        self.inexact |= kept.checked_shl(by).unwrap_or(0) != self.significand;
        self.significand = kept;
        self.exponent = exponent;
        self
    }

    fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
            inexact: false,
        }
    }

    /// Returns the sum of two exact numbers; `None` if they cancel to zero.
    fn plus(self, other: Exact) -> Option<Exact> {
        let (a, b) = (self.normalised(), other.normalised());
        let (high, low) =
            if a.significand == 0 || (b.significand != 0 && b.exponent > a.exponent) { (b, a) } else { (a, b) };
        let low =
            if low.significand == 0 { Exact { exponent: high.exponent, ..low } } else { low.lowered_to(high.exponent) };
        let mut sum = Exact { inexact: low.inexact, ..high };
        if high.negative == low.negative {
            sum.significand += low.significand;
        } else if high.significand >= low.significand {
            sum.significand -= low.significand;
            // The bits lost from the smaller number are missing from the difference.
            if low.inexact {
                sum.significand -= 1;
            }
        } else {
            sum.significand = low.significand - high.significand;
            sum.negative = low.negative;
        }
        (!sum.is_zero()).then_some(sum)
    }

    fn rounded(self, rounding: Rounding, format: Format) -> f64 {
        let number = self.normalised();
        let length = 128 - number.significand.leading_zeros() as i32;
        let unit = (number.exponent + length - format.precision).max(format.least);
        let cut = number.lowered_to(unit.max(number.exponent));
        let mut kept = cut.significand;
        if cut.inexact {
            kept += u128::from(rounds_away(number, kept, unit, rounding));
        }
        let top = 128 - kept.leading_zeros() as i32 + cut.exponent;
        let magnitude = if kept != 0 && top > format.top {
            overflow(self.negative, rounding, format)
        } else {
            scaled(kept as f64, cut.exponent)
        };
        if self.negative { -magnitude } else { magnitude }
    }
}

/// Reports whether the part of `number` that was cut off below `unit` rounds the kept part up in magnitude.
fn rounds_away(number: Exact, kept: u128, unit: i32, rounding: Rounding) -> bool {
    match rounding {
        Rounding::Zero => false,
        Rounding::Down => number.negative,
        Rounding::Up => !number.negative,
        Rounding::Nearest => {
            let half = number.lowered_to(unit - 1);
            half.significand & 1 != 0 && (half.inexact || kept & 1 != 0)
        }
    }
}

fn overflow(negative: bool, rounding: Rounding, format: Format) -> f64 {
    let to_infinity = match rounding {
        Rounding::Nearest => true,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    let largest = ((1u64 << format.precision) - 1) as f64;
    if to_infinity { f64::INFINITY } else { scaled(largest, format.top - format.precision) }
}

/// Returns `value * 2^exponent`, in steps that neither overflow nor lose bits on the way to a representable result.
fn scaled(value: f64, exponent: i32) -> f64 {
    let power = |e: i32| f64::from_bits(((e + 1023) as u64) << 52);
    let mut value = value;
    let mut left = exponent;
    while left > 1000 {
        value *= power(1000);
        left -= 1000;
    }
    while left < -1000 {
        value *= power(-1000);
        left += 1000;
    }
    value * power(left)
}

/// Returns the zero of an exact zero sum, with its sign.
fn zero_sum(a_negative: bool, b_negative: bool, rounding: Rounding) -> f64 {
    let negative = if a_negative == b_negative { a_negative } else { rounding == Rounding::Down };
    if negative { -0.0 } else { 0.0 }
}

/// Returns `a * b + c`, rounded once to `format`. The arguments are values of that format.
pub fn fma(a: f64, b: f64, c: f64, rounding: Rounding, format: Format) -> f64 {
    let native = a.mul_add(b, c);
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return native;
    }
    let product = Exact::of(a).times(Exact::of(b));
    let addend = Exact::of(c);
    if product.is_zero() && addend.is_zero() {
        return zero_sum(product.negative, addend.negative, rounding);
    }
    match product.plus(addend) {
        Some(sum) => sum.rounded(rounding, format),
        None => zero_sum(false, true, rounding),
    }
}

pub fn add(a: f64, b: f64, rounding: Rounding, format: Format) -> f64 {
    fma(a, 1.0, b, rounding, format)
}

pub fn mul(a: f64, b: f64, rounding: Rounding, format: Format) -> f64 {
    if !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a * b;
    }
    Exact::of(a).times(Exact::of(b)).rounded(rounding, format)
}

pub fn div(a: f64, b: f64, rounding: Rounding, format: Format) -> f64 {
    if !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (over, under) = (Exact::of(a).normalised(), Exact::of(b));
    // The divisor has at most 53 bits and the dividend 126, so the quotient has at least 73.
    let quotient = over.significand / under.significand;
    let exact = quotient * under.significand == over.significand;
    Exact {
        negative: over.negative != under.negative,
        significand: quotient,
        exponent: over.exponent - under.exponent,
        inexact: !exact,
    }
    .rounded(rounding, format)
}

pub fn sqrt(a: f64, rounding: Rounding, format: Format) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let mut square = Exact::of(a).normalised();
    if square.exponent & 1 != 0 {
        square.significand >>= 1;
        square.exponent += 1;
    }
    // The significand has at most 53 bits of its own, so the shift above lost none.
    let root = square.significand.isqrt();
    Exact {
        negative: false,
        significand: root,
        exponent: square.exponent / 2,
        inexact: root * root != square.significand,
    }
    .rounded(rounding, format)
}

/// Rounds an f64 to f32.
#[inline(always)]
pub fn narrow<M: Mode>(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    match M::ROUNDING {
        Rounding::Nearest => nearest,
        Rounding::Zero if back.abs() > value.abs() => f32::from_bits(nearest.to_bits() - 1),
        Rounding::Down if back > value => nearest.next_down(),
        Rounding::Up if back < value => nearest.next_up(),
        _ => nearest,
    }
}

/// Returns `a + b` rounded to odd: if the sum is inexact, its last bit is set. So a second rounding to a shorter format
/// gives the result of rounding the exact sum once.
#[inline(always)]
pub fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let back = sum - a;
    let error = (a - (sum - back)) + (b - back);
    if error != 0.0 && sum.is_finite() && sum.to_bits() & 1 == 0 {
        // One step towards the exact sum makes the last bit odd.
        let outward = (error > 0.0) == (sum > 0.0);
        f64::from_bits(if outward { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
    } else {
        sum
    }
}

/// Rounds an f64 to odd f32, for a second rounding to a shorter format.
#[inline(always)]
pub fn odd_single(value: f64) -> f32 {
    let cut = narrow::<Zero>(value);
    f32::from_bits(cut.to_bits() | u32::from(f64::from(cut) != value))
}

/// Returns `a * b + c` of f32 values. It computes in f64, where the product is exact.
#[inline(always)]
pub fn fma_single<M: Mode>(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = odd_sum(product, c);
    if sum == 0.0 {
        let down = M::ROUNDING == Rounding::Down && product.is_sign_negative() != c.is_sign_negative();
        return if down { -0.0 } else { sum as f32 };
    }
    narrow::<M>(sum)
}

#[cfg(test)]
mod tests;
