//! Compares the digits of a decimal with the float that is nearest to it.

use std::cmp::Ordering;

/// The last bits of a float. Only a float whose last bits are zero can be the midpoint of two floats of fewer bits.
const LOW_BITS: u64 = (1 << 28) - 1;

/// Whether the decimal is less than its nearest float, equal to it or greater. It counts as equal where that makes no difference for a
/// float of fewer bits.
pub(super) fn side(text: &str, nearest: f64) -> Ordering {
    if !nearest.is_finite() || nearest.to_bits() & LOW_BITS != 0 {
        return Ordering::Equal;
    }
    let magnitude = Digits::of(text).cmp(&Digits::of_float(nearest));
    if nearest.is_sign_negative() { magnitude.reverse() } else { magnitude }
}

/// The digits of a number that is not negative: 0.DIGITS × 10^point, without zeros at the ends.
#[derive(Debug, PartialEq, Eq)]
struct Digits {
    digits: Vec<u8>,
    point: i64,
}

impl Digits {
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        // An exponent beyond 64 bits has the effect of the largest one.
        let limit = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
        let exponent = exponent.parse().unwrap_or(limit).clamp(i64::MIN / 2, i64::MAX / 2);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).collect::<Vec<u8>>();
        let whole = digits(whole);
        let point = whole.len() as i64 + exponent;
        let all = [whole, digits(fraction)].concat();
        let zeros = all.iter().take_while(|digit| **digit == b'0').count();
        let end = all.iter().rposition(|digit| *digit != b'0').map_or(zeros, |last| last + 1);
        Self { digits: all[zeros..end].to_vec(), point: point - zeros as i64 }
    }

    /// All digits of a float, of which the decimal of a binary fraction has finitely many.
    fn of_float(float: f64) -> Self {
        let bits = float.to_bits();
        let (exponent, mantissa) = ((bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
        let last_bit = exponent.max(1) - 1075 + i64::from(if mantissa == 0 { 52 } else { mantissa.trailing_zeros() });
        let places = usize::try_from(-last_bit).unwrap_or(0);
        Self::of(&format!("{:.places$}", float.abs()))
    }
}

impl Ord for Digits {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits)),
            (is_zero, other_is_zero) => other_is_zero.cmp(&is_zero),
        }
    }
}

impl PartialOrd for Digits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Ordering {
        side(text, text.parse().unwrap())
    }

    #[test]
    fn a_decimal_is_compared_to_its_last_digit() {
        assert_eq!(of("1.00000017881393432617187499"), Ordering::Less);
        assert_eq!(of("1.000000178813934326171875"), Ordering::Equal);
        assert_eq!(of("1.00000017881393432617187500000000000000001"), Ordering::Greater);
        assert_eq!(of("-1.00000017881393432617187499"), Ordering::Greater);
        assert_eq!(of("65519.99999999999999999999"), Ordering::Less);
        assert_eq!(of("0.6551999999999999999999999e+5"), Ordering::Less);
        for exact in ["1.5", "0.5e1", "-2.50", "1e3", "000.25", "0.0", "1e22", "9007199254740992"] {
            assert_eq!(of(exact), Ordering::Equal, "{exact}");
        }
        assert_eq!(of("1e-400"), Ordering::Greater, "the nearest float is 0");
        assert_eq!(of("1e-99999999999999999999"), Ordering::Greater);
    }

    #[test]
    fn all_digits_of_a_float_are_compared() {
        for float in [5e-324_f64 * f64::from(1 << 30), 2_f64.powi(-1022), 2_f64.powi(1000), 1.25] {
            let text = format!("{float:.1074}");
            assert_eq!(side(&text, float), Ordering::Equal, "{float:e}");
            assert_eq!(side(&(text + "1"), float), Ordering::Greater, "{float:e}");
        }
    }
}
