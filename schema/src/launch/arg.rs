//! The wire form of an argument: a map whose keys show its kind.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::{Arg, Dtype, Inline, Number};

const BUFFER: &str = "buffer";
const OFFSET: &str = "offset";
const BYTES: &str = "bytes";
const ALIGN: &str = "align";
const PROGRESS: &str = "progress";

impl Serialize for Arg {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = match self {
            Self::BufferAt { .. } => 2,
            Self::Bytes { align, .. } => 1 + usize::from(*align != 1),
            Self::Buffer(_) | Self::Scalar(..) | Self::Progress(_) => 1,
        };
        let mut map = serializer.serialize_map(Some(entries))?;
        match self {
            Self::Buffer(name) => map.serialize_entry(BUFFER, name)?,
            Self::BufferAt { name, offset } => {
                map.serialize_entry(BUFFER, name)?;
                map.serialize_entry(OFFSET, offset)?;
            }
            Self::Scalar(dtype, number) => map.serialize_entry(dtype.name(), number)?,
            Self::Progress(total) => map.serialize_entry(PROGRESS, total)?,
            Self::Bytes { bytes, align } => {
                map.serialize_entry(BYTES, &Inline::from(bytes.as_slice()))?;
                if *align != 1 {
                    map.serialize_entry(ALIGN, align)?;
                }
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Arg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ArgVisitor)
    }
}

struct ArgVisitor;

impl<'de> de::Visitor<'de> for ArgVisitor {
    type Value = Arg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an argument: {\"buffer\": name}, {\"buffer\": name, \"offset\": element}, {dtype: number}, \
             {\"bytes\": base64, \"align\": bytes} or {\"progress\": total}",
        )
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Arg, A::Error> {
        let (mut main, mut offset, mut align) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let is_repeated = match key.as_str() {
                OFFSET => offset.replace(map.next_value()?).is_some(),
                ALIGN => align.replace(map.next_value()?).is_some(),
                _ => main.replace(read_main(&key, &mut map)?).is_some(),
            };
            if is_repeated {
                return Err(de::Error::custom(format_args!("unexpected {key:?}; expected {}", Expected(&self))));
            }
        }
        match (main, offset, align) {
            (Some(Arg::Buffer(name)), Some(offset @ 1..), None) => Ok(Arg::BufferAt { name, offset }),
            (Some(arg @ Arg::Buffer(_)), Some(0) | None, None)
            | (Some(arg @ (Arg::Scalar(..) | Arg::Progress(_))), None, None) => Ok(arg),
            (Some(Arg::Bytes { bytes, .. }), None, align) => Ok(Arg::Bytes { bytes, align: align.unwrap_or(1) }),
            (None, ..) => Err(de::Error::invalid_length(0, &self)),
            (Some(_), ..) => Err(de::Error::custom(format_args!(
                "only a buffer takes an offset, and only bytes take an alignment; expected {}",
                Expected(&self)
            ))),
        }
    }
}

/// Reads the entry that shows the kind of the argument.
fn read_main<'de, A: de::MapAccess<'de>>(key: &str, map: &mut A) -> Result<Arg, A::Error> {
    match key {
        BUFFER => Ok(Arg::Buffer(map.next_value()?)),
        PROGRESS => Ok(Arg::Progress(map.next_value()?)),
        BYTES => {
            let inline: Inline<'_> = map.next_value()?;
            let bytes = inline.resolve(Dtype::U8).map_err(de::Error::custom)?;
            Ok(Arg::Bytes { bytes: bytes.into_owned(), align: 1 })
        }
        dtype => {
            let dtype: Dtype = dtype.parse().map_err(de::Error::custom)?;
            Ok(Arg::Scalar(dtype, map.next_value::<Number>()?))
        }
    }
}

struct Expected<'a>(&'a ArgVisitor);

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        de::Visitor::expecting(self.0, f)
    }
}
