//! A launch as it is written: what concerns all blocks together stands in the grid.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Arg, Block, EXTENTS_MAX, Grid};
use crate::{bounds::ARGS_MAX, encoding::bounded};

#[derive(Serialize, Deserialize)]
pub(super) struct Launch {
    entry: String,
    grid: WholeGrid,
    #[serde(default)]
    block: Block,
    #[serde(default, skip_serializing_if = "is_zero")]
    shared_bytes: u32,
    #[serde(default, deserialize_with = "bounded::list::<_, _, ARGS_MAX>")]
    args: Vec<Arg>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    repeat: u32,
}

/// A property of the grid that is not known can't be left out: results would be wrong without a word.
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
