//! Faults: what ends a launch early, and the report about it for the author of the kernel. The driver decides whether a
//! fault makes the context unusable.
//!
//! A report has a line for what happened in which kernel, one for the place in the code, one for the threads, and
//! further lines that help to find the cause.

use std::fmt::Write as _;

use crate::memory::reservations::Reserved;
use crate::memory::{ALLOCATION_ALIGN, Memory, Nearest, Owner, Protection};

/// The reason why a kernel was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside every live allocation, or outside shared, local or parameter space.
    IllegalAddress,
    /// An address that is not a multiple of the size of the access.
    MisalignedAddress,
    /// `trap`, a barrier that not every thread can reach, a call that can't be made, or a finding of a check.
    LaunchFailed,
    /// A failed `assert`.
    Assert,
    /// An instruction that is undefined for its operands at run time.
    IllegalInstruction,
    /// The launch exceeded its instruction budget or was cancelled.
    Timeout,
}

/// The end of a launch that was stopped.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{report}")]
pub struct Fault {
    /// The category, from which the driver's status follows.
    pub kind: FaultKind,
    /// The report: what happened, kernel, line, opcode, thread, block, address.
    pub report: String,
}

/// The place in a launch where something happened.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    pub kernel: &'a str,
    pub function: &'a str,
    /// Line of the PTX text.
    pub line: u32,
    /// Source file and line, if the PTX has line information.
    pub source: Option<String>,
    pub opcode: &'a str,
    pub block: [u32; 3],
    pub thread: [u32; 3],
    /// Number of other threads of the warp with the same fault.
    pub others: u32,
}

/// Addresses below this, in bytes, are reported as offsets from a null pointer, because no allocation starts there.
const NULL_BYTES: u64 = 64 << 10;

/// Distance in bytes up to which a report names the arrays on both sides of an address. Two arrays may be one guard gap
/// apart, and the kernel may have meant an element of either.
const NEIGHBOUR_BYTES: u64 = 2 * ALLOCATION_ALIGN;

/// Distance in bytes to a live allocation below which a report about freed memory names the live allocation too,
/// because the kernel may have run past its end.
const NEAR_BYTES: u64 = 4 << 10;

impl FaultKind {
    /// Returns the `CUresult` of this kind.
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
    /// Makes a fault of `kind`: `what` happened at `place`.
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

    /// Appends a line to the report.
    pub fn with_line(mut self, line: &str) -> Fault {
        let _ = write!(self.report, "\n  {line}");
        self
    }
}

/// Formats a place in the code; all reports use it.
pub fn code_place(source: Option<&str>, line: u32, opcode: &str) -> String {
    match source {
        Some(source) => format!("{source} (PTX line {line}, `{opcode}`)"),
        None => format!("PTX line {line}, `{opcode}`"),
    }
}

/// Describes an access of `bytes` relative to the nearest live allocation and to freed ones.
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

/// Describes an address in a reserved range without memory of this device, or in such a range that was freed; `None`
/// for other addresses.
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

/// Returns the range on the other side of an address between two ranges, if it is near too.
fn other_neighbour(memory: &Memory, nearest: Nearest, address: u64) -> Option<Nearest> {
    let (below, above) = memory.neighbours(address);
    let other = if nearest.base > address { below } else { above };
    other.filter(|other| (1..=NEIGHBOUR_BYTES).contains(&other.distance(address)) && nearest.distance(address) > 0)
}

/// Reports whether an address is in freed memory and in no live range.
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
