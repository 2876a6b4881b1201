//! A number as a person writes it, before a dtype determines its bytes.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::Dtype;

mod decimal;
mod rounding;

use rounding::Exact;

/// An integer, a float or a boolean. JSON has no word for the special floats: they are the strings `"NaN"`,
/// `"Infinity"` and `"-Infinity"` there. A string may also have the digits of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Signed(i64),
    /// Only for integers that do not fit [`Number::Signed`], so that equal numbers compare equal.
    Unsigned(u64),
    Float(f64),
    /// A decimal beside the midpoint of two floats of fewer bits: its nearest float, and whether the decimal is less or greater. It is
    /// rounded from its own value, not from that float.
    Decimal(f64, Ordering),
    Bool(bool),
}

/// A number that the dtype can't hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{number} does not fit {dtype}")]
pub struct DoesNotFit {
    number: Number,
    dtype: Dtype,
}

impl Number {
    /// Appends the little-endian bytes of this number as `dtype`. Integers must be exact. For a float dtype, integers
    /// are accepted and numbers are rounded once, to the nearest float. A finite number that would become infinite does not fit.
    pub fn write(self, dtype: Dtype, out: &mut Vec<u8>) -> Result<(), DoesNotFit> {
        let misfit = || DoesNotFit { number: self, dtype };
        macro_rules! int {
            ($t:ty) => {
                out.extend(<$t>::try_from(self.integer().ok_or_else(misfit)?).map_err(|_| misfit())?.to_le_bytes())
            };
        }
        match dtype {
            Dtype::Bool => match self.integer().ok_or_else(misfit)? {
                bit @ (0 | 1) => out.push(bit as u8),
                _ => return Err(misfit()),
            },
            Dtype::I8 => int!(i8),
            Dtype::I16 => int!(i16),
            Dtype::I32 => int!(i32),
            Dtype::I64 => int!(i64),
            Dtype::U8 => int!(u8),
            Dtype::U16 => int!(u16),
            Dtype::U32 => int!(u32),
            Dtype::U64 => int!(u64),
            Dtype::F16 => out.extend(self.finite(dtype, self.exact().f16())?.to_le_bytes()),
            Dtype::Bf16 => out.extend(self.finite(dtype, self.exact().bf16())?.to_le_bytes()),
            Dtype::F32 => out.extend(self.finite(dtype, self.exact().f32())?.to_le_bytes()),
            Dtype::F64 => out.extend(self.float().to_le_bytes()),
        }
        Ok(())
    }

    /// The rounded number, unless the range of the dtype is too small.
    fn finite<T: Copy + Into<f64>>(self, dtype: Dtype, rounded: T) -> Result<T, DoesNotFit> {
        let fits = rounded.into().is_finite() || !self.float().is_finite();
        if fits { Ok(rounded) } else { Err(DoesNotFit { number: self, dtype }) }
    }

    /// Returns the number in a form that every encoding keeps: a decimal rounded to the dtype, and any other number unchanged.
    #[must_use]
    pub fn rounded(self, dtype: Dtype) -> Self {
        let Self::Decimal(nearest, _) = self else { return self };
        Self::Float(match dtype {
            Dtype::F16 => self.exact().f16().into(),
            Dtype::Bf16 => self.exact().bf16().into(),
            Dtype::F32 => self.exact().f32().into(),
            _ => nearest,
        })
    }

    fn exact(self) -> Exact {
        let beside = |value: i128| {
            let nearest = value as f64;
            Exact { nearest, side: value.cmp(&(nearest as i128)) }
        };
        match self {
            Self::Signed(value) => beside(value.into()),
            Self::Unsigned(value) => beside(value.into()),
            Self::Decimal(nearest, side) => Exact { nearest, side },
            Self::Float(_) | Self::Bool(_) => Exact { nearest: self.float(), side: Ordering::Equal },
        }
    }

    /// The number as an integer, if it is one (`3.0` is).
    pub fn integer(self) -> Option<i128> {
        match self {
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            Self::Bool(value) => Some(value.into()),
            // Beyond 2^53 several integers have the same float.
            Self::Float(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => Some(value as i128),
            Self::Float(_) | Self::Decimal(..) => None,
        }
    }

    pub fn float(self) -> f64 {
        match self {
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Float(value) | Self::Decimal(value, _) => value,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Float(value) | Self::Decimal(value, _) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Self {
        Self::Signed(value.into())
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Signed(value.into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Unsigned(value), Self::Signed)
    }
}

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// A text that is not a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number")]
pub struct NotANumber(String);

impl std::str::FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        let text = text.trim();
        if let Ok(value) = text.parse::<i64>() {
            // Only floats have a negative zero.
            return Ok(if value == 0 && text.starts_with('-') { Self::Float(-0.0) } else { Self::Signed(value) });
        }
        if let Ok(value) = text.parse::<u64>() {
            return Ok(value.into());
        }
        if let Some(hex) = text.strip_prefix("0x")
            && let Ok(value) = u64::from_str_radix(hex, 16)
        {
            return Ok(value.into());
        }
        match text {
            "true" => Ok(Self::Bool(true)),
            "false" => Ok(Self::Bool(false)),
            _ => Self::of_float(text).ok_or_else(|| NotANumber(text.chars().take(32).collect())),
        }
    }
}

impl Number {
    fn of_float(text: &str) -> Option<Self> {
        let nearest: f64 = text.parse().ok()?;
        Some(match decimal::side(text, nearest) {
            Ordering::Equal => Self::Float(nearest),
            side => Self::Decimal(nearest, side),
        })
    }

