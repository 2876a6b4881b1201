//! The launch of a kernel: the grid, the block, and the arguments in order.

use serde::{Deserialize, Serialize};

use crate::{Dtype, Number, encoding::bounded};

/// Dimensions of a grid or block.
const EXTENTS_MAX: usize = 3;

mod arg;
mod wire;

/// One kernel launch. The launches of a task run in order on one stream and share its buffers.
///
/// On the wire `cooperative` and `cluster` belong to the grid: `{"blocks": [8], "cluster": [2], "cooperative": true}`.
/// So a worker that is too old for them refuses the task. It would otherwise run the launch without them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(try_from = "wire::Launch", into = "wire::Launch")]
pub struct Launch {
    /// A symbol of the module, or in CUDA C++ a name expression such as `kernel<float>`.
    pub entry: String,
    pub grid: Grid,
    pub block: Block,
    /// Dynamic shared memory of one block.
    pub shared_bytes: u32,
    pub args: Vec<Arg>,
    pub repeat: u32,
    /// All blocks run at once, so that they can wait for each other.
    pub cooperative: bool,
    /// Blocks of one cluster, in one to three dimensions, x first. If empty, the kernel's own attribute applies, if it
    /// has one.
    pub cluster: Vec<u32>,
}

impl Launch {
    /// A launch without arguments that runs once. The driver chooses the block size.
    pub fn new(entry: impl Into<String>, grid: Grid) -> Self {
        Self {
            entry: entry.into(),
            grid,
            block: Block::Auto,
            shared_bytes: 0,
            args: Vec::new(),
            repeat: 1,
            cooperative: false,
            cluster: Vec::new(),
        }
    }

    /// The number of blocks in one cluster. It is 1 for a launch without clusters.
    pub fn cluster_blocks(&self) -> u64 {
        self.cluster.iter().map(|extent| u64::from(*extent)).product()
    }
}

/// Whether an entry is a symbol of the module, in PTX's form of names. Every other entry is a C++ name expression.
pub fn is_symbol(entry: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%');
    entry.bytes().next().is_some_and(is_letter) && entry.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
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
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// The driver's occupancy calculator chooses the block.
    #[default]
    Auto,
    Threads(#[serde(deserialize_with = "bounded::list::<_, _, EXTENTS_MAX>")] Vec<u32>),
}

/// One kernel argument. As JSON:
///
/// | argument | |
/// | --- | --- |
/// | `{"buffer": "x"}` | the device address of a buffer |
/// | `{"buffer": "x", "offset": 16}` | the address of its element 16 |
/// | `{"f32": 2.0}` | a scalar of that type |
/// | `{"bytes": "AACAPwIAAAA=", "align": 4}` | a structure by value: its bytes as the device lays them out (`bin` in MessagePack), and its alignment |
/// | `{"progress": 20000}` | the address of a counter, a `u64` that is zero at first and 20000 when all work is done |
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    Buffer(String),
    /// `offset` counts elements of the buffer's type.
    BufferAt {
        name: String,
        offset: u64,
    },
    Scalar(Dtype, Number),
    Bytes {
        bytes: Vec<u8>,
        align: u32,
    },
    /// The kernels increment the counter with `atomicAdd`, and the worker reads it while they run. A job has one counter, whose value
    /// at the end of all work is this total. Old workers refuse it.
    Progress(u64),
}
