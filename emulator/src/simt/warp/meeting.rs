//! Synchronisation of lanes: warp barriers, warp-level operations, and barriers of the block.

use super::turns::Turns;
use super::{Group, Pause, Step, Wait, Warp};
use crate::fault::{Fault, FaultKind};
use crate::ops::lanes::{FULL, LANES, NO_SLOT, mask_of, put_lanes, store_mask};
use crate::program::Op;
use crate::program::matrix::Matrix;
use crate::program::warp::{Barrier, BarrierKind};
use crate::simt::block::describe_standings;
use crate::simt::context::{Coming, Context};
use crate::simt::{collective, matrix};

impl Warp {
    /// `bar.warp.sync`: continues when all lanes of the mask in `slot` are at such a barrier.
    pub(super) fn meet(
        &mut self,
        group: &Group,
        mask: u32,
        slot: u32,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        let (alike, needed) = self.members(group, mask, slot, cx)?;
        let waits = self.await_lanes(&alike, mask & alike.mask, needed, Wait::WarpBarrier(needed));
        if waits.is_none() {
            cx.met(self.index, needed & self.live);
        }
        Ok(waits.or_else(|| passed(&alike, group)))
    }

    /// Runs a shuffle, a vote or the like, for which all members have to be at this instruction.
    pub(super) fn exchange(
        &mut self,
        op: &Op,
        group: &Group,
        mask: u32,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        let (alike, needed) = self.members(group, mask, collective::member_slot(op), cx)?;
        let mask = mask & alike.mask;
        let waits = self.await_lanes(&alike, mask, needed, Wait::Lanes(needed));
        if waits.is_none() {
            let members = needed & self.live;
            collective::run(op, &mut self.frame(alike.frame).registers, mask, members, cx.vector);
            cx.met(self.index, members);
        }
        Ok(waits.or_else(|| passed(&alike, group)))
    }

    /// Runs an operation like [`Warp::exchange`] if all members are present and agree on the membermask; otherwise
    /// returns false and does nothing.
    pub(super) fn exchange_at_once(&mut self, op: &Op, frame: usize, mask: u32, cx: &mut Context) -> bool {
        let live = self.live;
        let registers = &mut self.frame(frame).registers;
        let words = registers.words(collective::member_slot(op));
        let needed = words[mask.trailing_zeros() as usize];
        if equal_lanes(words, mask) != mask || mask & !needed != 0 || needed & live & !mask != 0 {
            return false;
        }
        collective::run(op, registers, mask, needed & live, cx.vector);
        cx.met(self.index, needed & live);
        true
    }

    /// Returns the lanes of `mask` that name the same members as its first lane, and those members. Lanes at one
    /// instruction may belong to different sets; the others stay behind for now.
    fn members(&mut self, group: &Group, mask: u32, slot: u32, cx: &Context) -> Result<(Group, u32), Fault> {
        let words = *self.frame(group.frame).registers.words(slot);
        let needed = words[mask.trailing_zeros() as usize];
        let same = equal_lanes(&words, mask);
        let strangers = same & !needed;
        if strangers != 0 {
            let what = format!("the lane is not in its own member mask {needed:#010x}");
            return Err(self.fault_in(FaultKind::LaunchFailed, &what, group, strangers.trailing_zeros(), cx));
        }
        Ok((if same == mask { *group } else { self.narrowed(group, same) }, needed))
    }

    /// Splits the lanes of `mask` off; the rest of the group stays at the instruction.
    fn narrowed(&mut self, group: &Group, mask: u32) -> Group {
        if mask != group.mask {
            self.add(Group { mask: group.mask & !mask, ..*group });
        }
        Group { mask, ..*group }
    }

    /// Runs an instruction of the whole warp, after all lanes have reached it.
    pub(super) fn together(
        &mut self,
        matrix: &Matrix,
        group: &Group,
        mask: u32,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        if self.live != FULL {
            let what = format!("a warp-wide instruction in a warp with only {} live threads", self.live.count_ones());
            return Err(self.fault(FaultKind::LaunchFailed, &what, &Group { mask, ..*group }, cx));
        }
        let waits = self.await_lanes(group, mask, FULL, Wait::Lanes(FULL));
        if waits.is_some() {
            return Ok(waits);
        }
        if cx.checks.is_some() {
            self.check_matrix(matrix, group, cx)?;
        }
        let local = self.local();
        let registers = &mut self.frame(group.frame).registers;
        match matrix::run(matrix, registers, &mut cx.view, local, cx.vector, &mut cx.matrices) {
            Ok(()) => Ok(None),
            Err(matrix::Failed::Access(refused)) => Err(self.refusal(&refused, group, cx)),
            Err(matrix::Failed::Operands(kind, what)) => Err(self.fault(kind, &what, group, cx)),
        }
    }

