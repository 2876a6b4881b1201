//! The contents of a buffer inside a message.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::{
    Dtype, Number,
    encoding::messagepack::{Decoder, RAW},
    number::DoesNotFit,
    numbers::{List, Numbers},
};

/// Bytes in a message: MessagePack `bin`, or base64 in JSON. People may also write a plain list of numbers, which
/// becomes bytes when the buffer's dtype is known ([`Inline::resolve`], [`Inline::copy_to`]).
///
/// Decoding borrows from the message: nothing is copied but base64, which is decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Inline<'a> {
    Bytes(Cow<'a, [u8]>),
    Numbers(Numbers<'a>),
}

impl<'a> Inline<'a> {
    /// The elements as little-endian bytes of `dtype`. Check [`Inline::resolved_len`] first, because the bytes of a
    /// list of numbers can take eight times the list's size in the message.
    pub fn resolve(&self, dtype: Dtype) -> Result<Cow<'_, [u8]>, DoesNotFit> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Numbers(numbers) => {
                let mut out = Vec::with_capacity(numbers.len() * dtype.size());
                numbers.write(dtype, &mut out)?;
                Ok(Cow::Owned(out))
            }
        }
    }

    /// Copies the elements as little-endian bytes of `dtype` into `out`, which must be [`Inline::resolved_len`] bytes
    /// long.
    pub fn copy_to(&self, dtype: Dtype, out: &mut [u8]) -> Result<(), DoesNotFit> {
        match self {
            Self::Bytes(bytes) => out.copy_from_slice(bytes),
            Self::Numbers(numbers) => numbers.copy_to(dtype, out)?,
        }
        Ok(())
    }

    /// Checks that `dtype` can hold every number of a list, without allocating.
    pub fn check(&self, dtype: Dtype) -> Result<(), DoesNotFit> {
        match self {
            Self::Bytes(_) => Ok(()),
            Self::Numbers(numbers) => numbers.check(dtype),
        }
    }

    /// The length of the bytes that [`Inline::resolve`] returns.
    pub fn resolved_len(&self, dtype: Dtype) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbers(numbers) => numbers.len() * dtype.size(),
        }
    }

    /// A copy that borrows the bytes.
    pub fn borrowed(&self) -> Inline<'_> {
        match self {
            Self::Bytes(bytes) => Inline::Bytes(Cow::Borrowed(bytes)),
            Self::Numbers(numbers) => Inline::Numbers(numbers.borrowed()),
        }
    }

    pub fn into_owned(self) -> Inline<'static> {
        match self {
            Self::Bytes(bytes) => Inline::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Numbers(numbers) => Inline::Numbers(numbers.into_owned()),
        }
    }
}

impl<'a> From<&'a [u8]> for Inline<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Inline<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Cow::Owned(bytes))
    }
}

impl From<Vec<Number>> for Inline<'_> {
    fn from(numbers: Vec<Number>) -> Self {
        Self::Numbers(numbers.into())
    }
}

impl Serialize for Inline<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) if serializer.is_human_readable() => serializer.serialize_str(&STANDARD.encode(bytes)),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::Numbers(numbers) => numbers.serialize(serializer),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Inline<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Source::take(deserializer)?;
        source.read(InlineVisitor { source })
    }
}

/// A value in its encoded form. A visitor that reads it may keep this form.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    MessagePack(&'a [u8]),
    Json(&'a str),
}

impl<'a> Source<'a> {
    pub(crate) fn take<'de: 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return <&'de RawValue>::deserialize(deserializer).map(|raw| Self::Json(raw.get()));
        }
        struct Raw;
        impl<'de> de::Visitor<'de> for Raw {
            type Value = &'de [u8];

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a MessagePack value")
            }

            fn visit_borrowed_bytes<E>(self, raw: &'de [u8]) -> Result<&'de [u8], E> {
                Ok(raw)
            }
        }
        deserializer.deserialize_newtype_struct(RAW, Raw).map(Self::MessagePack)
    }

    pub(crate) fn read<V: de::Visitor<'a>, E: de::Error>(self, visitor: V) -> Result<V::Value, E> {
        match self {
            Self::MessagePack(raw) => Decoder::new(raw).deserialize_any(visitor).map_err(E::custom),
            Self::Json(raw) => serde_json::Deserializer::from_str(raw)
                .deserialize_any(visitor)
                .map_err(|problem| E::custom(unplaced(&problem))),
        }
    }
}

/// Drops the line and column, because they count from the start of the value. The decoder of the whole body adds its
/// own.
fn unplaced(problem: &serde_json::Error) -> String {
    let mut text = problem.to_string();
    let place = format!(" at line {} column {}", problem.line(), problem.column());
    if text.ends_with(&place) {
        text.truncate(text.len() - place.len());
    }
    text
}

pub(crate) struct InlineVisitor<'a> {
    pub(crate) source: Source<'a>,
}

impl<'de: 'a, 'a> de::Visitor<'de> for InlineVisitor<'a> {
    type Value = Inline<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes (base64 in JSON) or a list of numbers")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Inline<'a>, E> {
        Ok(Inline::Bytes(Cow::Borrowed(bytes)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Inline<'a>, E> {
        let bytes = STANDARD.decode(text).map_err(|source| E::custom(format_args!("invalid base64: {source}")))?;
        Ok(Inline::Bytes(Cow::Owned(bytes)))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<Inline<'a>, A::Error> {
        let list = match self.source {
            Source::MessagePack(raw) => List::MessagePack(Cow::Borrowed(raw)),
            Source::Json(raw) => List::Json(Cow::Borrowed(raw)),
        };
        Numbers::read(list, items).map(Inline::Numbers)
    }
}
