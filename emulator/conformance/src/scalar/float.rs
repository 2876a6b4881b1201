//! IEEE 754 arithmetic in every binary format and rounding mode: computes the exact result, then rounds once.

use super::exact::Wide;
use crate::kind::Kind;

/// Rounding mode of a result between two numbers of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Nearest,
    Zero,
    Down,
    Up,
    /// To nearest, ties away from zero.
    Away,
}

pub const MODES: [(&str, Mode); 4] = [("rn", Mode::Nearest), ("rz", Mode::Zero), ("rm", Mode::Down), ("rp", Mode::Up)];

/// A binary format of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub exponent_bits: u32,
    pub fraction_bits: u32,
    /// The NaN that operations return.
    pub nan: u64,
}

pub const HALF: Format = Format { exponent_bits: 5, fraction_bits: 10, nan: 0x7fff };
pub const BRAIN: Format = Format { exponent_bits: 8, fraction_bits: 7, nan: 0x7fff };
pub const SINGLE: Format = Format { exponent_bits: 8, fraction_bits: 23, nan: 0x7fff_ffff };
pub const DOUBLE: Format = Format { exponent_bits: 11, fraction_bits: 52, nan: 0xfff8_0000_0000_0000 };

impl Format {
    pub fn of(kind: Kind) -> Format {
        match kind {
            Kind::F16 => HALF,
            Kind::Bf16 => BRAIN,
            Kind::F32 | Kind::Tf32 => SINGLE,
            Kind::F64 => DOUBLE,
            _ => panic!("{kind} is not one float"),
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    pub fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    pub fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    pub fn one(self) -> u64 {
        (self.bias() as u64) << self.fraction_bits
    }

    pub fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    pub fn is_infinite(self, bits: u64) -> bool {
        bits & (self.sign() - 1) == self.infinity()
    }

    pub fn is_negative(self, bits: u64) -> bool {
        bits & self.sign() != 0
    }

    pub fn is_zero(self, bits: u64) -> bool {
        bits & (self.sign() - 1) == 0
    }

    pub fn is_subnormal(self, bits: u64) -> bool {
        bits & self.infinity() == 0 && !self.is_zero(bits)
    }

    /// Applies `.ftz`: replaces a subnormal by a zero of its sign.
    pub fn flush(self, bits: u64) -> u64 {
        if self.is_subnormal(bits) { bits & self.sign() } else { bits }
    }

    /// Applies `.sat`: clamps to 0..=1; a NaN becomes +0.
    pub fn saturate(self, bits: u64) -> u64 {
        if self.is_nan(bits) || self.is_negative(bits) { 0 } else { bits.min(self.one()) }
    }

    /// Applies `.relu`: negative numbers become 0; a NaN becomes the format's.
    pub fn relu(self, bits: u64) -> u64 {
        if self.is_nan(bits) {
            self.nan
        } else if self.is_negative(bits) {
            0
        } else {
            bits
        }
    }

    /// Returns the position on the line of all numbers: neighbours differ by one, and both zeros share a position.
    pub fn place(self, bits: u64) -> i64 {
        let magnitude = (bits & (self.sign() - 1)) as i64;
        if self.is_negative(bits) { -magnitude } else { magnitude }
    }
}

/// The value of bits. A finite number is `mantissa * 2^exponent`. With `more` its magnitude is slightly larger, by less
/// than one unit of the mantissa, which then has more bits than any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Nan,
    Infinite(bool),
    Finite { negative: bool, mantissa: u128, exponent: i32, more: bool },
}

use Number::{Finite, Infinite, Nan};

pub fn decode(format: Format, bits: u64) -> Number {
    let negative = format.is_negative(bits);
    if format.is_nan(bits) {
        return Nan;
    }
    if format.is_infinite(bits) {
        return Infinite(negative);
    }
    let fraction = u128::from(bits & ((1 << format.fraction_bits) - 1));
    let field = (bits >> format.fraction_bits & ((1 << format.exponent_bits) - 1)) as i32;
    let hidden = if field == 0 { 0 } else { 1u128 << format.fraction_bits };
    let exponent = field.max(1) - format.bias() - format.fraction_bits as i32;
    Finite { negative, mantissa: fraction | hidden, exponent, more: false }
}

pub fn encode(format: Format, number: Number, mode: Mode) -> u64 {
    let sign = |negative: bool| if negative { format.sign() } else { 0 };
    let Finite { negative, mantissa, exponent, more } = number else {
        return if let Infinite(negative) = number { sign(negative) | format.infinity() } else { format.nan };
    };
    if mantissa == 0 {
        return sign(negative);
    }
    let top = exponent + 127 - mantissa.leading_zeros() as i32;
    let smallest = 1 - format.bias();
    // The exponent of the last place; lower bits are rounded.
    let last = top.max(smallest) - format.fraction_bits as i32;
    let rounded = split(mantissa, last - exponent, more).rounded(negative, mode);
    // The hidden bit adds one to the exponent field, and so does a carry out of the fraction.
    let bits = rounded + (((top.max(smallest) - smallest) as u64) << format.fraction_bits);
    if bits >= format.infinity() {
        let stays = mode == Mode::Zero || mode == Mode::Down && !negative || mode == Mode::Up && negative;
        return sign(negative) | (format.infinity() - u64::from(stays));
    }
    sign(negative) | bits
}

/// A mantissa that was cut off, and what was lost.
struct Cut {
    kept: u64,
    is_inexact: bool,
    /// Whether the lost part is more than half a unit, or exactly half.
    is_beyond_half: bool,
    is_half: bool,
}

impl Cut {
    /// The cut of a number far below one unit.
    const TINY: Self = Self { kept: 0, is_inexact: true, is_beyond_half: false, is_half: false };

