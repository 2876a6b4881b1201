//! Instructions in which threads exchange values or wait for one another.

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
    /// All lanes take part, and nothing has to be told that they do.
    pub all: bool,
    /// Where lanes read from, where that is known.
    pub sources: Option<Box<Sources>>,
}

/// The lane that each lane reads from, and the lanes whose source is inside their segment. The others read themselves.
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
    /// No mask in the form of old that votes among the active lanes.
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
    /// Its number, where that is known, all threads take part and nothing is computed.
    pub all: Option<u32>,
    pub id: u32,
    /// Threads that take part; no slot where all do.
    pub threads: u32,
    pub d: u32,
    pub p: u32,
    pub invert: bool,
}

/// One lane of several: its number, and a predicate that is set for it alone.
#[derive(Debug)]
pub struct Elect {
    pub d: u32,
    pub p: u32,
    pub mask: u32,
}

/// An operation on a barrier in shared memory.
#[derive(Debug)]
pub struct Phase {
    pub address: Address,
    pub action: PhaseAction,
    /// The state before, or whether the phase is over.
    pub d: u32,
    /// A count, or the phase that is asked for.
    pub a: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseAction {
    Init,
    Invalidate,
    /// That there is one.
    Look,
    Arrive {
        drops: bool,
        /// The count is of transactions to expect, and one thread arrives.
        expects: bool,
        completes: bool,
    },
    Expect,
    Complete,
    Test {
        parity: bool,
    },
}

/// Where the pending count lies in such a barrier and in the state that it answers, and what it is at most.
pub const PENDING_BIT: u32 = 20;
pub const PENDING_MAX: u32 = (1 << 20) - 1;
