//! The outputs of a job.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::{
    BlobDigest, Dtype, Inline,
    bytes::{InlineVisitor, Source},
};

/// A returned buffer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Output<'a> {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    #[serde(borrow)]
    pub data: OutputData<'a>,
}

/// The bytes of an output, or the name of a blob that has them. On the wire a blob has the same form as in a task:
/// `{"blob": "blake3:…"}`.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputData<'a> {
    Inline(Inline<'a>),
    Blob(BlobDigest),
}

const BLOB: &str = "blob";

impl Output<'_> {
    pub fn into_owned(self) -> Output<'static> {
        let data = match self.data {
            OutputData::Inline(inline) => OutputData::Inline(inline.into_owned()),
            OutputData::Blob(digest) => OutputData::Blob(digest),
        };
        Output { name: self.name, dtype: self.dtype, shape: self.shape, data }
    }

    /// A copy that borrows the bytes.
    pub fn borrowed(&self) -> Output<'_> {
        let data = match &self.data {
            OutputData::Inline(inline) => OutputData::Inline(inline.borrowed()),
            OutputData::Blob(digest) => OutputData::Blob(*digest),
        };
        Output { name: self.name.clone(), dtype: self.dtype, shape: self.shape.clone(), data }
    }

    /// The number of decoded bytes in the message.
    pub fn inline_bytes(&self) -> usize {
        match &self.data {
            OutputData::Inline(inline) => inline.resolved_len(self.dtype),
            OutputData::Blob(_) => 0,
        }
    }
}

impl<'a> From<Inline<'a>> for OutputData<'a> {
    fn from(inline: Inline<'a>) -> Self {
        Self::Inline(inline)
    }
}

impl Serialize for OutputData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(inline) => inline.serialize(serializer),
            Self::Blob(digest) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(BLOB, digest)?;
                map.end()
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for OutputData<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Source::take(deserializer)?;
        source.read(OutputDataVisitor(InlineVisitor { source }))
    }
}

struct OutputDataVisitor<'a>(InlineVisitor<'a>);

impl<'de: 'a, 'a> de::Visitor<'de> for OutputDataVisitor<'a> {
    type Value = OutputData<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)?;
        f.write_str(", or a blob name")
    }

    fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<OutputData<'a>, E> {
        self.0.visit_borrowed_bytes(bytes).map(OutputData::Inline)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OutputData<'a>, E> {
        self.0.visit_str(text).map(OutputData::Inline)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<OutputData<'a>, A::Error> {
        self.0.visit_seq(seq).map(OutputData::Inline)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<OutputData<'a>, A::Error> {
        let mut digest = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                BLOB => digest = Some(map.next_value()?),
                _ => drop(map.next_value::<de::IgnoredAny>()?),
            }
        }
        digest.map(OutputData::Blob).ok_or_else(|| de::Error::missing_field(BLOB))
    }
}
