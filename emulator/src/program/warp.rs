//! Instructions by which threads exchange values or wait for each other.

use super::memory::{Address, AtomicFunction};
use crate::ops::lanes::LANES;
use crate::ptx::types::Type;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug)]
pub struct Shuffle {
    pub mode: ShuffleMode,
    pub d: u32,
    pub valid: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub mask: u32,
    /// True if all lanes take part and no check is on that would have to record it.
    pub all: bool,
    /// The source lanes, if they are known when the code is lowered.
    pub sources: Option<Box<Sources>>,
}

/// The source lane of each lane, and the lanes whose source is inside their segment. Other lanes read themselves.
#[derive(Clone, Debug)]
pub struct Sources {
    pub from: [u32; LANES],
    pub inside: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

#[derive(Debug)]
pub struct Vote {
    pub mode: VoteMode,
    pub d: u32,
    pub a: u32,
    pub invert: bool,
    /// Slot of the membermask.
    pub mask: u32,
}

#[derive(Debug)]
pub struct Match {
    pub all: bool,
    pub d: u32,
    pub p: u32,
    pub a: u32,
    pub wide: bool,
    pub mask: u32,
}

#[derive(Debug)]
pub struct Reduce {
    pub function: AtomicFunction,
    pub ty: Type,
    pub d: u32,
    pub a: u32,
    pub mask: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    Sync,
    Arrive,
    Count,
    And,
    Or,
}

#[derive(Debug)]
pub struct Barrier {
    pub kind: BarrierKind,
    pub aligned: bool,
    /// The barrier's number, if it is a constant, all threads take part, and no value is combined.
    pub all: Option<u32>,
    pub id: u32,
    /// Slot of the number of participating threads; no slot if all take part.
    pub threads: u32,
    pub d: u32,
    pub p: u32,
    pub invert: bool,
}

/// `elect.sync`: elects one lane; `d` receives its number, and `p` is set in that lane only.
#[derive(Debug)]
pub struct Elect {
    pub d: u32,
    pub p: u32,
    pub mask: u32,
}

/// An operation on an mbarrier, a barrier object in shared memory.
#[derive(Debug)]
pub struct Phase {
    pub address: Address,
    pub action: PhaseAction,
    /// Slot of the result: the state before the operation, or for `Test` whether the phase is complete.
    pub d: u32,
    /// Slot of a count, or for `Test` of the phase's state or parity.
    pub a: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseAction {
    Init,
    Invalidate,
    /// Checks that the object is an initialised mbarrier.
    Look,
    Arrive {
        drops: bool,
        /// `arrive.expect_tx`: the count is of transactions to expect, and one thread arrives.
        expects: bool,
        completes: bool,
    },
    Expect,
    Complete,
    Test {
        parity: bool,
    },
}

/// Position and maximum of the pending arrival count, in an mbarrier object and in the state that operations return.
pub const PENDING_BIT: u32 = 20;
pub const PENDING_MAX: u32 = (1 << 20) - 1;
