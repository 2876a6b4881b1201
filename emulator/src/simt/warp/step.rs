//! The main loop, which runs instructions.
//!
//! Frequent instructions run in [`straight`], jumps here, and all others in [`Warp::other`].

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::straight::{self, Loops};
use super::turns::Turns;
use super::{Group, Step, Wait, Warp};
use crate::clock;
use crate::fault::{Fault, FaultKind};
use crate::ops::lanes::{load_mask, put_lanes};
use crate::program::{Function, Instruction, Op};
use crate::simt::context::Context;
use crate::simt::{bulk, copy, texture};

/// Maximum duration of a `nanosleep`; a longer one is cut (PTX ISA, `nanosleep`).
const SLEEP_MAX: Duration = Duration::from_millis(1);

impl Warp {
    /// Runs one group until it ends, waits, splits off lanes that come first, or its turn is over.
    pub(super) fn run_group(&mut self, group: Group, turns: &mut Turns, cx: &mut Context) -> Result<Step, Fault> {
        let program = cx.program;
        let local = self.local();
        let (function, registers): (&Function, *mut u8) = {
            let frame = self.frame(group.frame);
            (&program.functions[frame.function], frame.registers.start())
        };
        let code: &[Instruction] = &function.code;
        let run = if cx.vector { straight::run::<true> } else { straight::run::<false> };
        let mut stop = self.next_stop(&group);
        // The changing state is separate from the group, whose address is passed on, so that it can stay in registers.
        let (mut pc, mut active) = (group.pc, group.mask);
        let live = self.live;
        let lanes = |active: u32| straight::Group { registers, active, live, local };
        'code: while pc < stop {
            // After a backward jump, another group may come first.
            let free = if self.groups.is_empty() { turns.free() } else { 0 };
            let mut loops = Loops { free, spent: 0 };
            // SAFETY: here and below, the slots of an instruction are inside the frame of its function, with planes
            // of the width that it uses: lowering hands them out and checks the widths. The view and the local memory
            // are those of this block and warp, and the vector build runs only where the machine has what it needs.
            let halted = unsafe { run(code, pc, stop, &lanes(active), &mut loops, &mut cx.view) };
            turns.take(free - loops.free);
            cx.spent += loops.spent;
            pc = match halted {
                Ok(pc) => pc,
                Err(refusal) => {
                    return Err(self.refusal(&refusal.1, &Group { pc: refusal.0, mask: active, ..group }, cx));
                }
            };
            if pc >= stop {
                break;
            }
            let instruction = &code[pc as usize];
            // SAFETY: see above.
            let guard = unsafe { load_mask(registers, instruction.guard) } ^ instruction.invert;
            let mask = active & guard;
            let (mask, target) = 'jump: {
                match &instruction.op {
                    _ if mask == 0 => {}
                    Op::Jump(target) => break 'jump (mask, *target),
                    Op::Shuffle(_) | Op::Vote(_) | Op::Match(_) | Op::Reduce(_)
                        if self.exchange_at_once(&instruction.op, group.frame, mask, cx) => {}
                    // The whole warp reaches a barrier for all threads, as it mostly does.
                    Op::Barrier(barrier) if mask == self.live && barrier.all.is_some() => {
                        let group = Group { pc, mask, ..group };
                        return self.halt(barrier, &group, cx).map(Step::Kept);
                    }
                    // The whole warp exits at once, as most warps do.
                    Op::Exit | Op::Return if group.frame == 0 && mask == self.live => {
                        self.live = 0;
                        return Ok(Step::Gone);
                    }
                    op => {
                        let group = Group { pc, mask: active, ..group };
                        if let Some(step) = self.other(op, &group, registers, mask, turns, cx)? {
                            return Ok(step);
                        }
                    }
                }
                pc += 1;
                continue 'code;
            };
            let from = pc;
            if mask == active {
                pc = target;
            } else {
                let split = self.split(Group { pc, mask: active, ..group }, mask, target);
                (pc, active) = (split.pc, split.mask);
                stop = stop.min(target.max(from + 1));
            }
            if target <= from {
                cx.spent += u64::from(from - target) + 1;
                // Usually no other group waits for a turn.
                if self.groups.is_empty() && turns.free() > 0 && cx.must_stop().is_none() {
                    turns.take(1);
                    continue 'code;
                }
                let group = Group { pc, mask: active, ..group };
                stop = self.next_stop(&group);
                self.count(0, &group, cx)?;
                if let Some(step) = self.turn(&group, turns) {
                    return Ok(step);
                }
            }
        }
        Ok(Step::Kept(Group { pc, mask: active, ..group }))
    }

    /// Sends the lanes of `mask`, a part of the group, to `target`. The part with the lower position continues.
    fn split(&mut self, group: Group, mask: u32, target: u32) -> Group {
        let taken = Group { pc: target, mask, ..group };
        let passed = Group { pc: group.pc + 1, mask: group.mask & !mask, ..group };
        let (first, second) = if target <= group.pc { (taken, passed) } else { (passed, taken) };
        self.add(second);
        first
    }

    /// Counts a loop iteration; returns a step if it was the group's last for now.
    #[inline(always)]
    fn turn(&self, group: &Group, turns: &mut Turns) -> Option<Step> {
        if turns.are_over_for_group() && self.groups.iter().any(|other| other.wait == Wait::None) {
            return Some(Step::Tired(*group));
        }
        turns.are_over().then_some(Step::Kept(*group))
    }

    /// Runs the less frequent instructions in the lanes of `mask`, which is not empty. If it returns no step, the group
    /// continues behind the instruction.
    #[inline(never)]
    fn other(
        &mut self,
        op: &Op,
        group: &Group,
        registers: *mut u8,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        let local = self.local();
        match op {
            Op::CopyAsync(copy) => {
                // SAFETY: the slots are in the frame, the view and the local memory are those of this block and warp.
                unsafe { copy::run(copy, registers, mask, &mut cx.view, local) }
                    .map_err(|refused| self.refusal(&refused, group, cx))?;
            }
            Op::CopyBulk(copy) => {
                // SAFETY: as above.
                unsafe { bulk::run(copy, registers, mask, &mut cx.view, local) }
                    .map_err(|failed| self.failure(failed, group, cx))?;
            }
            Op::Check(check) => self.check(check, group, mask, cx)?,
            Op::Matrix(matrix) => return self.together(matrix, group, mask, cx),
            Op::Texture(operation) => {
                // SAFETY: the slots are in the frame, with the widths that lowering gave them.
                unsafe { texture::run(operation, registers, mask, &mut cx.view) }
                    .map_err(|misuse| self.misuse(&misuse, group, cx))?;
            }
            Op::Missing => {
                return Err(self.fault(FaultKind::IllegalInstruction, "unsupported instruction", group, cx));
            }
            Op::Shuffle(_) | Op::Vote(_) | Op::Match(_) | Op::Reduce(_) | Op::Elect(_) => {
                return self.exchange(op, group, mask, cx);
            }
            Op::WarpBarrier { mask: slot } => return self.meet(group, mask, *slot, cx),
            Op::Barrier(barrier) => return self.arrive(barrier, group, mask, turns, cx).map(Some),
            Op::Phase(operation) => return self.phase(operation, group, mask, turns, cx),
            Op::Cluster { waits } => return self.cluster(*waits, group, mask, turns, cx),
            Op::JumpTable { index, targets } => {
                return self.jump_table(group, mask, *index, targets, turns, cx).map(Some);
            }
            Op::Call(call) => {
                let group = self.detached(group, mask);
                self.count(1, &group, cx)?;
                return self.call(call, group, cx).map(Some);
            }
            Op::Exit => {
                self.exit(group.frame, mask, cx);
                return Ok(Some(rest(group, mask)));
            }
            Op::Return => {
                if group.frame == 0 {
                    self.exit(0, mask, cx);
                } else {
                    self.return_lanes(group.frame, mask, cx);
                }
                return Ok(Some(rest(group, mask)));
            }
            Op::Trap => return Err(self.fault(FaultKind::LaunchFailed, "trap", &Group { mask, ..*group }, cx)),
            Op::Breakpoint => {
                return Err(self.fault(FaultKind::LaunchFailed, "breakpoint", &Group { mask, ..*group }, cx));
            }
            Op::Fence => fence(Ordering::SeqCst),
            Op::Sleep { nanoseconds } => return self.sleep(*nanoseconds, group, mask, turns, cx).map(Some),
            Op::Clock { d, wide, shift } => {
                let now = clock::now() >> shift;
                let registers = &mut self.frame(group.frame).registers;
                if *wide {
                    put_lanes(registers.doubles(*d), now, mask);
                } else {
                    put_lanes(registers.words(*d), now as u32, mask);
                }
            }
            Op::ActiveMask { d } => put_lanes(self.frame(group.frame).registers.words(*d), mask, mask),
            Op::Lanes { .. }
            | Op::Predicate { .. }
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::Jump(_)
            | Op::Branch { .. } => unreachable!("the loops themselves handle these"),
        }
        Ok(None)
    }

    /// Ends the warp's turn; the warp sleeps for the longest of the lanes' times.
    fn sleep(
        &mut self,
        slot: u32,
        group: &Group,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Step, Fault> {
        self.count(1, group, cx)?;
        let times = self.frame(group.frame).registers.words(slot).iter().enumerate();
        let longest = times.filter(|(lane, _)| mask >> lane & 1 != 0).map(|(_, time)| *time).max().unwrap_or(0);
        self.asleep = Some(Instant::now() + Duration::from_nanos(longest.into()).min(SLEEP_MAX));
        turns.end();
        Ok(Step::Tired(Group { pc: group.pc + 1, ..*group }))
    }

    fn jump_table(
        &mut self,
        group: &Group,
        mask: u32,
        index: u32,
        targets: &[u32],
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Step, Fault> {
        let indices = *self.frame(group.frame).registers.words(index);
        self.count(1, group, cx)?;
        for (lane, index) in indices.iter().enumerate().filter(|(lane, _)| mask >> lane & 1 != 0) {
            match targets.get(*index as usize) {
                Some(target) => self.add(Group { pc: *target, mask: 1 << lane, ..*group }),
                None => {
                    let what = format!("branch index {index} outside a table of {} targets", targets.len());
                    return Err(self.fault_in(FaultKind::IllegalInstruction, &what, group, lane as u32, cx));
                }
            }
        }
        // Any of the targets may be backwards.
        if turns.are_over_for_group() {
            self.schedule.pass(group.mask, &self.groups);
        }
        Ok(rest(group, mask))
    }

    /// Returns the next place where another group of this frame waits to be merged.
    fn next_stop(&self, group: &Group) -> u32 {
        let others = self.groups.iter().filter(|other| other.frame == group.frame && other.wait == Wait::None);
        others.map(|other| other.pc).filter(|pc| *pc > group.pc).min().unwrap_or(u32::MAX)
    }

    /// Splits the lanes of `mask` off; the rest of the group continues behind the instruction.
    pub(super) fn detached(&mut self, group: &Group, mask: u32) -> Group {
        if mask != group.mask {
            self.add(Group { pc: group.pc + 1, mask: group.mask & !mask, ..*group });
        }
        Group { mask, ..*group }
    }
}

/// Returns the remaining step of a group whose lanes in `mask` went elsewhere.
fn rest(group: &Group, mask: u32) -> Step {
    let rest = group.mask & !mask;
    if rest == 0 { Step::Gone } else { Step::Kept(Group { pc: group.pc + 1, mask: rest, ..*group }) }
}
