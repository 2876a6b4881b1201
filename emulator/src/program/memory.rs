//! Instructions that access memory.

use crate::ptx::types::Type;

/// Windows of the generic address space (PTX ISA, "Generic Addressing"): base addresses of shared, local and parameter
/// memory. No host address is in a window, because host addresses have their upper bits clear.
pub const WINDOW_BITS: u32 = 60;
pub const SHARED_WINDOW: u64 = 1 << WINDOW_BITS;
pub const LOCAL_WINDOW: u64 = 2 << WINDOW_BITS;
pub const PARAM_WINDOW: u64 = 3 << WINDOW_BITS;
/// Base of the addresses of functions: function `n` has the address `FUNCTION_WINDOW + n * FUNCTION_STRIDE`.
pub const FUNCTION_WINDOW: u64 = 4 << WINDOW_BITS;
pub const FUNCTION_STRIDE: u64 = 16;

/// Maximum number of address registers in a stretch of code whose patterns are remembered; see [`Repeat`].
pub const REMEMBERED_MAX: usize = 8;

/// The state space that an address names.
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
    /// Slot of the address: a 64-bit plane if `wide`, a 32-bit one otherwise.
    pub slot: u32,
    pub wide: bool,
    /// Turns the word in `slot` into an address, if it is an index and not an address.
    pub index: Option<Index>,
    pub offset: i64,
    pub reach: Reach,
    /// True if the instruction writes there.
    pub writes: bool,
    /// Index of the instruction's cache.
    pub cache: u32,
}

/// `base[index]`: the index is extended to 64 bits, multiplied, and added to the 64-bit base, which is equal in all
/// lanes.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub base: u32,
    /// Factor, a positive number of the index's own type.
    pub factor: u32,
    pub signed: bool,
}

/// How an access finds the pattern of its warp's addresses: the lanes may reach evenly spaced elements. Accesses of a
/// stretch of code that use one address register share a pattern, which has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Accesses lane by lane, without a pattern.
    Never,
    /// Looks for the pattern, for this access only.
    No,
    /// Looks for the pattern and stores it under this number.
    First(u8),
    /// Uses the pattern that an earlier access stored under this number.
    Again(u8),
}

#[derive(Debug)]
pub struct Atomic {
    pub address: Address,
    pub function: AtomicFunction,
    /// Type of an element; of one half if `quad`.
    pub ty: Type,
    /// Number of adjacent elements, each atomic by itself.
    pub count: usize,
    /// True for a 128-bit operation on two 64-bit registers.
    pub quad: bool,
    pub d: [u32; ELEMENTS_MAX],
    pub b: [u32; ELEMENTS_MAX],
    /// Slots of the value that compare-and-swap writes.
    pub c: [u32; 2],
}

/// Maximum elements of one atomic operation.
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
    /// 128-bit load or store; smaller loads and stores are atomic anyway.
    Load,
    Store,
}

#[derive(Debug)]
pub struct CopyAsync {
    pub target: Address,
    pub source: Address,
    pub bytes: u32,
    /// Limits the bytes that are read, if fewer are read than written; the rest is zero.
    pub part: Option<Part>,
}

/// `cp.async.bulk`: a copy between global and shared memory, or inside shared memory.
#[derive(Debug)]
pub struct CopyBulk {
    pub target: Address,
    pub source: Address,
    /// Slot of the number of bytes that a lane copies.
    pub bytes: u32,
}

/// Alignment of the addresses and sizes of bulk copies, in bytes (PTX ISA, `cp.async.bulk`).
pub const BULK_ALIGN: u32 = 16;

/// The part of an operation's bytes that a lane accesses.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The number of bytes in this slot, at most all.
    Length(u32),
    /// `Unless(slot, inverted)`: all bytes, or none in lanes where the predicate, inverted if the second field is true,
    /// holds.
    Unless(u32, bool),
    /// The number of bytes in this slot, which is aligned as bulk copies require.
    Bulk(u32),
}

/// A memory access, as the optional checks see it.
#[derive(Debug)]
pub struct Check {
    pub address: Address,
    pub bytes: u32,
    pub part: Option<Part>,
    pub kinds: Kinds,
    /// Slots of a store's values, if known, and whether they are 64-bit planes.
    pub values: Option<(Vec<u32>, bool)>,
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    pub reads: bool,
    pub writes: bool,
    /// Strong in the PTX memory model: atomic, volatile, relaxed, acquire or release. Two strong accesses do not race.
    pub strong: bool,
}
