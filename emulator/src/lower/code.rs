//! What a program is lowered to.

use std::collections::{HashMap, HashSet};

use super::matrix::Matrix;
use super::source::Lines;
use crate::ops::lanes::{Lanes, Slots};
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

/// A slot that is not there: a result that nobody wants.
pub const NO_SLOT: u32 = u32::MAX;

/// All functions of a module that have a body.
#[derive(Debug, Default)]
pub struct Program {
    pub functions: Vec<Function>,
    /// Memory instructions in the program: each has a cache of its own.
    pub accesses: u32,
    /// Source files, by the numbers that lines name them with.
    pub files: Vec<(u32, String)>,
    /// Bytes at the start of shared memory that the machine provides, zeroed, to cooperative groups.
    pub reserved_shared: u32,
    /// Shared variables that every kernel has: those of the module's top level and of functions that are no kernels.
    pub shared: Vec<SharedVariable>,
}

/// A variable in shared memory, for reports.
#[derive(Clone, Debug)]
pub struct SharedVariable {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Debug, Default)]
pub struct Function {
    pub name: String,
    pub code: Vec<Instruction>,
    /// Opcodes as written, for reports.
    pub texts: Vec<String>,
    /// Bytes of the register frame.
    pub frame_bytes: u32,
    /// Slots that hold the same value for the life of a frame.
    pub constants: Vec<Constant>,
    /// Slots that hold the same value for a whole launch.
    pub uniforms: Vec<(u32, Special)>,
    /// Slots that change from block to block and from warp to warp.
    pub specials: Vec<(u32, Special)>,
    /// Local memory of one frame.
    pub local_bytes: u32,
    /// Slots that hold the address of something in the frame's local memory, with its offset there.
    pub locals: Vec<(u32, u32)>,
    /// Words of parameters and results, in order.
    pub params: Vec<u32>,
    pub results: Vec<u32>,
    pub calls: Calls,
    pub has_barrier: bool,
    /// It jumps backwards somewhere: how long it runs can't be told from its length.
    pub has_loop: bool,
    /// A kernel's own shared variables.
    pub shared: Vec<SharedVariable>,
    pub lines: Lines,
}

/// Whom a function calls.
#[derive(Debug, Default)]
pub struct Calls {
    pub functions: Vec<usize>,
    pub indirect: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Constant {
    Word(u32, u32),
    Double(u32, u64),
    Mask(u32, u32),
}

/// Values that the machine provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
    Warp,
    Warps,
    LanesEqual,
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    DynamicShared,
    TotalShared,
    /// Bytes that the machine provides at the start of shared memory.
    ReservedShared,
    /// Offset of the dynamic shared memory, as a 64-bit address.
    DynamicSharedStart,
    Zero,
    ZeroDouble,
    One,
    /// An environment register: 1 and 2 are the high and low half of the address of a cooperative launch's workspace,
    /// as `cooperative_groups` reads it.
    Environment(u8),
    GridId,
    /// A kernel parameter, extended to 32 bits or, where `wide`, to 64.
    Parameter {
        offset: u32,
        bytes: u32,
        signed: bool,
        wide: bool,
    },
}

impl Special {
    /// Whether the value stays the same for a whole launch.
    pub fn is_uniform(self) -> bool {
        !matches!(self, Special::Thread(_) | Special::Block(_) | Special::Warp)
    }
}

#[derive(Debug)]
pub struct Instruction {
    pub op: Op,
    /// The instruction runs in lanes where this predicate, xor `invert`, is set.
    pub guard: u32,
    pub invert: u32,
    pub line: u32,
    pub text: u32,
}

