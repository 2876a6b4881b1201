//! The wire form of a launch: properties of the whole grid are fields of the grid.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Arg, Block, EXTENTS_MAX, Grid};
use crate::{bounds::ARGS_MAX, encoding::bounded};

/// One kernel launch. The launches of a task run in order on one stream and share its buffers.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub(super) struct Launch {
    /// A symbol of the module, or in CUDA C++ a name expression such as `kernel<float>`.
    entry: String,
    grid: WholeGrid,
    #[serde(default)]
    block: Block,
    /// Dynamic shared memory of one block, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    shared_bytes: u32,
    /// The kernel's arguments in order.
    #[serde(default, deserialize_with = "bounded::list::<_, _, ARGS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = ARGS_MAX)))]
    args: Vec<Arg>,
    /// The number of times that the kernel is launched in a row.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    repeat: u32,
}

/// An unknown property of the grid is an error, because ignoring it would give wrong results.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeGrid {
    #[serde(default, deserialize_with = "extents", skip_serializing_if = "Option::is_none")]
    cover: Option<Vec<u64>>,
    #[serde(default, deserialize_with = "extents", skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "bounded::list::<_, _, EXTENTS_MAX>", skip_serializing_if = "Vec::is_empty")]
    cluster: Vec<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    cooperative: bool,
}

fn extents<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    bounded::list::<_, _, EXTENTS_MAX>(deserializer).map(Some)
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl TryFrom<Launch> for super::Launch {
    type Error = &'static str;

    fn try_from(wire: Launch) -> Result<Self, Self::Error> {
        let Launch {
            entry,
            grid: WholeGrid { cover, blocks, cluster, cooperative },
            block,
            shared_bytes,
            args,
            repeat,
        } = wire;
        let grid = match (cover, blocks) {
            (Some(threads), None) => Grid::Cover(threads),
            (None, Some(blocks)) => Grid::Blocks(blocks),
            (None, None) => return Err("a grid needs {\"cover\": [threads, …]} or {\"blocks\": [blocks, …]}"),
            (Some(_), Some(_)) => return Err("a grid takes cover or blocks, not both"),
        };
        Ok(Self { entry, grid, block, shared_bytes, args, repeat, cooperative, cluster })
    }
}

impl From<super::Launch> for Launch {
    fn from(launch: super::Launch) -> Self {
        let super::Launch { entry, grid, block, shared_bytes, args, repeat, cooperative, cluster } = launch;
        let (cover, blocks) = match grid {
            Grid::Cover(threads) => (Some(threads), None),
            Grid::Blocks(blocks) => (None, Some(blocks)),
        };
        Self { entry, grid: WholeGrid { cover, blocks, cluster, cooperative }, block, shared_bytes, args, repeat }
    }
}

#[cfg(feature = "json-schema")]
impl schemars::JsonSchema for WholeGrid {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Grid".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let extents = |description: &str| {
            serde_json::json!({
                "description": description,
                "type": "array",
                "items": { "type": "integer", "minimum": 1 },
                "minItems": 1,
                "maxItems": EXTENTS_MAX,
            })
        };
        schemars::json_schema!({
            "description": "The number of blocks in one to three dimensions, x first: `cover` or `blocks`, and not both.",
            "type": "object",
            "properties": {
                "cover": extents("As many blocks as give at least this many threads in each dimension."),
                "blocks": extents("Exactly this many blocks."),
                "cluster": extents("Blocks of one cluster; needs compute capability 9.0."),
                "cooperative": {
                    "description": "All blocks run at once, so that they can wait for each other.",
                    "type": "boolean",
                    "default": false,
                },
            },
            "oneOf": [{ "required": ["cover"] }, { "required": ["blocks"] }],
            "additionalProperties": false,
        })
    }
}
