//! Reports of faults in a warp, with the place in the code.

use super::{Group, Wait, Warp};
use crate::fault::{Fault, FaultKind, Place, code_place, describe_access, is_use_after_free};
use crate::ops::lanes::LANES;
use crate::program::Op;
use crate::program::memory::{Address, Reach, WINDOW_BITS};
use crate::simt::access::{Refused, host_address};
use crate::simt::context::Context;
use crate::simt::texture::bound::Misuse;

/// Maximum number of callers that a report names.
const CALLERS_MAX: usize = 3;

/// A place where lanes of a block are, and what they do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub place: String,
    pub does: &'static str,
    pub threads: u32,
}

impl Warp {
    /// Makes a fault of all lanes of `group`.
    #[cold]
    pub(super) fn fault(&mut self, kind: FaultKind, what: &str, group: &Group, cx: &Context) -> Fault {
        let others = group.mask.count_ones().saturating_sub(1);
        self.fault_among(kind, what, group, group.mask.trailing_zeros(), others, cx)
    }

    /// Makes a fault of one lane of `group`.
    #[cold]
    pub(super) fn fault_in(&mut self, kind: FaultKind, what: &str, group: &Group, lane: u32, cx: &Context) -> Fault {
        self.fault_among(kind, what, group, lane, 0, cx)
    }

    /// Makes a fault of one lane of `group` and a number of other lanes of the warp.
    pub(super) fn fault_among(
        &mut self,
        kind: FaultKind,
        what: &str,
        group: &Group,
        lane: u32,
        others: u32,
        cx: &Context,
    ) -> Fault {
        let place = Place { others, ..self.place(group, lane, cx) };
        let mut fault = Fault::at(kind, what, &place);
        let mut frame = group.frame;
        for _ in 0..CALLERS_MAX {
            if frame == 0 {
                break;
            }
            let lane_bit = 1 << lane;
            let Some(call) = self.frame(frame).callers().find(|caller| caller.lanes & lane_bit != 0) else { break };
            let (parent, pc) = (call.frame, call.return_pc - 1);
            let caller = &cx.program.functions[self.frame(parent).function];
            let source = caller.lines.describe(pc, cx.program.files_of(caller));
            let line = caller.code[pc as usize].line;
            fault = fault.with_line(&match source {
                Some(source) => format!("called from {source} (PTX line {line}) in `{}`", caller.name),
                None => format!("called from PTX line {line} in `{}`", caller.name),
            });
            frame = parent;
        }
        fault
    }

