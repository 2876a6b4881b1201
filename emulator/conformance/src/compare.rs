//! Comparison of a result with the expected one.

use std::fmt;

use crate::{
    kind::Kind,
    scalar::float::{Format, approximate},
};

/// Allowed error of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    Exact,
    /// Units in the last place.
    Ulp(u32),
    /// Maximum relative error, as a power of two.
    Relative(f64),
    /// Maximum absolute error, as a power of two.
    Absolute(f64),
}

impl Tolerance {
    pub fn parse(text: &str) -> Option<Tolerance> {
        if text == "exact" {
            return Some(Tolerance::Exact);
        }
        if let Some(number) = text.strip_suffix("ulp") {
            return number.parse().ok().map(Tolerance::Ulp);
        }
        let (name, power) = text.split_once("=2^")?;
        let power = power.parse().ok()?;
        match name {
            "relative" => Some(Tolerance::Relative(power)),
            "absolute" => Some(Tolerance::Absolute(power)),
            _ => None,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Exact => f.write_str("exact"),
            Tolerance::Ulp(ulp) => write!(f, "{ulp}ulp"),
            Tolerance::Relative(power) => write!(f, "relative=2^{power}"),
            Tolerance::Absolute(power) => write!(f, "absolute=2^{power}"),
        }
    }
}

/// The difference that a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Distance in units in the last place; for a pair the larger one. `u64::MAX` if only one value is a number.
    pub ulp: u64,
    /// True if both are NaN with different bits.
    pub payload: bool,
    pub too_far: bool,
}

/// Compares a result with the expected one. Bytes of a word in `out` that the kind does not have are ignored.
pub fn compare(kind: Kind, tolerance: Tolerance, expected: u64, got: u64) -> Difference {
    let got = got & kind.stored();
    let Some(element) = kind.element() else {
        let differs = expected != got;
        return Difference { ulp: differs.into(), payload: false, too_far: differs };
    };
    let mut worst = Difference::default();
    for lane in 0..kind.lanes() {
        let part = |bits: u64| bits >> (lane * element.bits()) & element.mask();
        let difference = compare_one(element, tolerance, part(expected), part(got));
        worst.ulp = worst.ulp.max(difference.ulp);
        worst.payload |= difference.payload;
        worst.too_far |= difference.too_far;
    }
    worst
}

fn compare_one(kind: Kind, tolerance: Tolerance, expected: u64, got: u64) -> Difference {
    let format = Format::of(kind);
    if expected == got {
        return Difference::default();
    }
    if format.is_nan(expected) && format.is_nan(got) {
        return Difference { ulp: 0, payload: true, too_far: false };
    }
    if format.is_nan(expected) || format.is_nan(got) {
        return Difference { ulp: u64::MAX, payload: false, too_far: true };
    }
    let ulp = format.place(expected).abs_diff(format.place(got));
    let (want, have) = (approximate(format, expected), approximate(format, got));
    let error = (have - want).abs();
    // The expected value itself is rounded, by up to half a unit.
    let within = |limit: f64| ulp <= 1 || error <= limit;
    let too_far = match tolerance {
        Tolerance::Exact => true,
        Tolerance::Ulp(most) => ulp > u64::from(most),
        Tolerance::Relative(power) => !within(want.abs() * power.exp2()),
        Tolerance::Absolute(power) => !within(power.exp2()),
    };
    Difference { ulp, payload: false, too_far }
}
