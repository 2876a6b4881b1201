//! A program that can run: what [`crate::lower`] makes of PTX and what [`crate::simt`] runs.

pub mod lines;
pub mod matrix;
pub mod memory;
pub mod registers;
pub mod texture;
pub mod warp;

use std::collections::BTreeSet;

use self::lines::Lines;
use self::matrix::Matrix;
use self::memory::{Access, Atomic, Check, CopyAsync, CopyBulk};
use self::texture::Texturing;
use self::warp::{Barrier, Elect, Match, Phase, Reduce, Shuffle, Vote};
use crate::ops::lanes::{Lanes, Slots};
use crate::ptx::error::LoadError;

/// All functions of a module that have a body.
#[derive(Debug, Default)]
pub struct Program {
    pub functions: Vec<Function>,
    /// Memory instructions in the program: each has a cache of its own.
    pub accesses: u32,
    /// Source files of each text, by the numbers that lines name them with.
    pub files: Vec<Vec<(u32, String)>>,
    /// Bytes at the start of shared memory that the machine provides, zeroed, to cooperative groups.
    pub reserved_shared: u32,
    /// Shared variables that every kernel has: those of the module's top level and of functions that are no kernels.
    pub shared: Vec<SharedVariable>,
    /// Dynamic shared memory starts at a multiple of this, as its variables declare.
    pub dynamic_align: u32,
}

impl Program {
    /// The source files that a function's lines name by number.
    pub fn files_of(&self, function: &Function) -> &[(u32, String)] {
        self.files.get(function.text).map_or(&[], Vec::as_slice)
    }
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
    /// The index of its text among those that were linked.
    pub text: usize,
    pub code: Vec<Instruction>,
    /// Opcodes as written, for reports.
    pub texts: Vec<String>,
    /// Bytes of the register frame.
    pub frame_bytes: u32,
    /// What each plane of the frame holds; one of 64 bits is two planes. Empty in kernels.
    pub planes: Vec<Width>,
    /// Slots that hold the same value for the life of a frame.
    pub constants: Vec<Constant>,
    /// Slots that hold the same value for a whole launch.
    pub uniforms: Vec<(u32, Special)>,
    /// Slots that change from block to block and from warp to warp.
    pub specials: Vec<(u32, Special)>,
    /// Local memory of one frame.
    pub local_bytes: u32,
    /// Frames in local memory start at multiples of this, the largest alignment of all functions of the program.
    pub local_align: u32,
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
    /// The offsets of the shared variables that the code names.
    pub shared_used: BTreeSet<u32>,
    /// The largest alignment of the dynamic shared variables that the function declares.
    pub dynamic_align: u32,
    pub lines: Lines,
    /// The first of its instructions that the emulator does not have, although the module may be loaded.
    pub missing: Option<LoadError>,
}

impl Function {
    /// Local memory of a frame, rounded so that every frame starts aligned.
    pub fn frame_locals(&self) -> u64 {
        u64::from(self.local_bytes).next_multiple_of(self.local_align.max(16).into())
    }
}

/// What the lanes' places in a plane of a frame hold. A plane has 32 bits for each lane, or 32 masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Mask,
    Word,
    Double,
}

/// The functions that a function calls.
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
    CopyBulk(Box<CopyBulk>),
    /// Looks at what the next instruction is about to do to memory, where checks are on.
    Check(Box<Check>),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Match(Box<Match>),
    Reduce(Box<Reduce>),
    Matrix(Matrix),
    Texture(Texturing),
    /// An instruction that the emulator does not have, in a function that no kernel which may be launched calls by name.
    Missing,
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