    pub(super) fn place<'a>(&mut self, group: &Group, lane: u32, cx: &Context<'a>) -> Place<'a> {
        let function = &cx.program.functions[self.frame(group.frame).function];
        let instruction = &function.code[group.pc as usize];
        Place {
            kernel: &cx.entry.name,
            function: &function.name,
            line: instruction.line,
            source: function.lines.describe(group.pc, cx.program.files_of(function)),
            opcode: &function.texts[instruction.text as usize],
            block: cx.block,
            thread: cx.thread(self.index, lane),
            others: 0,
        }
    }

    #[cold]
    pub(super) fn refusal(&mut self, refused: &Refused, group: &Group, cx: &Context) -> Fault {
        let (first, others) = self.lanes_refused(refused, group, cx);
        let Refused { lane, address, bytes, space, kind, .. } = first;
        let after_free = space == "global" && is_use_after_free(cx.view.memory, address);
        let how = match kind {
            FaultKind::MisalignedAddress => "misaligned access",
            _ if after_free => "use after free: illegal access",
            _ => "illegal access",
        };
        let what = format!("{how} of {bytes} bytes at {address:#x} in {space} memory");
        let fault = self.fault_among(kind, &what, group, lane as u32, others, cx);
        if kind == FaultKind::MisalignedAddress {
            let past = address % bytes;
            let fault = fault.with_line(&format!("the address is {past} bytes past a multiple of {bytes}"));
            return if space == "global" {
                fault.with_line(&describe_access(cx.view.memory, address, bytes))
            } else {
                fault
            };
        }
        fault.with_line(&self.explain(&first, cx))
    }

    /// Makes a fault for the wrong use of a texture or a surface.
    #[cold]
    pub(super) fn misuse(&mut self, misuse: &Misuse, group: &Group, cx: &Context) -> Fault {
        self.fault_in(misuse.kind, &misuse.what, group, misuse.lane as u32, cx).with_line(&misuse.reason)
    }

    /// Describes an address that is not accessible.
    fn explain(&self, refused: &Refused, cx: &Context) -> String {
        let Refused { address, bytes, space, .. } = *refused;
        let offset = address & ((1 << WINDOW_BITS) - 1);
        let past = |size: u64, whose: &str| match (offset + bytes).checked_sub(size) {
            Some(_) if size == 0 => format!("{whose} has none"),
            Some(surplus) if surplus < bytes => {
                format!("{surplus} bytes past the end of the {size} bytes that {whose} has")
            }
            Some(_) if offset == size => format!("directly past the end of the {size} bytes that {whose} has"),
            _ => format!("{} bytes past the end of the {size} bytes that {whose} has", offset.saturating_sub(size)),
        };
        match space {
            "shared" => past(cx.view.shared_bytes, "the block"),
            "local" => past(self.lane_bytes, "the thread"),
            "parameter" => past(cx.view.params.len() as u64, "the kernel"),
            "code" => "the address is that of a function".to_owned(),
            _ if address >> WINDOW_BITS != 0 => match address >> WINDOW_BITS {
                1 => "the address is a generic address of shared memory".to_owned(),
                2 => "the address is a generic address of local memory".to_owned(),
                3 => "the address is a generic address of a kernel parameter".to_owned(),
                _ => "no device memory has such an address".to_owned(),
            },
            _ if is_foreign(cx, address) => "the address is in memory of another job, or of none".to_owned(),
            _ => describe_access(cx.view.memory, address, bytes),
        }
    }

    /// Finds the first lane with an invalid access, and counts the others. The access checks all lanes together and
    /// stops at the first failure, so each lane is checked again here.
    fn lanes_refused(&mut self, refused: &Refused, group: &Group, cx: &Context) -> (Refused, u32) {
        let function = &cx.program.functions[self.frame(group.frame).function];
        let instruction = &function.code[group.pc as usize];
        let guard = self.frame(group.frame).registers.mask(instruction.guard) ^ instruction.invert;
        let found = addresses(&instruction.op).into_iter().find_map(|address| {
            let lanes = (0..LANES).filter(|lane| (group.mask & guard & refused.among) >> lane & 1 != 0);
            let bad: Vec<_> = lanes.filter_map(|lane| self.refused_lane(address, lane, refused, group, cx)).collect();
            Some((*bad.first()?, bad.len() as u32 - 1))
        });
        found.unwrap_or((*refused, 0))
    }

    fn refused_lane(
        &mut self,
        address: &Address,
        lane: usize,
        refused: &Refused,
        group: &Group,
        cx: &Context,
    ) -> Option<Refused> {
        let at = self.lane_address(address, lane, group);
        if refused.kind == FaultKind::MisalignedAddress {
            return (!at.is_multiple_of(refused.bytes)).then_some(Refused { lane, address: at, ..*refused });
        }
        host_address(at, address.reach, address.writes, refused.bytes, lane, &cx.view, self.local()).err()
    }

    fn lane_address(&mut self, address: &Address, lane: usize, group: &Group) -> u64 {
        let registers = &mut self.frame(group.frame).registers;
        let base = match (&address.index, address.wide) {
            (Some(index), _) => {
                let start = registers.doubles(index.base)[lane];
                start.wrapping_add_signed(index.distance(registers.words(address.slot)[lane]))
            }
            (None, true) => registers.doubles(address.slot)[lane],
            (None, false) => registers.words(address.slot)[lane].into(),
        };
        let kept = if matches!(address.reach, Reach::Shared | Reach::Local) { 0xffff_ffff } else { u64::MAX };
        base.wrapping_add_signed(address.offset) & kept
    }

    /// Counts instructions against the budget, and checks whether the launch has to end.
    #[inline(always)]
    pub(super) fn count(&mut self, instructions: u64, group: &Group, cx: &mut Context) -> Result<(), Fault> {
        cx.spent += instructions;
        match cx.must_stop() {
            None => Ok(()),
            Some(what) => Err(self.fault(FaultKind::Timeout, what, group, cx)),
        }
    }

    /// Returns the places of the warp's groups.
    pub fn standings(&mut self, cx: &Context) -> Vec<Standing> {
        let groups = self.groups.clone();
        let standing = |group: &Group| {
            let Place { source, line, opcode, .. } = self.place(group, 0, cx);
            let does = if group.wait == Wait::None { "at" } else { "waiting at" };
            Standing { place: code_place(source.as_deref(), line, opcode), does, threads: group.mask.count_ones() }
        };
        groups.iter().map(standing).collect()
    }
}

/// Reports whether there is memory at an address that a confined launch may not access.
fn is_foreign(cx: &Context, address: u64) -> bool {
    cx.view.memory.find(address).is_some_and(|(base, _)| !cx.view.allows(base))
}

/// Returns the addresses with which an operation accesses memory.
fn addresses(op: &Op) -> Vec<&Address> {
    match op {
        Op::Load(access) | Op::Store(access) => vec![&access.address],
        Op::Atomic(atomic) => vec![&atomic.address],
        Op::Check(check) => vec![&check.address],
        Op::Phase(phase) => vec![&phase.address],
        Op::CopyAsync(copy) => vec![&copy.target, &copy.source],
        Op::CopyBulk(copy) => vec![&copy.target, &copy.source],
        _ => Vec::new(),
    }
}
