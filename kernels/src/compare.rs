//! Compares a result with the expected bytes, element by element.

use std::fmt;

use gpufleet_schema::Dtype;
use half::{bf16, f16};

use crate::manifest::Tolerance;

/// An expected output.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
    pub tolerance: Tolerance,
}

/// The largest differences between a correct result and the expected one, over all elements.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Difference {
    /// The difference in ulps: steps between neighbouring values of the type. For integers this is the difference
    /// itself.
    pub max_ulp: u64,
    pub max_abs: f64,
}

/// The reason why a result is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Mismatch {
    #[error("{name} has {got} bytes, expected {want}")]
    Length { name: String, want: usize, got: usize },
    /// The first wrong element.
    #[error("{name}{} is {got}, expected {want} ({ulp} ulp, {abs:e} apart)", Position(.index))]
    Element { name: String, index: Vec<u64>, want: String, got: String, ulp: u64, abs: f64 },
}

/// Compares `got` with the expected output. Returns the differences of a correct result.
pub fn compare(expected: &Expected, got: &[u8]) -> Result<Difference, Mismatch> {
    let name = || expected.name.clone();
    if got.len() != expected.bytes.len() {
        return Err(Mismatch::Length { name: name(), want: expected.bytes.len(), got: got.len() });
    }
    let size = expected.dtype.size();
    let mut difference = Difference::default();
    for (at, (want, got)) in expected.bytes.chunks_exact(size).zip(got.chunks_exact(size)).enumerate() {
        // A comparison of bits is cheap, and most elements are equal.
        if want == got {
            continue;
        }
        let (want, got) = (Element::read(expected.dtype, want), Element::read(expected.dtype, got));
        let (ulp, abs) = (want.steps_to(&got), want.distance_to(&got));
        if !expected.tolerance.allows(&want, &got) {
            let (want, got) = (want.text, got.text);
            return Err(Mismatch::Element { name: name(), index: position(&expected.shape, at), want, got, ulp, abs });
        }
        difference.max_ulp = difference.max_ulp.max(ulp);
        difference.max_abs = difference.max_abs.max(if abs.is_nan() { 0.0 } else { abs });
    }
    Ok(difference)
}

impl Tolerance {
    fn allows(&self, want: &Element, got: &Element) -> bool {
        if want.value.is_nan() || got.value.is_nan() {
            return want.value.is_nan() && got.value.is_nan();
        }
        want.steps_to(got) <= self.ulp
            // An infinity has an infinite relative tolerance, so every value would pass.
            || want.value.is_finite() && want.distance_to(got) <= self.abs + self.rel * want.value.abs()
    }
}

/// An element: its rank, its value and its text.
struct Element {
    is_integer: bool,
    /// The rank among all values of the type. Ranks of neighbours differ by one, and both zeros have the same rank.
    rank: i128,
    value: f64,
    text: String,
}

impl Element {
    fn read(dtype: Dtype, bytes: &[u8]) -> Self {
        macro_rules! int {
            ($t:ty) => {{
                let value = <$t>::from_le_bytes(exact(bytes));
                Self { is_integer: true, rank: i128::from(value), value: value as f64, text: value.to_string() }
            }};
        }
        macro_rules! float {
            ($t:ty, $bits:ty, $wide:expr) => {{
                let bits = <$bits>::from_le_bytes(exact(bytes));
                let value = <$t>::from_bits(bits);
                let sign = 1 << (<$bits>::BITS - 1);
                let magnitude = i128::from(bits & !sign);
                let rank = if bits & sign == 0 { magnitude } else { -magnitude };
                Self { is_integer: false, rank, value: $wide(value), text: value.to_string() }
            }};
        }
        match dtype {
            Dtype::Bool | Dtype::U8 => int!(u8),
            Dtype::I8 => int!(i8),
            Dtype::I16 => int!(i16),
            Dtype::I32 => int!(i32),
            Dtype::I64 => int!(i64),
            Dtype::U16 => int!(u16),
            Dtype::U32 => int!(u32),
            Dtype::U64 => int!(u64),
            Dtype::F16 => float!(f16, u16, f16::to_f64),
            Dtype::Bf16 => float!(bf16, u16, bf16::to_f64),
            Dtype::F32 => float!(f32, u32, f64::from),
            Dtype::F64 => float!(f64, u64, std::convert::identity),
        }
    }

    fn distance_to(&self, other: &Self) -> f64 {
        if self.is_integer {
            // As floats, different large integers could be equal.
            (self.rank - other.rank).unsigned_abs() as f64
        } else {
            (self.value - other.value).abs()
        }
    }

    fn steps_to(&self, other: &Self) -> u64 {
        // Two ranks of 64-bit values differ by less than 2^65.
        u64::try_from((self.rank - other.rank).unsigned_abs()).unwrap_or(u64::MAX)
    }
}

fn exact<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("chunks_exact gives chunks of the dtype's size")
}

/// Returns the index of element `at` in C order.
fn position(shape: &[u64], at: usize) -> Vec<u64> {
    let mut rest = at as u64;
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let extent = (*extent).max(1);
            let place = rest % extent;
            rest /= extent;
            place
        })
        .collect();
    index.reverse();
    index
}

/// Prints `[3, 7]`, or nothing for an array without dimensions.
struct Position<'a>(&'a [u64]);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{:?}", self.0) }
    }
}

#[cfg(test)]
mod tests;
