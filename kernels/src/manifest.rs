//! The manifest of a kernel. `<name>.toml` is deserialized into the types of this module; [`crate::resolve()`] applies
//! them to a task.
//!
//! ```toml
//! name = "saxpy"
//! summary = "y ← a·x + y"
//! formula = "y[i] = a·x[i] + y[i]"   # for the reference; one or more lines
//! elementwise = true              # optional: element i of each output depends on the elements i of the inputs alone
//!
//! [[scalars]]                     # named arguments; unsigned ones are also symbols for the expressions below
//! name = "a"
//! dtype = "f32"                   # optional: default, description
//!
//! [[buffers]]
//! name = "x"
//! role = "in"                     # in | inout | out | scratch; outs and scratch are made of zeros where the task has none
//! dtype = "f32"
//! shape = ["n"]                   # a bare symbol of an in or inout buffer is bound by the shape that was given
//!
//! [[launches]]                    # in order, on one stream
//! entry = "saxpy"
//! cover = ["n"]                   # threads wanted in x, y, z; or blocks = [...]
//! block = [256]                   # or "auto"; optional: shared_bytes
//! args = ["a", "x", "y", { u64 = "n" }]
//!
//! [[constraints]]                 # what must hold beyond shapes
//! field = "buffers.filter.shape"
//! value = "filter_height % 2"
//! equals = 1                      # or at_least, at_most
//! because = "the filter needs a centre"
//!
//! [tolerance.y]                   # how far a right result may be from the reference; without it none
//! ulp = 1                         # or abs, rel
//! ```

use std::{collections::BTreeMap, fmt};

use gpufleet_schema::{Block, Dtype, Number};
use serde::Deserialize;

use crate::expression::Expression;

/// A manifest in the form of its file, before it is checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub name: String,
    pub summary: String,
    pub formula: String,
    #[serde(default)]
    pub elementwise: bool,
    #[serde(default)]
    pub scalars: Vec<ScalarSpec>,
    pub buffers: Vec<BufferSpec>,
    pub launches: Vec<LaunchSpec>,
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    #[serde(default)]
    pub tolerance: BTreeMap<String, Tolerance>,
}

/// A scalar that a task gives by name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalarSpec {
    pub name: String,
    pub dtype: Dtype,
    /// The value if the task gives none. If there is no default, the task must give a value.
    #[serde(default, deserialize_with = "nearest")]
    pub default: Option<Number>,
    #[serde(default)]
    pub description: Option<String>,
}

fn nearest<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Number>, D::Error> {
    Number::nearest(deserializer).map(Some)
}

/// A buffer of the kernel.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    pub name: String,
    pub role: Role,
    pub dtype: Dtype,
    /// The extent of each dimension, slowest first.
    pub shape: Vec<Expression>,
    #[serde(default)]
    pub description: Option<String>,
}

/// How the kernel uses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The kernel reads it. The task must give it.
    In,
    /// The kernel reads and writes it. The task must give it, and the reply returns it.
    Inout,
    /// The kernel writes it. It starts as zeros, and the reply returns it.
    Out,
    /// The kernel uses it for intermediate values. It starts as zeros and is not returned.
    Scratch,
}

/// A kernel launch, with expressions in place of sizes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "LaunchText")]
pub struct LaunchSpec {
    pub entry: String,
    pub grid: GridRule,
    pub block: Block,
    pub shared_bytes: Option<Expression>,
    pub args: Vec<ArgRule>,
}

/// A grid: [`gpufleet_schema::Grid`] with expressions in place of sizes.
#[derive(Debug, Clone, PartialEq)]
pub enum GridRule {
    Cover(Vec<Expression>),
    Blocks(Vec<Expression>),
}

/// A kernel parameter: a buffer or scalar by its name, or a value computed from the sizes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "ArgText")]
pub enum ArgRule {
    Named(String),
    Computed(Dtype, Expression),
}

/// A condition on a task's sizes and scalars.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// The field of the task that is invalid if the condition is not met.
    pub field: String,
    pub value: Expression,
    #[serde(default)]
    pub equals: Option<Expression>,
    #[serde(default)]
    pub at_least: Option<Expression>,
    #[serde(default)]
    pub at_most: Option<Expression>,
    pub because: String,
}