    fn rounded(&self, negative: bool, mode: Mode) -> u64 {
        let up = match mode {
            Mode::Nearest => self.is_beyond_half || self.is_half && self.kept & 1 != 0,
            Mode::Away => self.is_beyond_half || self.is_half,
            Mode::Zero => false,
            Mode::Down => self.is_inexact && negative,
            Mode::Up => self.is_inexact && !negative,
        };
        self.kept + u64::from(up)
    }
}

/// Cuts off the `shift` low bits of a mantissa; `more` means that nonzero bits below it were lost before.
fn split(mantissa: u128, shift: i32, more: bool) -> Cut {
    if shift <= 0 {
        assert!(!more || shift == 0 && mantissa == 0, "an inexact mantissa has more bits than any format");
        return Cut { kept: (mantissa << -shift) as u64, is_inexact: false, is_beyond_half: false, is_half: false };
    }
    let (kept, lost, half) = match shift {
        1..128 => (mantissa >> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1)),
        128 => (0, mantissa, 1 << 127),
        // Always less than half.
        _ => (0, 1, 2),
    };
    Cut {
        kept: kept as u64,
        is_inexact: lost != 0 || more,
        is_beyond_half: lost > half || lost == half && more,
        is_half: lost == half && !more,
    }
}

pub fn negate(number: Number) -> Number {
    match number {
        Nan => Nan,
        Infinite(negative) => Infinite(!negative),
        Finite { negative, mantissa, exponent, more } => Finite { negative: !negative, mantissa, exponent, more },
    }
}

pub fn multiply(a: Number, b: Number) -> Number {
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite(x), Infinite(y)) => Infinite(x != y),
        (Infinite(x), Finite { negative, mantissa, .. }) | (Finite { negative, mantissa, .. }, Infinite(x)) => {
            if mantissa == 0 {
                Nan
            } else {
                Infinite(x != negative)
            }
        }
        (
            Finite { negative: x, mantissa: m, exponent: e, .. },
            Finite { negative: y, mantissa: n, exponent: f, .. },
        ) => Finite { negative: x != y, mantissa: m * n, exponent: e + f, more: false },
    }
}

