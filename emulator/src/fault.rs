//! What can end a launch early, and the report a person reads about it. Nothing here decides whether a context
//! becomes unusable: that is the driver's business.
//!
//! A report has one line that says what happened in which kernel, one for the place in the code, one for the threads,
//! and a few more for what helps to understand it.

use std::fmt::Write as _;

use crate::memory::mapping::Protection;
use crate::memory::reservations::Reserved;
use crate::memory::{ALLOCATION_ALIGN, Memory, Nearest, Owner};

/// Why a kernel was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside every live allocation, or outside shared, local or parameter space.
    IllegalAddress,
    /// An address that is not a multiple of the size of the access.
    MisalignedAddress,
    /// `trap`, a barrier that not every thread can reach, a call that cannot be made, or what a check has found.
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
    /// Line of the PTX text.
    pub line: u32,
    /// Line of the source, where the PTX tells it.
    pub source: Option<String>,
    pub opcode: &'a str,
    pub block: [u32; 3],
    pub thread: [u32; 3],
    /// Threads of the same warp that did the same, beside this one.
    pub others: u32,
}

/// Below this an address is taken for a null pointer with an offset: no allocation lies there.
const NULL_BYTES: u64 = 64 << 10;

/// So near to two arrays that lie a gap apart, an address may be meant as an element of either.
const NEIGHBOUR_BYTES: u64 = 2 * ALLOCATION_ALIGN;

/// Nearer than this to a live allocation, an address in memory that was freed may as well be one past that one's end.
const NEAR_BYTES: u64 = 4 << 10;

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
        let _ = write!(report, "\n  at {}", code_place(place.source.as_deref(), place.line, place.opcode));
        let ([bx, by, bz], [tx, ty, tz]) = (place.block, place.thread);
        let _ = write!(report, "\n  block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})");
        match place.others {
            0 => {}
            1 => report.push_str(" and 1 other of its warp"),
            others => {
                let _ = write!(report, " and {others} others of its warp");
            }
        }
        Fault { kind, report }
    }

    /// The fault with another line in its report.
    pub fn with_line(mut self, line: &str) -> Fault {
        let _ = write!(self.report, "\n  {line}");
        self
    }
}

/// A place in the code as every report names it.
pub fn code_place(source: Option<&str>, line: u32, opcode: &str) -> String {
    match source {
        Some(source) => format!("{source} (PTX line {line}, `{opcode}`)"),
        None => format!("PTX line {line}, `{opcode}`"),
    }
}

/// Says where an access of `bytes` lies relative to the allocation nearest to it, and to those that were freed.
pub fn describe_access(memory: &Memory, address: u64, bytes: u64) -> String {
    if address < NULL_BYTES {
        return match address {
            0 => "the address is a null pointer".to_owned(),
            _ => format!("the address is {address} bytes from a null pointer"),
        };
    }
    if let Some(text) = describe_reserved(memory, address) {
        return text;
    }
    let live = memory.nearest(address);
    let near = live.map(|live| match other_neighbour(memory, live, address) {
        Some(other) => {
            let [near, other] = [live, other].map(|range| describe_nearest(range, address, bytes));
            format!("{near}, and {other}")
        }
        None => describe_nearest(live, address, bytes),
    });
    match (memory.freed(address), live) {
        (Some((base, size)), live) => {
            let text =
                format!("{} bytes into the {size}-byte allocation at {base:#x}, which was freed", address - base);
            match near {
                Some(near) if live.is_some_and(|live| live.distance(address) < NEAR_BYTES) => format!("{text}; {near}"),
                _ => text,
            }
        }
        (None, _) => near.unwrap_or_else(|| "no memory is allocated".to_owned()),
    }
}

/// Says where an address lies that is reserved and has no memory of the device, or was so until its range was freed.
fn describe_reserved(memory: &Memory, address: u64) -> Option<String> {
    if memory.find(address).is_some() {
        return None;
    }
    let text = |range: Reserved| {
        let Reserved { base, bytes } = range;
        format!("{} bytes into the {bytes}-byte range of addresses that was reserved at {base:#x}", address - base)
    };
    let live = memory.reservations().find(address);
    let live = live.map(|range| format!("{}, where no memory of this device is mapped", text(range)));
    live.or_else(|| memory.reservations().find_freed(address).map(|range| format!("{} and then freed", text(range))))
}

/// The range on the other side of an access that lies between two, if it is near too: the array that the kernel meant may
/// be either.
fn other_neighbour(memory: &Memory, nearest: Nearest, address: u64) -> Option<Nearest> {
    let (below, above) = memory.neighbours(address);
    let other = if nearest.base > address { below } else { above };
    other.filter(|other| (1..=NEIGHBOUR_BYTES).contains(&other.distance(address)) && nearest.distance(address) > 0)
}

/// Whether an access lies in memory that was freed, and not in any that is live.
pub fn is_use_after_free(memory: &Memory, address: u64) -> bool {
    let was_reserved = || {
        let reservations = memory.reservations();
        reservations.find(address).is_none() && reservations.find_freed(address).is_some()
    };
    memory.find(address).is_none() && (memory.freed(address).is_some() || was_reserved())
}

fn describe_nearest(nearest: Nearest, address: u64, bytes: u64) -> String {
    let Nearest { base, bytes: size, owner, is_protected } = nearest;
    let noun = match owner {
        Owner::Host => "range of host memory",
        Owner::Image => "array",
        Owner::Mapping(_) => "mapping",
        Owner::Program | Owner::Heap => "allocation",
    };
    let name = format!("the {size}-byte {noun} at {base:#x}");
    if address < base {
        return format!("{} bytes before {name}", base - address);
    }
    let offset = address - base;
    if offset >= size {
        return match offset - size {
            0 => format!("directly past the end of {name}"),
            distance => format!("{distance} bytes past the end of {name}"),
        };
    }
    let text = format!("{offset} bytes into {name}");
    match ((offset + bytes).saturating_sub(size), owner) {
        (_, Owner::Mapping(Protection::None)) => format!("{text}, to which the device has no access (cuMemSetAccess)"),
        (0, Owner::Image) => format!("{text}, which only textures and surfaces reach"),
        (0, Owner::Mapping(Protection::Read)) => format!("{text}, which is read-only"),
        (0, _) if is_protected => format!("{text}, which is read-only"),
        (0, _) => text,
        (surplus, _) => format!("{text}, with {surplus} bytes past its end"),
    }
}
