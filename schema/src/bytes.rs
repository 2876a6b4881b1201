//! The contents of a buffer inside a message.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Dtype, Number, number::DoesNotFit};

/// Bytes in a message: MessagePack `bin`, or base64 in JSON. People may also write a plain list of numbers, which becomes bytes
/// when the buffer's dtype is known ([`Inline::resolve`]).
///
/// Decoding MessagePack borrows from the message: nothing is copied.
#[derive(Debug, Clone, PartialEq)]
pub enum Inline<'a> {
    Bytes(Cow<'a, [u8]>),
    Numbers(Vec<Number>),
}

impl<'a> Inline<'a> {
    /// The elements as little-endian bytes of `dtype`.
    pub fn resolve(&self, dtype: Dtype) -> Result<Cow<'_, [u8]>, DoesNotFit> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Numbers(numbers) => {
                let mut out = Vec::with_capacity(numbers.len() * dtype.size());
                for number in numbers {
                    number.write(dtype, &mut out)?;
                }
                Ok(Cow::Owned(out))
            }
        }
    }

    /// How many bytes [`Inline::resolve`] will give, without making them.
    pub fn resolved_len(&self, dtype: Dtype) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbers(numbers) => numbers.len() * dtype.size(),
        }
    }

    /// The same, its bytes borrowed.
    pub fn borrowed(&self) -> Inline<'_> {
        match self {
            Self::Bytes(bytes) => Inline::Bytes(Cow::Borrowed(bytes)),
            Self::Numbers(numbers) => Inline::Numbers(numbers.clone()),
        }
    }

    pub fn into_owned(self) -> Inline<'static> {
        match self {
            Self::Bytes(bytes) => Inline::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Numbers(numbers) => Inline::Numbers(numbers),
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
        deserializer.deserialize_any(InlineVisitor::default())
    }
}

#[derive(Default)]
pub(crate) struct InlineVisitor<'a>(std::marker::PhantomData<&'a ()>);

impl<'de: 'a, 'a> de::Visitor<'de> for InlineVisitor<'a> {
    type Value = Inline<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes (base64 in JSON) or a list of numbers")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Inline<'a>, E> {
        Ok(Inline::Bytes(Cow::Borrowed(bytes)))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Inline<'a>, E> {
        Ok(Inline::Bytes(Cow::Owned(bytes.to_vec())))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Inline<'a>, E> {
        Ok(Inline::Bytes(Cow::Owned(bytes)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Inline<'a>, E> {
        let bytes =
            STANDARD.decode(text).map_err(|source| E::custom(format_args!("bytes are not base64: {source}")))?;
        Ok(Inline::Bytes(Cow::Owned(bytes)))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Inline<'a>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = seq.next_element()? {
            numbers.push(number);
        }
        Ok(Inline::Numbers(numbers))
    }
}
