//! Runs the optional checks on the memory accesses of a warp.

use super::{Group, Warp};
use crate::fault::{Fault, FaultKind, code_place, describe_access};
use crate::ops::lanes::{FULL, LANES};
use crate::program::matrix::Matrix;
use crate::program::memory::{Check, Kinds, Part};
use crate::simt::access::{Local, lengths_in, resolve_bulk, resolve_parts};
use crate::simt::checks::{Hazard, HazardKind, Stamp, Touch};
use crate::simt::context::Context;
use crate::simt::matrix::{self, Span};

/// The location of an access, by state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    /// Offset in the block's shared memory.
    Shared(u64),
    /// Offset in the warp's local memory.
    Local(u64),
    Device(u64),
}

/// The access of one lane.
#[derive(Clone, Copy, Debug)]
struct LaneAccess {
    lane: usize,
    spot: Spot,
    pointer: u64,
    bytes: u64,
}

/// The slots of a store's values, and whether they are 64-bit planes.
type Values = (Vec<u32>, bool);

/// Returns the location of a checked pointer.
fn spot(pointer: u64, local: Local, cx: &Context) -> Spot {
    let (shared, local_bytes) = (pointer.wrapping_sub(cx.view.shared as u64), local.lane_bytes * LANES as u64);
    match pointer.wrapping_sub(local.start as u64) {
        _ if shared < cx.view.shared_bytes => Spot::Shared(shared),
        offset if offset < local_bytes => Spot::Local(offset),
        _ => Spot::Device(pointer),
    }
}

impl Warp {
    /// Checks an access before it is made, and records it.
    #[cold]
    pub(super) fn check(&mut self, check: &Check, group: &Group, mask: u32, cx: &mut Context) -> Result<(), Fault> {
        let accesses = self.lane_accesses(check, group, mask, cx)?;
        self.check_accesses(check.kinds, check.values.as_ref(), &accesses, group, cx)
    }

    /// Checks the access of a matrix instruction, which all lanes make together: they count as synchronised before and
    /// after it.
    #[cold]
    pub(super) fn check_matrix(&mut self, matrix: &Matrix, group: &Group, cx: &mut Context) -> Result<(), Fault> {
        let local = self.local();
        let registers = &mut self.frame(group.frame).registers;
        let (spans, writes) = matrix::spans(matrix, registers, &mut cx.view, local);
        let kinds = Kinds { reads: !writes, writes, strong: false };
        let access = |span: &Span| LaneAccess {
            lane: span.lane,
            spot: spot(span.pointer, local, cx),
            pointer: span.pointer,
            bytes: span.bytes,
        };
        let accesses: Vec<LaneAccess> = spans.iter().map(access).collect();
        cx.met(self.index, FULL);
        self.check_accesses(kinds, None, &accesses, group, cx)?;
        cx.met(self.index, FULL);
        Ok(())
    }

    fn check_accesses(
        &mut self,
        kinds: Kinds,
        values: Option<&Values>,
        accesses: &[LaneAccess],
        group: &Group,
        cx: &mut Context,
    ) -> Result<(), Fault> {
        if kinds.reads {
            self.check_written(accesses, group, cx)?;
        }
        let Some(checks) = &mut cx.checks else { return Ok(()) };
        checks.visit += 1;
        if checks.checks.races {
            for access in accesses {
                if let Some(hazard) = self.touch(kinds, values, access, group, cx) {
                    return Err(self.race(kinds, access, &hazard, group, cx));
                }
            }
        }
        if kinds.writes {
            accesses.iter().for_each(|access| self.note_written(access, cx));
        }
        Ok(())
    }

    /// Returns what each lane accesses. An invalid access is a fault, as it is without checks.
    fn lane_accesses(
        &mut self,
        check: &Check,
        group: &Group,
        mask: u32,
        cx: &mut Context,
    ) -> Result<Vec<LaneAccess>, Fault> {
        let local = self.local();
        let registers = self.frame(group.frame).registers.start();
        let (address, bytes, mut pointers) = (&check.address, check.bytes, [0; LANES]);
        // SAFETY: the slots are in the frame, the view and the local memory are those of this block and warp.
        let (lengths, found) = unsafe {
            let lengths = match check.part {
                Some(part) => part.lengths(bytes, registers, mask),
                None => lengths_in(mask, |_| bytes),
            };
            let found = match check.part {
                Some(Part::Bulk(_)) => resolve_bulk(&mut pointers, address, &lengths, registers, &cx.view, local),
                _ => resolve_parts(&mut pointers, address, bytes, &lengths, registers, &mut cx.view, local),
            };
            (lengths, found)
        };
        found.map_err(|refused| self.refusal(&refused, group, cx))?;
        let access = |lane: usize| {
            let pointer = pointers[lane];
            LaneAccess { lane, spot: spot(pointer, local, cx), pointer, bytes: lengths[lane].into() }
        };
        Ok((0..LANES).filter(|lane| lengths[*lane] > 0).map(access).collect())
    }

