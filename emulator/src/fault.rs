//! What can end a launch early, and the report a person reads about it. Nothing here decides whether a context
//! becomes unusable: that is the driver's business.

use std::fmt::Write as _;

use crate::memory::Memory;

/// Why a kernel was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside every live allocation, or outside shared, local or parameter space.
    IllegalAddress,
    /// An address that is not a multiple of the size of the access.
    MisalignedAddress,
    /// `trap`, a barrier that not every thread can reach, or a call that cannot be made.
    LaunchFailed,
    /// A failed `assert`.
    Assert,
    /// An instruction that has no meaning for its operands at run time.
    IllegalInstruction,
    /// The instruction budget was spent or the launch was cancelled.
    Timeout,
}

/// A launch that was stopped, with a report for the person who wrote the kernel.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{report}")]
pub struct Fault {
    /// What happened, as a category.
    pub kind: FaultKind,
    /// What happened, in words: kernel, line, opcode, thread, block, address.
    pub report: String,
}

/// Where in a launch something happened.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    pub kernel: &'a str,
    pub function: &'a str,
    pub line: u32,
    pub opcode: &'a str,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

impl FaultKind {
    /// The number of this kind in the CUDA driver's table of errors.
    pub fn code(self) -> u32 {
        match self {
            FaultKind::IllegalAddress => 700,
            FaultKind::Timeout => 702,
            FaultKind::Assert => 710,
            FaultKind::IllegalInstruction => 715,
            FaultKind::MisalignedAddress => 716,
            FaultKind::LaunchFailed => 719,
        }
    }
}

impl Fault {
    /// A fault of `kind` with `what` happened at `place`.
    pub fn at(kind: FaultKind, what: &str, place: &Place) -> Fault {
        let mut report = format!("{what} in kernel `{}`", place.kernel);
        if place.function != place.kernel {
            let _ = write!(report, ", function `{}`", place.function);
        }
        let ([bx, by, bz], [tx, ty, tz]) = (place.block, place.thread);
        let _ = write!(
            report,
            ", PTX line {}, `{}`, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})",
            place.line, place.opcode
        );
        Fault { kind, report }
    }
}

/// Says where an address lies relative to the allocation nearest to it.
pub fn describe_address(memory: &Memory, address: u64) -> String {
    match memory.nearest(address) {
        None => "no memory is allocated".to_owned(),
        Some((base, bytes)) if address >= base && address - base < bytes => {
            format!("{} bytes into the allocation of {bytes} bytes at {base:#x}", address - base)
        }
        Some((base, bytes)) if address >= base => {
            format!("{} bytes past the end of the allocation of {bytes} bytes at {base:#x}", address - base - bytes)
        }
        Some((base, bytes)) => {
            format!("{} bytes before the allocation of {bytes} bytes at {base:#x}", base - address)
        }
    }
}
