//! Instructions that reach memory.

use crate::ptx::types::Type;
use crate::simt::access::AccessRun;

/// Bases of the windows that generic addresses name other spaces by. No host address lies there, since all have
/// their upper bits clear.
pub const WINDOW_BITS: u32 = 60;
pub const SHARED_WINDOW: u64 = 1 << WINDOW_BITS;
pub const LOCAL_WINDOW: u64 = 2 << WINDOW_BITS;
pub const PARAM_WINDOW: u64 = 3 << WINDOW_BITS;
/// Function `n` has the address `FUNCTION_WINDOW + n * FUNCTION_STRIDE`.
pub const FUNCTION_WINDOW: u64 = 4 << WINDOW_BITS;
pub const FUNCTION_STRIDE: u64 = 16;

/// Addresses of a stretch that are remembered.
pub const REMEMBERED_MAX: usize = 8;

/// Which memory an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// A plane of 64 bits, where `wide`, or of 32.
    pub slot: u32,
    pub wide: bool,
    /// What a word is the index of, where it is no address by itself.
    pub index: Option<Index>,
    pub offset: i64,
    pub reach: Reach,
    /// Whether the instruction writes there.
    pub writes: bool,
    /// Index of this instruction's cache.
    pub cache: u32,
}

/// `base[index]`: an index is extended to 64 bits, multiplied, and added to what a plane of 64 bits holds in all lanes.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub base: u32,
    /// A positive number of the index's own type.
    pub factor: u32,
    pub signed: bool,
}

/// Whether an access is by an address whose pattern is known, or will be wanted again: by a number in a stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The access goes lane by lane.
    Never,
    No,
    First(u8),
    Again(u8),
}

#[derive(Debug)]
pub struct Access {
    pub address: Address,
    /// Volatile, or with a memory order stronger than weak: atomic by the element for the host's other threads.
    pub ordered: bool,
    pub repeat: Repeat,
    pub slots: [u32; 4],
    pub run: AccessRun,
}

#[derive(Debug)]
pub struct Atomic {
    pub address: Address,
    pub function: AtomicFunction,
    /// The type of an element; that of a half where `quad`.
    pub ty: Type,
    /// Elements side by side, each atomic by itself.
    pub count: usize,
    /// 128 bits at once, in two registers of 64.
    pub quad: bool,
    pub d: [u32; ELEMENTS_MAX],
    pub b: [u32; ELEMENTS_MAX],
    /// What compare-and-swap writes.
    pub c: [u32; 2],
}

/// Elements of one atomic operation at most.
pub const ELEMENTS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicFunction {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Min,
    Max,
    Increment,
    Decrement,
    /// Of 128 bits alone: smaller loads and stores are whole by themselves.
    Load,
    Store,
}

#[derive(Debug)]
pub struct CopyAsync {
    pub target: Address,
    pub source: Address,
    pub bytes: u32,
    /// What is read where fewer bytes than are written; the rest is zero.
    pub part: Option<Part>,
}

/// A copy between global and shared memory, or inside shared memory.
#[derive(Debug)]
pub struct CopyBulk {
    pub target: Address,
    pub source: Address,
    /// The slot of the bytes that a lane copies.
    pub bytes: u32,
}

/// What addresses and sizes of bulk copies are multiples of.
pub const BULK_ALIGN: u32 = 16;

/// What lanes access of the bytes that an operation is for.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// So many bytes as the lane's word in this slot says, or all.
    Length(u32),
    /// All bytes, or none where a predicate holds, or does not where it is negated.
    Unless(u32, bool),
    /// So many bytes as the lane's word in this slot says, aligned as bulk copies are.
    Bulk(u32),
}

/// An access of memory, for those who watch it.
#[derive(Debug)]
pub struct Check {
    pub address: Address,
    pub bytes: u32,
    pub part: Option<Part>,
    pub kinds: Kinds,
    /// The slots of a store's values, where they are known, and whether they are planes of 64 bits.
    pub values: Option<(Vec<u32>, bool)>,
}

/// What an access does.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    pub reads: bool,
    pub writes: bool,
    /// Atomic, or volatile, relaxed, acquiring or releasing: not in a race with others of this kind.
    pub strong: bool,
}
