//! Accesses as programs hold them: the operands of a load or a store, and the functions that run it.

use super::reach::{Local, Refused, View};
use crate::program::memory::{Address, Repeat};

/// A load or a store.
#[derive(Debug)]
pub struct Access {
    pub address: Address,
    /// Volatile, or with a memory order stronger than weak: each element is atomic for other host threads.
    pub ordered: bool,
    pub repeat: Repeat,
    pub slots: [u32; 4],
    pub run: AccessRun,
}

/// A load or a store of one element type, compiled portably and for the machine's vectors.
#[derive(Clone, Copy, Debug)]
pub struct AccessRun {
    pub portable: Move,
    pub vector: Move,
    /// Used if not all lanes access rows with one step. These are separate functions behind a pointer, because their
    /// large stack frames would slow down the others.
    pub portable_apart: Move,
    pub vector_apart: Move,
}

/// Makes an access. The error is boxed, so that the result fits a register.
///
/// # Safety
/// The frame and the slots are as for [`crate::ops::lanes::Run`]; the view's pointers are live for its sizes.
pub type Move = unsafe fn(&Access, *mut u8, u32, &mut View, Local) -> Result<(), Box<Refused>>;
