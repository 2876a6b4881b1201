//! Where lanes wait for each other: warp barriers, operations of several lanes, the barriers of the block.

use super::step::Turns;
use super::{Group, Pause, Step, Wait, Warp};
use crate::fault::{Fault, FaultKind};
use crate::lower::code::{Barrier, BarrierKind, NO_SLOT, Op};
use crate::ops::lanes::{FULL, put_lanes, store_mask};
use crate::simt::block::{Context, describe_standings};
use crate::simt::collective;

impl Warp {
    /// `bar.warp.sync`: goes on once all lanes that `slot` names are at such a barrier.
    pub(super) fn meet(&mut self, group: &Group, mask: u32, slot: u32) -> Option<Step> {
        let needed = self.lane_word(group.frame, slot, mask);
        self.await_lanes(group, mask, needed, Wait::WarpBarrier(needed))
    }

    /// Shuffles, votes and the like, which need all their lanes at this very instruction.
    pub(super) fn exchange(&mut self, op: &Op, group: &Group, mask: u32) -> Option<Step> {
        let needed = self.lane_word(group.frame, collective::member_slot(op), mask);
        let waits = self.await_lanes(group, mask, needed, Wait::Lanes(needed));
        if waits.is_none() {
            let members = needed & self.live;
            collective::run(op, &mut self.frame(group.frame).registers, mask, members);
        }
        waits
    }

    /// Lets the lanes of `mask` wait where others that they need have not come yet.
    fn await_lanes(&mut self, group: &Group, mask: u32, needed: u32, wait: Wait) -> Option<Step> {
        if needed & self.live & !mask == 0 {
            return None;
        }
        let group = self.detached(group, mask);
        Some(Step::Kept(Group { wait, ..group }))
    }

    /// Lanes come to a barrier of the block.
    pub(super) fn arrive(
        &mut self,
        barrier: &Barrier,
        group: &Group,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Step, Fault> {
        let group = self.detached(group, mask);
        let id = self.lane_word(group.frame, barrier.id, mask);
        let threads = (barrier.threads != NO_SLOT).then(|| self.lane_word(group.frame, barrier.threads, mask));
        let votes = match barrier.kind {
            BarrierKind::Sync | BarrierKind::Arrive => 0,
            BarrierKind::Count | BarrierKind::And | BarrierKind::Or => {
                let invert = if barrier.invert { FULL } else { 0 };
                (self.frame(group.frame).registers.mask(barrier.p) ^ invert) & mask
            }
        };
        if let Err(what) = cx.arrive(id, threads, mask.count_ones(), votes.count_ones()) {
            return Err(self.fault(FaultKind::LaunchFailed, what, &group, cx));
        }
        if barrier.kind != BarrierKind::Arrive {
            return Ok(Step::Kept(Group { wait: Wait::Barrier(id), ..group }));
        }
        // The barrier may be complete now: those who wait at it should hear of it.
        turns.end();
        Ok(Step::Kept(Group { pc: group.pc + 1, ..group }))
    }

    /// Lets groups on whose awaited lanes have come, or have exited.
    pub(super) fn release_waiting(&mut self) -> bool {
        let live = self.live;
        let at_barrier: u32 =
            self.groups.iter().filter(|g| matches!(g.wait, Wait::WarpBarrier(_))).map(|g| g.mask).sum();
        let mut released = false;
        for group in &mut self.groups {
            let come = match group.wait {
                Wait::Lanes(needed) => needed & live & !group.mask == 0,
                Wait::WarpBarrier(needed) => needed & live & !at_barrier == 0,
                Wait::None | Wait::Barrier(_) => false,
            };
            if come {
                if matches!(group.wait, Wait::WarpBarrier(_)) {
                    group.pc += 1;
                }
                group.wait = Wait::None;
                released = true;
            }
        }
        released
    }

    /// Nothing can run: waiting at the block's barrier is fine where all lanes wait at the same one.
    pub(super) fn check_waiting(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        let stuck = self.groups.iter().find(|group| matches!(group.wait, Wait::Lanes(_) | Wait::WarpBarrier(_)));
        if let Some(group) = stuck.copied() {
            let what = "an instruction for several lanes waits for lanes that do not come to it,";
            return Err(self.stuck(what, &group, cx));
        }
        let first = self.groups[0];
        let elsewhere = self.groups.iter().find(|group| (group.frame, group.pc) != (first.frame, first.pc)).copied();
        if let Some(group) = elsewhere
            && self.barrier_is_aligned(&first, cx)
            && self.barrier_is_aligned(&group, cx)
        {
            let what = "divergent barrier: the lanes of a warp wait at different barrier instructions,";
            return Err(self.stuck(what, &group, cx));
        }
        Ok(Pause::Waiting)
    }

    /// A fault of lanes that wait for others in their warp, and where all of them are.
    #[cold]
    fn stuck(&mut self, what: &str, group: &Group, cx: &Context) -> Fault {
        let mut fault = self.fault(FaultKind::LaunchFailed, what, group, cx);
        let missing = match group.wait {
            Wait::Lanes(needed) | Wait::WarpBarrier(needed) => needed & self.live & !group.mask,
            Wait::None | Wait::Barrier(_) => 0,
        };
        if missing != 0 {
            fault = fault.with_line(&format!("it waits for lanes {missing:#010x} of warp {}", self.index));
        }
        for line in describe_standings(self.standings(cx)) {
            fault = fault.with_line(&line);
        }
        fault
    }

    fn barrier_is_aligned(&mut self, group: &Group, cx: &Context) -> bool {
        let function = self.frame(group.frame).function;
        let op = &cx.program.functions[function].code[group.pc as usize].op;
        matches!(op, Op::Barrier(barrier) if barrier.aligned)
    }

    /// The place of the first group that waits at barrier `id`, for reports.
    pub fn waiting_fault(&mut self, what: &str, cx: &Context) -> Option<Fault> {
        let group = self.groups.iter().find(|group| matches!(group.wait, Wait::Barrier(_))).copied()?;
        Some(self.fault(FaultKind::LaunchFailed, what, &group, cx))
    }

    /// Lets the lanes on that wait at barrier `id`, with the barrier's result.
    pub fn release(&mut self, id: u32, count: u32, cx: &Context) {
        for index in 0..self.groups.len() {
            let group = self.groups[index];
            if group.wait != Wait::Barrier(id) {
                continue;
            }
            let frame = self.frame(group.frame);
            if let Op::Barrier(barrier) = &cx.program.functions[frame.function].code[group.pc as usize].op {
                let outcome = cx.barriers[id as usize];
                let registers = frame.registers.start();
                match barrier.kind {
                    // SAFETY: the slots of an instruction lie inside the frame of its function.
                    BarrierKind::And => unsafe {
                        store_mask(registers, barrier.d, outcome.all_mask(count), group.mask)
                    },
                    // SAFETY: as above.
                    BarrierKind::Or => unsafe { store_mask(registers, barrier.d, outcome.any_mask(), group.mask) },
                    BarrierKind::Count => put_lanes(frame.registers.words(barrier.d), outcome.votes, group.mask),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.groups[index].wait = Wait::None;
            self.groups[index].pc += 1;
        }
        // Groups that came to the barrier one after the other leave it together.
        for group in std::mem::take(&mut self.groups) {
            self.add(group);
        }
    }

    fn lane_word(&mut self, frame: usize, slot: u32, mask: u32) -> u32 {
        self.frame(frame).registers.words(slot)[mask.trailing_zeros() as usize]
    }
}