/// Returns the sum. For opposite numbers it is +0, or −0 when rounding down.
pub fn sum(a: Number, b: Number, mode: Mode) -> Number {
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite(x), Infinite(y)) => {
            if x == y {
                Infinite(x)
            } else {
                Nan
            }
        }
        (Infinite(x), _) | (_, Infinite(x)) => Infinite(x),
        (
            Finite { negative: x, mantissa: m, exponent: e, .. },
            Finite { negative: y, mantissa: n, exponent: f, .. },
        ) => {
            let (p, q) = (Wide::new(m, e), Wide::new(n, f));
            let (negative, total) = match x == y {
                true => (x, p.plus(&q)),
                false if p == q => (mode == Mode::Down, p.minus(&q)),
                false if p.is_less(&q) => (y, q.minus(&p)),
                false => (x, p.minus(&q)),
            };
            if total.is_zero() {
                return Finite { negative, mantissa: 0, exponent: 0, more: false };
            }
            let (mantissa, exponent, more) = total.cut();
            Finite { negative, mantissa, exponent, more }
        }
    }
}

pub fn divide(a: Number, b: Number) -> Number {
    match (a, b) {
        (Nan, _) | (_, Nan) | (Infinite(_), Infinite(_)) => Nan,
        (Infinite(x), Finite { negative, .. }) => Infinite(x != negative),
        (Finite { negative, .. }, Infinite(y)) => {
            Finite { negative: negative != y, mantissa: 0, exponent: 0, more: false }
        }
        (
            Finite { negative: x, mantissa: m, exponent: e, .. },
            Finite { negative: y, mantissa: n, exponent: f, .. },
        ) => {
            if n == 0 {
                return if m == 0 { Nan } else { Infinite(x != y) };
            }
            if m == 0 {
                return Finite { negative: x != y, mantissa: 0, exponent: 0, more: false };
            }
            // Shifted left as far as possible, so that the quotient has at least 70 bits.
            let shift = m.leading_zeros() as i32;
            let m = m << shift;
            Finite { negative: x != y, mantissa: m / n, exponent: e - f - shift, more: !m.is_multiple_of(n) }
        }
    }
}

pub fn root(a: Number) -> Number {
    match a {
        Nan | Infinite(true) => Nan,
        Infinite(false) => a,
        Finite { mantissa: 0, .. } => a,
        Finite { negative: true, .. } => Nan,
        Finite { mantissa, exponent, .. } => {
            // An even exponent, and a root of at least 60 bits.
            let shift = (mantissa.leading_zeros() as i32 - 2) & !1;
            let shift = if (exponent - shift) % 2 == 0 { shift } else { shift + 1 };
            let square = mantissa << shift;
            let whole = square.isqrt();
            Finite { negative: false, mantissa: whole, exponent: (exponent - shift) / 2, more: whole * whole != square }
        }
    }
}

/// Rounds to an integral value, which is still a `Number`; zero keeps its sign.
pub fn integral(a: Number, mode: Mode) -> Number {
    let Finite { negative, mantissa, exponent, more } = a else { return a };
    if exponent >= 0 || mantissa == 0 {
        return a;
    }
    let cut = if -exponent > 127 { Cut::TINY } else { split(mantissa, -exponent, more) };
    Finite { negative, mantissa: u128::from(cut.rounded(negative, mode)), exponent: 0, more: false }
}

/// Returns an integer as a number.
pub fn whole(value: i128) -> Number {
    Finite { negative: value < 0, mantissa: value.unsigned_abs(), exponent: 0, more: false }
}

/// Returns the integer of a finite integral number, clamped to 2^100.
pub fn to_integer(a: Number) -> Option<i128> {
    const LIMIT: i128 = 1 << 100;
    match a {
        Nan => None,
        Infinite(negative) => Some(if negative { -LIMIT } else { LIMIT }),
        Finite { negative, mantissa, exponent, .. } => {
            let magnitude = match exponent {
                _ if mantissa == 0 => 0,
                0..47 => mantissa.min(1 << 80) << exponent,
                47.. => LIMIT as u128,
                _ => panic!("the number is not whole"),
            };
            let magnitude = i128::try_from(magnitude).unwrap_or(LIMIT).min(LIMIT);
            Some(if negative { -magnitude } else { magnitude })
        }
    }
}

/// Returns the value as f64, for functions that no format rounds exactly.
pub fn approximate(format: Format, bits: u64) -> f64 {
    f64::from_bits(encode(DOUBLE, decode(format, bits), Mode::Nearest))
}

/// Rounds an f64 to the nearest number of a format.
pub fn nearest(format: Format, value: f64) -> u64 {
    encode(format, decode(DOUBLE, value.to_bits()), Mode::Nearest)
}
