//! How a kernel is launched: the grid, the block, and its arguments in order.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::{Dtype, Number, bounds::ARGS_MAX, encoding::bounded};

/// Dimensions of a grid or block.
const EXTENTS_MAX: usize = 3;

/// One kernel launch. The launches of a task run in order on one stream and share its buffers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub entry: String,
    pub grid: Grid,
    #[serde(default)]
    pub block: Block,
    /// Dynamic shared memory of one block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_bytes: u32,
    #[serde(default, deserialize_with = "bounded::list::<_, _, ARGS_MAX>")]
    pub args: Vec<Arg>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(value: &u32) -> bool {
    *value == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The number of blocks, in one to three dimensions, x first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grid {
    /// As many blocks as give at least this many threads in each dimension.
    Cover(#[serde(deserialize_with = "bounded::list::<_, _, EXTENTS_MAX>")] Vec<u64>),
    Blocks(#[serde(deserialize_with = "bounded::list::<_, _, EXTENTS_MAX>")] Vec<u32>),
}

/// The number of threads in a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// By the driver's occupancy calculator.
    #[default]
    Auto,
    Threads(#[serde(deserialize_with = "bounded::list::<_, _, EXTENTS_MAX>")] Vec<u32>),
}

/// One kernel argument: `{"buffer": "x"}` or a typed scalar such as `{"f32": 2.0}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// The device address of a buffer, by its name.
    Buffer(String),
    Scalar(Dtype, Number),
}

impl Serialize for Arg {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Buffer(name) => map.serialize_entry("buffer", name)?,
            Self::Scalar(dtype, number) => map.serialize_entry(dtype.name(), number)?,
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Arg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneEntry;
        impl<'de> de::Visitor<'de> for OneEntry {
            type Value = Arg;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an argument: {\"buffer\": name} or {dtype: number}")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Arg, A::Error> {
                let key: String = map.next_key()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                let arg = if key == "buffer" {
                    Arg::Buffer(map.next_value()?)
                } else {
                    Arg::Scalar(key.parse().map_err(de::Error::custom)?, map.next_value()?)
                };
                match map.next_key::<de::IgnoredAny>()? {
                    None => Ok(arg),
                    Some(_) => Err(de::Error::invalid_length(2, &self)),
                }
            }
        }
        deserializer.deserialize_map(OneEntry)
    }
}