/// The allowed difference between a result and the reference. An element is correct if it is within `ulp` steps of its
/// type, or within `abs + rel·|expected|`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tolerance {
    pub ulp: u64,
    pub abs: f64,
    pub rel: f64,
}

impl Role {
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Inout => "inout",
            Self::Out => "out",
            Self::Scratch => "scratch",
        }
    }

    /// Returns whether the task must give the buffer.
    pub const fn is_given(self) -> bool {
        matches!(self, Self::In | Self::Inout)
    }

    /// Returns whether the reply returns the buffer.
    pub const fn is_returned(self) -> bool {
        matches!(self, Self::Inout | Self::Out)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ScalarSpec {
    /// Returns whether expressions may name the scalar. They may if it is unsigned, because then it is a size.
    pub const fn is_symbol(&self) -> bool {
        matches!(self.dtype, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64)
    }
}

/// Prints `a: f32`, or `width: u32 = 1024`.
impl fmt::Display for ScalarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.dtype)?;
        self.default.map_or(Ok(()), |default| write!(f, " = {default}"))
    }
}

impl BufferSpec {
    /// Returns the dtype and the shape: `f32[m, k]`.
    pub fn form(&self) -> String {
        let extents: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        format!("{}[{}]", self.dtype, extents.join(", "))
    }
}

/// Prints `x: in f32[n]`.
impl fmt::Display for BufferSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.name, self.role, self.form())
    }
}

impl GridRule {
    pub fn extents(&self) -> &[Expression] {
        match self {
            Self::Cover(extents) | Self::Blocks(extents) => extents,
        }
    }
}

impl Constraint {
    /// Returns the comparisons that the constraint makes.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = (Comparison, &Expression)> {
        [(Comparison::Equals, &self.equals), (Comparison::AtLeast, &self.at_least), (Comparison::AtMost, &self.at_most)]
            .into_iter()
            .filter_map(|(comparison, bound)| bound.as_ref().map(|bound| (comparison, bound)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equals,
    AtLeast,
    AtMost,
}

impl Comparison {
    pub(crate) fn holds(self, value: u64, bound: u64) -> bool {
        match self {
            Self::Equals => value == bound,
            Self::AtLeast => value >= bound,
            Self::AtMost => value <= bound,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchText {
    entry: String,
    cover: Option<Vec<Expression>>,
    blocks: Option<Vec<Expression>>,
    block: BlockText,
    shared_bytes: Option<Expression>,
    args: Vec<ArgRule>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BlockText {
    Word(String),
    Threads(Vec<u32>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ArgText {
    Named(String),
    Computed(BTreeMap<Dtype, Expression>),
}

impl TryFrom<LaunchText> for LaunchSpec {
    type Error = &'static str;

    fn try_from(text: LaunchText) -> Result<Self, Self::Error> {
        let grid = match (text.cover, text.blocks) {
            (Some(extents), None) => GridRule::Cover(extents),
            (None, Some(extents)) => GridRule::Blocks(extents),
            _ => return Err("a launch needs either cover or blocks"),
        };
        let block = match text.block {
            BlockText::Threads(threads) => Block::Threads(threads),
            BlockText::Word(word) if word == "auto" => Block::Auto,
            BlockText::Word(_) => return Err("block must be \"auto\" or a list of thread counts"),
        };
        Ok(Self { entry: text.entry, grid, block, shared_bytes: text.shared_bytes, args: text.args })
    }
}

impl TryFrom<ArgText> for ArgRule {
    type Error = &'static str;

    fn try_from(text: ArgText) -> Result<Self, Self::Error> {
        match text {
            ArgText::Named(name) => Ok(Self::Named(name)),
            ArgText::Computed(map) => match <[(Dtype, Expression); 1]>::try_from(map.into_iter().collect::<Vec<_>>()) {
                Ok([(dtype, expression)]) => Ok(Self::Computed(dtype, expression)),
                Err(_) => Err("a computed argument must be one { dtype = expression }"),
            },
        }
    }
}