#[derive(Debug)]
pub enum Op {
    Lanes {
        run: Lanes,
        slots: Slots,
    },
    Predicate {
        function: Logic,
        d: u32,
        a: u32,
        b: u32,
        invert_b: bool,
    },
    Jump(u32),
    /// Writes a predicate that the next instruction, a jump to `target`, goes by alone; and that jump.
    Branch {
        run: Lanes,
        slots: Slots,
        target: u32,
        invert: u32,
    },
    JumpTable {
        index: u32,
        targets: Box<[u32]>,
    },
    Exit,
    Return,
    Trap,
    Breakpoint,
    Fence,
    /// Holds the warp up for the longest time that one of the lanes asks for.
    Sleep {
        nanoseconds: u32,
    },
    Clock {
        d: u32,
        wide: bool,
        shift: u32,
    },
    ActiveMask {
        d: u32,
    },
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    CopyAsync(Box<CopyAsync>),
    /// Looks at what the next instruction is about to do to memory, where checks are on.
    Check(Box<Check>),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Match(Box<Match>),
    Reduce(Box<Reduce>),
    Matrix(Matrix),
    WarpBarrier {
        mask: u32,
    },
    Barrier(Box<Barrier>),
    Elect(Box<Elect>),
    Phase(Box<Phase>),
    /// `barrier.cluster`: coming to it, or waiting for the others.
    Cluster {
        waits: bool,
    },
    Call(Box<Call>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
    Copy,
    Not,
}

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

/// What lanes access of the bytes that an operation is for.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// So many bytes as the lane's word in this slot says, or all.
    Length(u32),
    /// All bytes, or none where a predicate holds, or does not where it is negated.
    Unless(u32, bool),
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

#[derive(Debug)]
pub struct Call {
    pub callee: Callee,
    /// Words of the arguments and results in the caller's frame.
    pub arguments: Vec<u32>,
    pub results: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub enum Callee {
    Function(usize),
    Register(u32),
    Print,
    AssertFail,
    Allocate,
    Free,
}

/// The registers of a frame as they are handed out, and the constants that were asked for.
#[derive(Debug, Default)]
pub struct Layout {
    pub bytes: u32,
    masks_left: u32,
    next_mask: u32,
    words: HashMap<u32, u32>,
    doubles: HashMap<u64, u32>,
    masks: HashMap<u32, u32>,
    /// Planes that no instruction writes: constants, and what the machine provides.
    pub fixed: HashSet<u32>,
    /// What registers were declared as.
    pub declared: HashMap<u32, Type>,
    pub constants: Vec<Constant>,
    pub registers: u32,
}

const PLANE: u32 = 128;

impl Layout {
    pub fn word(&mut self) -> u32 {
        self.take(PLANE)
    }

    pub fn double(&mut self) -> u32 {
        self.take(2 * PLANE)
    }

    fn take(&mut self, bytes: u32) -> u32 {
        let slot = self.bytes;
        self.bytes += bytes;
        slot
    }

    pub fn mask(&mut self) -> u32 {
        if self.masks_left == 0 {
            self.next_mask = self.take(PLANE);
            self.masks_left = PLANE / 4;
        }
        self.masks_left -= 1;
        self.next_mask += 4;
        self.next_mask - 4
    }

    pub fn constant(&mut self, value: u32) -> u32 {
        if let Some(slot) = self.words.get(&value) {
            return *slot;
        }
        let slot = self.word();
        self.words.insert(value, slot);
        self.fixed.insert(slot);
        self.constants.push(Constant::Word(slot, value));
        slot
    }

    pub fn constant64(&mut self, value: u64) -> u32 {
        if let Some(slot) = self.doubles.get(&value) {
            return *slot;
        }
        let slot = self.double();
        self.doubles.insert(value, slot);
        self.fixed.insert(slot);
        self.constants.push(Constant::Double(slot, value));
        slot
    }

    pub fn constant_mask(&mut self, value: u32) -> u32 {
        if let Some(slot) = self.masks.get(&value) {
            return *slot;
        }
        let slot = self.mask();
        self.masks.insert(value, slot);
        self.constants.push(Constant::Mask(slot, value));
        slot
    }
}