    /// Raises a fault for a load of bytes that were never written.
    fn check_written(&mut self, accesses: &[LaneAccess], group: &Group, cx: &mut Context) -> Result<(), Fault> {
        let memory = cx.view.memory;
        let Some(checks) = cx.checks.as_mut().filter(|checks| checks.checks.uninitialised) else { return Ok(()) };
        let warp = self.index;
        let mut first_unwritten = |access: &LaneAccess| {
            let unwritten = |bytes: &[bool]| bytes.iter().position(|written| !written).map(|offset| offset as u64);
            match access.spot {
                Spot::Shared(offset) => unwritten(checks.written.shared(offset..offset + access.bytes)),
                Spot::Local(offset) => unwritten(checks.written.local(warp, offset..offset + access.bytes)),
                Spot::Device(address) => memory.first_unwritten(address, access.bytes),
            }
        };
        let found: Vec<_> = accesses.iter().filter_map(|access| Some((*access, first_unwritten(access)?))).collect();
        let Some(((access, skipped), others)) = found.split_first().map(|(first, rest)| (*first, rest.len())) else {
            return Ok(());
        };
        let bytes = access.bytes;
        let (space, explained) = match access.spot {
            Spot::Shared(offset) => {
                ("shared", format!("at {}, which the block has not written", cx.shared_place(offset + skipped)))
            }
            Spot::Local(offset) => {
                let offset = (offset + skipped) % self.lane_bytes;
                (
                    "local",
                    format!("at offset {offset} of the thread's local memory, which its function has not written"),
                )
            }
            Spot::Device(address) => {
                let place = describe_access(memory, address + skipped, 1);
                ("global", format!("{place}, which no kernel, copy or fill has written"))
            }
        };
        let what = format!("read of {bytes} uninitialised bytes in {space} memory");
        let kind = FaultKind::LaunchFailed;
        let fault = self.fault_among(kind, &what, group, access.lane as u32, others as u32, cx);
        Err(fault.with_line(&explained))
    }

    fn note_written(&self, access: &LaneAccess, cx: &mut Context) {
        let Some(checks) = cx.checks.as_mut().filter(|checks| checks.checks.uninitialised) else { return };
        match access.spot {
            Spot::Shared(offset) => checks.written.shared(offset..offset + access.bytes).fill(true),
            Spot::Local(offset) => checks.written.local(self.index, offset..offset + access.bytes).fill(true),
            Spot::Device(address) => cx.view.memory.note_written(address, access.bytes),
        }
    }

    /// Records a lane's access; returns the race that it is part of, if any.
    fn touch(
        &mut self,
        kinds: Kinds,
        values: Option<&Values>,
        access: &LaneAccess,
        group: &Group,
        cx: &mut Context,
    ) -> Option<Hazard> {
        let (warp, lane) = (self.index, access.lane as u32);
        let function = self.frame(group.frame).function;
        let registers = &self.frame(group.frame).registers;
        let value = |lane: usize| values.map(|(slots, wide)| registers.stored(slots, *wide, lane, access.bytes));
        let (mine, checks) = (value(access.lane), cx.checks.as_mut()?);
        if let Spot::Shared(offset) = access.spot {
            let (visit, pc) = (checks.visit, group.pc);
            let touch =
                Touch { thread: warp * LANES as u32 + lane, function, pc, visit, offset, bytes: access.bytes, kinds };
            let same = |earlier: &Stamp, at: u64, bytes: u64| {
                let Some(mine) = &mine else { return false };
                let part = (at - offset) as usize..(at - offset + bytes) as usize;
                if earlier.visit == visit {
                    // Another lane of this instruction, whose store is still to come.
                    return value(usize::from(earlier.thread) % LANES)
                        .is_some_and(|theirs| theirs[part.clone()] == mine[part]);
                }
                let stored = access.pointer + (at - offset);
                // SAFETY: the whole access was checked; the shared memory is this block's alone.
                let stored = unsafe { std::slice::from_raw_parts(stored as *const u8, bytes as usize) };
                stored == &mine[part]
            };
            if let Err(hazard) = checks.races.touch(&touch, &checks.clocks, same) {
                return Some(hazard);
            }
        }
        if kinds.strong && !matches!(access.spot, Spot::Local(_)) {
            checks.clocks.synchronise(access.pointer, warp, lane, kinds.reads, kinds.writes);
        }
        None
    }

    fn race(&mut self, kinds: Kinds, access: &LaneAccess, hazard: &Hazard, group: &Group, cx: &Context) -> Fault {
        let (what, did, does) = match hazard.kind {
            HazardKind::ReadAfterWrite if kinds.writes => ("read after write", "wrote", "changes"),
            HazardKind::ReadAfterWrite => ("read after write", "wrote", "reads"),
            HazardKind::WriteAfterRead => ("write after read", "read", "writes"),
            HazardKind::WriteAfterWrite => ("write after write", "wrote", "writes"),
        };
        let what = format!("race in shared memory: {what} without synchronization,");
        let fault = self.fault_in(FaultKind::LaunchFailed, &what, group, access.lane as u32, cx);
        let Stamp { thread, function, pc, .. } = hazard.earlier;
        let function = &cx.program.functions[usize::from(function)];
        let instruction = &function.code[pc as usize];
        let source = function.lines.describe(pc, cx.program.files_of(function));
        let place = code_place(source.as_deref(), instruction.line, &function.texts[instruction.text as usize]);
        let lanes = LANES as u32;
        let [x, y, z] = cx.thread(u32::from(thread) / lanes, u32::from(thread) % lanes);
        fault
            .with_line(&format!("{does} {} bytes at {}", access.bytes, cx.shared_place(hazard.offset)))
            .with_line(&format!("thread ({x}, {y}, {z}) {did} it at {place}"))
    }
}