    /// The number that JSON text shows.
    pub(crate) fn of_json(text: &str) -> Option<Self> {
        match text.trim() {
            "\"NaN\"" => Some(f64::NAN.into()),
            "\"Infinity\"" => Some(f64::INFINITY.into()),
            "\"-Infinity\"" => Some(f64::NEG_INFINITY.into()),
            text => {
                let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                match text {
                    "true" => Some(true.into()),
                    "false" => Some(false.into()),
                    _ => Self::of_digits(quoted.unwrap_or(text)),
                }
            }
        }
    }

    /// A number beyond the range of floats is none.
    fn of_digits(text: &str) -> Option<Self> {
        let is_decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
        let number: Self = text.parse().ok().filter(|_| text.chars().all(is_decimal))?;
        Some(number).filter(|number| number.float().is_finite())
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Signed(value) => serializer.serialize_i64(value),
            Self::Unsigned(value) => serializer.serialize_u64(value),
            Self::Bool(value) => serializer.serialize_bool(value),
            Self::Float(value) if serializer.is_human_readable() && !value.is_finite() => {
                serializer.serialize_str(special_name(value))
            }
            Self::Float(value) | Self::Decimal(value, _) => serializer.serialize_f64(value),
        }
    }
}

fn special_name(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

const EXPECTED: &str = "a number, a boolean, \"NaN\", \"Infinity\" or \"-Infinity\"";

/// From JSON, a number is read by its digits. Other text formats are read with [`Number::nearest`].
impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Self::nearest(deserializer);
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::of_json(text.get()).ok_or_else(|| {
            let shown: String = text.get().chars().take(32).collect();
            de::Error::invalid_value(de::Unexpected::Other(&shown), &EXPECTED)
        })
    }
}

impl Number {
    /// Reads a number as the format's library gives it: a float is the nearest one of 64 bits.
    pub fn nearest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl de::Visitor<'_> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Number, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(value.into())
            }

            fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
                Ok(value.into())
            }

            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(value.into())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                match text {
                    "NaN" => Ok(f64::NAN.into()),
                    "Infinity" => Ok(f64::INFINITY.into()),
                    "-Infinity" => Ok(f64::NEG_INFINITY.into()),
                    _ => Number::of_digits(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: Number, dtype: Dtype) -> Result<Vec<u8>, DoesNotFit> {
        let mut bytes = Vec::new();
        number.write(dtype, &mut bytes).map(|()| bytes)
    }

    /// The number from the command line, from JSON, and from JSON as a string.
    fn read(text: &str) -> [Number; 3] {
        let of_json = |json: &str| serde_json::from_str::<Number>(json).unwrap();
        [text.parse().unwrap(), of_json(text), of_json(&format!("{text:?}"))]
    }

    #[test]
    fn a_decimal_is_rounded_once_wherever_it_comes_from() {
        for number in read("1.00000017881393432617187499") {
            assert_eq!(bytes(number, Dtype::F32).unwrap(), 0x3f80_0001_u32.to_le_bytes());
            assert_eq!(bytes(number, Dtype::F64).unwrap(), (1.0 + 3.0 * 2_f64.powi(-24)).to_le_bytes());
            let sent = rmp_serde::to_vec(&number.rounded(Dtype::F32)).unwrap();
            let received: Number = rmp_serde::from_slice(&sent).unwrap();
            assert_eq!(bytes(received, Dtype::F32).unwrap(), 0x3f80_0001_u32.to_le_bytes());
        }
        for number in read("65519.99999999999999999999") {
            assert_eq!(bytes(number, Dtype::F16).unwrap(), half::f16::MAX.to_le_bytes());
        }
        let list: crate::Inline<'_> = serde_json::from_str("[1.00000017881393432617187499, 0.1]").unwrap();
        assert_eq!(list.resolve(Dtype::F32).unwrap()[..4], 0x3f80_0001_u32.to_le_bytes());
    }

    #[test]
    fn a_finite_number_out_of_range_does_not_fit() {
        for (text, dtype) in
            [("1e39", Dtype::F32), ("-1e39", Dtype::F32), ("65520", Dtype::F16), ("3.4e38", Dtype::Bf16)]
        {
            for number in read(text) {
                let refused = bytes(number, dtype).unwrap_err();
                assert!(refused.to_string().ends_with(&format!("does not fit {dtype}")), "{refused}");
            }
        }
        assert!(bytes(f64::INFINITY.into(), Dtype::F32).is_ok() && bytes(f64::NAN.into(), Dtype::F16).is_ok());
        assert_eq!(bytes("65504".parse().unwrap(), Dtype::F16).unwrap(), half::f16::MAX.to_le_bytes());
    }

    #[test]
    fn an_integer_is_rounded_once() {
        // 2^55 + 2^47 is the middle of two floats of 16 bits, and 64 bits can't hold the one beyond it.
        let beside: Number = "36169534507319297".parse().unwrap();
        let up = half::bf16::from_f64(36_310_271_995_674_624.0);
        assert_eq!(bytes(beside, Dtype::Bf16).unwrap(), up.to_le_bytes());
    }

    #[test]
    fn json_that_is_no_number_is_refused() {
        for json in ["1e400", "\"1e400\"", "\"0x10\"", "\"inf\"", "\"\"", "\"true\"", "null", "[1]", "{}", "\"a\""] {
            assert!(serde_json::from_str::<Number>(json).is_err(), "{json}");
        }
        for text in ["-0", "-0.0"] {
            let number: Number = text.parse().unwrap();
            assert_eq!(bytes(number, Dtype::F32).unwrap(), (-0.0_f32).to_le_bytes(), "{text}");
            assert_eq!(bytes(number, Dtype::I32).unwrap(), [0; 4], "{text}");
        }
    }
}
