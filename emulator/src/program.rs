//! The executable form of a program: [`crate::lower`] produces it from PTX, and [`crate::simt`] runs it.
//!
//! A function's registers are in a frame: a run of planes, each with one value for each of 32 lanes. Instructions name
//! registers by slots, which are byte offsets in the frame.

pub mod lines;
pub mod matrix;
pub mod memory;
pub mod registers;
pub mod texture;
pub mod warp;

use std::collections::BTreeSet;

use self::lines::Lines;
use self::matrix::Matrix;
use self::memory::{Atomic, Check, CopyAsync, CopyBulk};
use self::texture::Texturing;
use self::warp::{Barrier, Elect, Match, Phase, Reduce, Shuffle, Vote};
use crate::ops::lanes::{Lanes, Slots};
use crate::ptx::error::LoadError;
use crate::simt::access::Access;

/// All functions of a module that have a body.
#[derive(Debug, Default)]
pub struct Program {
    pub functions: Vec<Function>,
    /// Number of memory instructions; each has a [`crate::simt::access::Cache`] of its own.
    pub accesses: u32,
    /// Source files of each text, with the numbers by which line information names them.
    pub files: Vec<Vec<(u32, String)>>,
    /// Zeroed bytes at the start of shared memory for cooperative groups (`%reserved_smem_offset_*`).
    pub reserved_shared: u32,
    /// Shared variables that every kernel has: those of the module scope and of functions that are not kernels.
    pub shared: Vec<SharedVariable>,
    /// Alignment of dynamic shared memory in bytes: the largest of its variables.
    pub dynamic_align: u32,
}

impl Program {
    /// Returns the source files that a function's line information names by number.
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
    /// Index of the text that defines it, among those that were linked.
    pub text: usize,
    pub code: Vec<Instruction>,
    /// Opcodes as written, for reports.
    pub texts: Vec<String>,
    /// Bytes of the register frame.
    pub frame_bytes: u32,
    /// Type of each plane of the frame; a 64-bit value takes two planes. Empty in kernels.
    pub planes: Vec<Width>,
    /// Slots with a value that stays for the life of a frame.
    pub constants: Vec<Constant>,
    /// Slots with a value that stays for a whole launch.
    pub uniforms: Vec<(u32, Special)>,
    /// Slots with a value that changes from block to block or from warp to warp.
    pub specials: Vec<(u32, Special)>,
    /// Bytes of local memory in one frame.
    pub local_bytes: u32,
    /// Alignment of a frame in local memory, in bytes: the largest of all functions of the program.
    pub local_align: u32,
    /// Slots with the address of a local variable, and its offset in the frame's local memory.
    pub locals: Vec<(u32, u32)>,
    /// Slots of the parameter and result words, in order.
    pub params: Vec<u32>,
    pub results: Vec<u32>,
    pub calls: Calls,
    pub has_barrier: bool,
    /// True if the function jumps backwards, so that its run time does not follow from its length.
    pub has_loop: bool,
    /// Shared variables of this kernel alone.
    pub shared: Vec<SharedVariable>,
    /// Offsets of the shared variables that the code names.
    pub shared_used: BTreeSet<u32>,
    /// Alignment of the function's dynamic shared variables in bytes: the largest of them.
    pub dynamic_align: u32,
    pub lines: Lines,
    /// The first unsupported instruction, if it is one that does not keep the module from loading.
    pub missing: Option<LoadError>,
}

impl Function {
    /// Returns the bytes of local memory in a frame, rounded so that the next frame is aligned.
    pub fn frame_locals(&self) -> u64 {
        u64::from(self.local_bytes).next_multiple_of(self.local_align.max(16).into())
    }
}

/// Type of a register. A plane holds a 32-bit word per lane, two planes a 64-bit value per lane, and a mask (predicate)
/// has one bit per lane, so that a plane holds 32 masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Mask,
    Word,
    Double,
}

/// Functions that a function calls by name, and whether it calls through pointers.
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

/// Values that the machine provides: PTX special registers and kernel parameters.
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
    /// Size of the reserved area at the start of shared memory, in bytes.
    ReservedShared,
    /// Offset of dynamic shared memory, as a 64-bit address.
    DynamicSharedStart,
    Zero,
    ZeroDouble,
    One,
    /// `%envreg`: 1 and 2 are the high and low half of the address of a cooperative launch's workspace, which
    /// `cooperative_groups` reads.
    Environment(u8),
    GridId,
    /// A kernel parameter, extended to 32 bits, or to 64 if `wide`.
    Parameter {
        offset: u32,
        bytes: u32,
        signed: bool,
        wide: bool,
    },
}

impl Special {
    /// Reports whether the value stays the same for a whole launch.
    pub fn is_uniform(self) -> bool {
        !matches!(self, Special::Thread(_) | Special::Block(_) | Special::Warp)
    }
}

#[derive(Debug)]
pub struct Instruction {
    pub op: Op,
    /// Slot of the guard predicate: the instruction runs in lanes where it is set, or clear if `invert` is all ones.
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
    /// Fuses a comparison and the jump to `target` after it, if only that jump uses the predicate.
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
    /// `nanosleep`: holds the warp for the longest time that one of its lanes asks for.
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
    /// Checks the memory access of the next instruction; present only if checks are on.
    Check(Box<Check>),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Match(Box<Match>),
    Reduce(Box<Reduce>),
    Matrix(Matrix),
    Texture(Texturing),
    /// An unsupported instruction. No kernel that may be launched calls its function by name.
    Missing,
    WarpBarrier {
        mask: u32,
    },
    Barrier(Box<Barrier>),
    Elect(Box<Elect>),
    Phase(Box<Phase>),
    /// `barrier.cluster`: arrives, or waits for the others.
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
    /// Slots of the argument and result words in the caller's frame.
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
