//! 8-bit floats, which are few enough for a table of their values.

use crate::kind::Kind;

/// NaN in both formats.
const NAN: u64 = 0x7f;

/// Returns the value of a code.
pub fn decode(kind: Kind, code: u64) -> f64 {
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let (fraction_bits, bias) = if kind == Kind::E4m3x2 { (3, 7) } else { (2, 15) };
    let magnitude = code & 0x7f;
    let (field, fraction) = ((magnitude >> fraction_bits) as i32, (magnitude & ((1 << fraction_bits) - 1)) as f64);
    match (kind, magnitude) {
        (Kind::E4m3x2, 0x7f) | (Kind::E5m2x2, 0x7d..) => return f64::NAN,
        (Kind::E5m2x2, 0x7c) => return sign * f64::INFINITY,
        _ => {}
    }
    let unit = 2f64.powi(field.max(1) - bias - fraction_bits);
    let hidden = if field == 0 { 0.0 } else { 2f64.powi(fraction_bits) };
    sign * (hidden + fraction) * unit
}

/// Returns the code nearest to a value, ties to even; values that are too large become the largest number.
pub fn encode(kind: Kind, value: f64) -> u64 {
    if value.is_nan() {
        return NAN;
    }
    let largest = if kind == Kind::E4m3x2 { 0x7e } else { 0x7b };
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    let below = (0..=largest).rev().find(|code| decode(kind, *code) <= size).expect("0 is below every size");
    if below == largest {
        return sign | largest;
    }
    let middle = f64::midpoint(decode(kind, below), decode(kind, below + 1));
    let up = size > middle || size == middle && below & 1 != 0;
    sign | (below + u64::from(up))
}
