//! A number as a person writes it, before a dtype determines its bytes.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Dtype;

/// An integer, a float or a boolean. JSON has no word for the special floats: they are the strings `"NaN"`,
/// `"Infinity"` and `"-Infinity"` there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Signed(i64),
    /// Only for integers that do not fit [`Number::Signed`], so that equal numbers compare equal.
    Unsigned(u64),
    Float(f64),
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
    /// are accepted and numbers are rounded to the nearest float.
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
            Dtype::F16 => out.extend(f16::from_f64(self.float()).to_le_bytes()),
            Dtype::Bf16 => out.extend(bf16::from_f64(self.float()).to_le_bytes()),
            Dtype::F32 => out.extend((self.float() as f32).to_le_bytes()),
            Dtype::F64 => out.extend(self.float().to_le_bytes()),
        }
        Ok(())
    }

    /// The number as an integer, if it is one (`3.0` is).
    pub fn integer(self) -> Option<i128> {
        match self {
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            Self::Bool(value) => Some(value.into()),
            // Beyond 2^53 several integers have the same float.
            Self::Float(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => Some(value as i128),
            Self::Float(_) => None,
        }
    }

    pub fn float(self) -> f64 {
        match self {
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Float(value) => value,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
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
            return Ok(Self::Signed(value));
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
            _ => text.parse().map(Self::Float).map_err(|_| NotANumber(text.chars().take(32).collect())),
        }
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
            Self::Float(value) => serializer.serialize_f64(value),
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

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl de::Visitor<'_> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a boolean, \"NaN\", \"Infinity\" or \"-Infinity\"")
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
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Any)
    }
}
