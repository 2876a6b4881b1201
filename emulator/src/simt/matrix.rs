//! Matrix instructions of a warp. The warp makes sure that all 32 lanes are present.

mod multiply;
mod rows;
mod tiles;
mod transfer;

use super::access::{Local, Refused, View};
use super::frames::Registers;
use crate::fault::FaultKind;
use crate::ops::lanes::LANES;
use crate::program::matrix::Matrix;
use crate::program::memory::{Address, Reach};

/// The reason why a matrix instruction can't run.
#[derive(Debug)]
pub enum Failed {
    Access(Refused),
    /// Invalid operands, with a description.
    Operands(FaultKind, String),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Access(refused)
    }
}

/// Buffers for the matrices of floating-point products. The first product allocates them; later ones need not clear
/// them.
#[derive(Debug, Default)]
pub struct Room(Option<Box<multiply::Floats>>);

/// Runs the instruction for all lanes. With `vector` it uses the machine's vector instructions, which have to exist.
pub fn run(
    matrix: &Matrix,
    registers: &mut Registers,
    view: &mut View,
    local: Local,
    vector: bool,
    room: &mut Room,
) -> Result<(), Failed> {
    match matrix {
        Matrix::Load(transfer) => transfer::load(transfer, registers, view, local)?,
        Matrix::Store(transfer) => transfer::store(transfer, registers, view, local)?,
        // SAFETY: the vector build is asked for only where the machine has what it needs.
        Matrix::Multiply(product) if vector => unsafe { multiply::vector(product, registers, room) },
        Matrix::Multiply(product) => multiply::portable(product, registers, room),
        Matrix::LoadRows(rows) => rows::load(rows, registers, view, local)?,
        Matrix::StoreRows(rows) => rows::store(rows, registers, view, local)?,
        Matrix::Transpose { d, a } => rows::transpose(*d, *a, registers),
    }
    Ok(())
}

/// A range of bytes that an instruction is about to access.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The lane whose address it is, or one that represents all.
    pub lane: usize,
    pub pointer: u64,
    pub bytes: u64,
}

/// Returns what the instruction will access, and whether it writes; nothing if it can't run.
pub fn spans(matrix: &Matrix, registers: &mut Registers, view: &mut View, local: Local) -> (Vec<Span>, bool) {
    let spans = match matrix {
        Matrix::Load(transfer) => transfer::spans(transfer, registers, view, local, false),
        Matrix::Store(transfer) => transfer::spans(transfer, registers, view, local, true),
        Matrix::LoadRows(rows) | Matrix::StoreRows(rows) => rows::spans(rows, registers, view, local),
        Matrix::Multiply(_) | Matrix::Transpose { .. } => Ok(Vec::new()),
    };
    (spans.unwrap_or_default(), matches!(matrix, Matrix::Store(_) | Matrix::StoreRows(_)))
}

/// Returns the lanes' addresses.
fn addresses(address: &Address, registers: &mut Registers) -> [u64; LANES] {
    let base =
        if address.wide { *registers.doubles(address.slot) } else { registers.words(address.slot).map(u64::from) };
    // Addresses in shared memory have 32 bits; upper bits are dropped, as for every other access.
    let kept = if address.reach == Reach::Shared { 0xffff_ffff } else { u64::MAX };
    base.map(|base| base.wrapping_add_signed(address.offset) & kept)
}