    /// Lets the lanes of `mask` wait if lanes that they need have not arrived yet.
    fn await_lanes(&mut self, group: &Group, mask: u32, needed: u32, wait: Wait) -> Option<Step> {
        if needed & self.live & !mask == 0 {
            return None;
        }
        let group = self.detached(group, mask);
        Some(Step::Kept(Group { wait, ..group }))
    }

    /// The whole warp arrives at a barrier with a constant number that waits for all threads.
    pub(super) fn halt(&mut self, barrier: &Barrier, group: &Group, cx: &mut Context) -> Result<Group, Fault> {
        // A loop may consist only of barriers.
        self.count(1, group, cx)?;
        let id = barrier.all.expect("only such barriers come here");
        let coming = Coming { lanes: group.mask.count_ones(), exited: 0, votes: 0 };
        if let Err(what) = cx.arrive(id, None, coming) {
            return Err(self.fault(FaultKind::LaunchFailed, what, group, cx));
        }
        if let Some(checks) = &mut cx.checks {
            checks.clocks.arrive(id, self.index, group.mask);
        }
        Ok(Group { wait: Wait::Barrier(id), ..*group })
    }

    /// Lanes arrive at a barrier of the block.
    ///
    /// A barrier for a number of threads counts whole warps: exited lanes of a warp count as soon as its first lane has
    /// arrived.
    pub(super) fn arrive(
        &mut self,
        barrier: &Barrier,
        group: &Group,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Step, Fault> {
        self.count(1, group, cx)?;
        let id = self.lane_word(group.frame, barrier.id, mask);
        let mut same = equal_lanes(self.frame(group.frame).registers.words(barrier.id), mask);
        let threads = (barrier.threads != NO_SLOT).then(|| self.lane_word(group.frame, barrier.threads, mask));
        if threads.is_some() {
            same &= equal_lanes(self.frame(group.frame).registers.words(barrier.threads), mask);
        }
        let group = if same == mask { self.detached(group, mask) } else { self.narrowed(group, same) };
        let mask = same;
        if barrier.kind == BarrierKind::Arrive && self.live & !mask != 0 {
            return Ok(Step::Kept(Group { wait: Wait::Lanes(self.live), ..group }));
        }
        let votes = match barrier.kind {
            BarrierKind::Sync | BarrierKind::Arrive => 0,
            BarrierKind::Count | BarrierKind::And | BarrierKind::Or => {
                let invert = if barrier.invert { FULL } else { 0 };
                (self.frame(group.frame).registers.mask(barrier.p) ^ invert) & mask
            }
        };
        let is_first = self.groups.iter().all(|other| other.wait != Wait::Barrier(id));
        let exited = if is_first { LANES as u32 - self.live.count_ones() } else { 0 };
        let coming = Coming { lanes: mask.count_ones(), exited, votes: votes.count_ones() };
        if let Err(what) = cx.arrive(id, threads, coming) {
            return Err(self.fault(FaultKind::LaunchFailed, what, &group, cx));
        }
        if let Some(checks) = &mut cx.checks {
            checks.clocks.arrive(id, self.index, mask);
        }
        if barrier.kind != BarrierKind::Arrive {
            return Ok(Step::Kept(Group { wait: Wait::Barrier(id), ..group }));
        }
        // The barrier may be complete now, so the waiting warps should get their turn.
        turns.end();
        Ok(Step::Kept(Group { pc: group.pc + 1, ..group }))
    }

    /// Lanes exit while others of the warp wait at barriers; barriers that count whole warps count them as arrived.
    pub(super) fn leave_barriers(&self, mask: u32, cx: &mut Context) {
        let mut told = 0u32;
        for group in &self.groups {
            if let Wait::Barrier(id) = group.wait
                && told >> id & 1 == 0
            {
                told |= 1 << id;
                cx.barriers[id as usize].exit(mask.count_ones());
            }
        }
    }

    /// Releases groups whose awaited lanes have arrived or exited.
    pub(super) fn release_waiting(&mut self, cx: &mut Context) {
        let live = self.live;
        let at_barrier: u32 =
            self.groups.iter().filter(|g| matches!(g.wait, Wait::WarpBarrier(_))).map(|g| g.mask).sum();
        let mut met = 0;
        for group in &mut self.groups {
            let come = match group.wait {
                Wait::Lanes(needed) => needed & live & !group.mask == 0,
                Wait::WarpBarrier(needed) => needed & live & !at_barrier == 0,
                Wait::None | Wait::Barrier(_) | Wait::Cluster => false,
            };
            if come {
                if matches!(group.wait, Wait::WarpBarrier(_)) {
                    group.pc += 1;
                    met |= group.mask;
                }
                group.wait = Wait::None;
            }
        }
        if met != 0 {
            cx.met(self.index, met);
        }
    }

    /// Checks why nothing can run: waiting at the block's barrier is valid if all lanes wait at one barrier.
    pub(super) fn check_waiting(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        let stuck = self.groups.iter().find(|group| matches!(group.wait, Wait::Lanes(_) | Wait::WarpBarrier(_)));
        if let Some(group) = stuck.copied() {
            let what = "a warp-level instruction waits for lanes that never reach it,";
            return Err(self.stuck(what, &group, cx));
        }
        let first = self.groups[0];
        let place = self.place_in_code(&first);
        let elsewhere = self.groups.iter().find(|group| self.place_in_code(group) != place).copied();
        if let Some(group) = elsewhere
            && self.barrier_is_aligned(&first, cx)
            && self.barrier_is_aligned(&group, cx)
        {
            let what = "divergent barrier: the lanes of a warp wait at different barrier instructions,";
            return Err(self.stuck(what, &group, cx));
        }
        Ok(Pause::Waiting)
    }

    /// Makes the fault for lanes that wait forever for others in their warp, with the places of all lanes.
    #[cold]
    fn stuck(&mut self, what: &str, group: &Group, cx: &Context) -> Fault {
        let mut fault = self.fault(FaultKind::LaunchFailed, what, group, cx);
        let missing = match group.wait {
            Wait::Lanes(needed) | Wait::WarpBarrier(needed) => needed & self.live & !group.mask,
            Wait::None | Wait::Barrier(_) | Wait::Cluster => 0,
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

    /// Makes a fault at the first group that waits at a barrier of the block or the cluster.
    pub fn waiting_fault(&mut self, what: &str, cx: &Context) -> Option<Fault> {
        let group = self.groups.iter().find(|group| matches!(group.wait, Wait::Barrier(_) | Wait::Cluster)).copied()?;
        Some(self.fault(FaultKind::LaunchFailed, what, &group, cx))
    }

    /// Returns the lanes that wait at barrier `id`.
    pub fn waiting_at(&self, id: u32) -> u32 {
        self.groups.iter().filter(|group| group.wait == Wait::Barrier(id)).fold(0, |lanes, group| lanes | group.mask)
    }

    /// Releases the lanes that wait at barrier `id`, with the barrier's result.
    pub fn release(&mut self, id: u32, voters: u32, cx: &Context) {
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
                    // SAFETY: the slots of an instruction are inside the frame of its function.
                    BarrierKind::And => unsafe {
                        store_mask(registers, barrier.d, outcome.all_mask(voters), group.mask)
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
        // Groups that reached the barrier one after the other leave it together.
        if self.groups.len() > 1 {
            for group in std::mem::take(&mut self.groups) {
                self.add(group);
            }
        }
    }

    fn lane_word(&mut self, frame: usize, slot: u32, mask: u32) -> u32 {
        self.frame(frame).registers.words(slot)[mask.trailing_zeros() as usize]
    }
}

/// Returns the remaining step after an instruction ran for `alike`: a group that was split off continues as a group, an
/// unchanged one continues by itself.
fn passed(alike: &Group, group: &Group) -> Option<Step> {
    (alike.mask != group.mask).then(|| Step::Kept(Group { pc: alike.pc + 1, ..*alike }))
}

/// Returns the lanes of `mask` whose word equals that of the first of them.
fn equal_lanes(words: &[u32; LANES], mask: u32) -> u32 {
    let first = words[mask.trailing_zeros() as usize];
    let mut flags = [0; LANES];
    for lane in 0..LANES {
        flags[lane] = if words[lane] == first { u32::MAX } else { 0 };
    }
    mask_of(&flags) & mask
}
