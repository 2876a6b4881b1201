//! Calls, returns and exits: lanes that enter and leave frames.

use super::{Group, Step, Wait, Warp};
use crate::fault::{Fault, FaultKind};
use crate::ops::lanes::LANES;
use crate::program::memory::{FUNCTION_STRIDE, FUNCTION_WINDOW};
use crate::program::{Call, Callee, Op};
use crate::simt::builtin;
use crate::simt::context::Context;
use crate::simt::frames::{Caller, Frame};

/// Bytes of a thread's stack that a call takes in addition to the function's local memory. Devices save at least the
/// return address and a register or two, in units of 16 bytes.
const CALL_STACK_BYTES: u32 = 16;

/// Maximum bytes of the registers of all active calls of a warp: a thousand frames of five hundred registers. Diverged
/// lanes have frames of their own, so a limit on the depth would not suffice.
const CALL_BYTES_MAX: u64 = 64 << 20;

impl Warp {
    pub(super) fn exit(&mut self, frame: usize, mask: u32, cx: &mut Context) {
        self.live &= !mask;
        self.leave_barriers(mask, cx);
        let mut left = vec![(frame, mask)];
        while let Some((index, mask)) = left.pop() {
            if index != 0 {
                let callers = self.frame(index).callers().filter(|caller| caller.lanes & mask != 0);
                left.extend(callers.map(|caller| (caller.frame, caller.lanes & mask)));
                self.leave(index, mask, cx);
            }
        }
    }

    /// Moves a group that waits for other lanes into one frame with those that wait at the same instruction. Lanes that
    /// enter a function at different times, or from different places, have separate frames until they meet in this way.
    pub(super) fn join_others(&mut self, group: Group, cx: &mut Context) -> Group {
        if group.frame == 0 || !matches!(group.wait, Wait::Lanes(_)) {
            return group;
        }
        let place = self.place_in_code(&group);
        for index in 0..self.groups.len() {
            let other = self.groups[index];
            if other.frame == group.frame || other.wait != group.wait || self.place_in_code(&other) != place {
                continue;
            }
            // With recursion, the lanes may also be in the other frame, as callers.
            if self.frame(other.frame).lanes & group.mask == 0 {
                self.move_lanes(group.frame, other.frame, group.mask, cx);
                return Group { frame: other.frame, depth: other.depth, ..group };
            }
            if self.frame(group.frame).lanes & other.mask == 0 {
                self.move_lanes(other.frame, group.frame, other.mask, cx);
                self.groups[index] = Group { frame: group.frame, depth: group.depth, ..other };
                return group;
            }
        }
        group
    }

    /// Moves lanes to another frame of their function.
    fn move_lanes(&mut self, from: usize, to: usize, mask: u32, cx: &mut Context) {
        let Ok([Some(source), Some(target)]) = self.frames.get_disjoint_mut([from, to]) else {
            unreachable!("a group's frame lives as long as the group")
        };
        target.join(source, &cx.program.functions[source.function].planes, mask);
        self.leave(from, mask, cx);
    }

    /// Returns the function and the place of a group.
    pub(super) fn place_in_code(&self, group: &Group) -> (usize, u32) {
        let frame = self.frames[group.frame].as_ref().expect("a group's frame lives as long as the group");
        (frame.function, group.pc)
    }

    /// Removes lanes from a frame; the last ones free it.
    fn leave(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let frame = self.frame(index);
        frame.leave(mask);
        if frame.lanes == 0 {
            let frame = self.frames[index].take().expect("looked at just now");
            self.call_bytes -= u64::from(cx.program.functions[frame.function].frame_bytes);
            cx.spare.give(frame.function, frame.registers);
        }
    }

    pub(super) fn return_lanes(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let first = self.frame(index).caller;
        if first.lanes & mask == mask {
            self.return_to(first, index, mask, cx);
        } else {
            let callers: Vec<Caller> = self.frame(index).callers().filter(|caller| caller.lanes & mask != 0).collect();
            callers.into_iter().for_each(|caller| self.return_to(caller, index, caller.lanes & mask, cx));
        }
        self.leave(index, mask, cx);
    }

    /// Passes the results of frame `index` to a caller, whose lanes in `mask` continue.
    fn return_to(&mut self, caller: Caller, index: usize, mask: u32, cx: &Context) {
        let program = cx.program;
        let Caller { frame: parent, return_pc, .. } = caller;
        let (function, calling) = (self.frame(index).function, self.frame(parent).function);
        if let Op::Call(call) = &program.functions[calling].code[return_pc as usize - 1].op {
            for (from, to) in program.functions[function].results.iter().zip(&call.results) {
                let values = *self.frame(index).registers.words(*from);
                let target = self.frame(parent).registers.words(*to);
                for lane in 0..LANES {
                    target[lane] = if mask >> lane & 1 != 0 { values[lane] } else { target[lane] };
                }
            }
        }
        let depth = self.frame(parent).depth;
        self.add(Group { frame: parent, depth, pc: return_pc, mask, wait: Wait::None });
    }

    pub(super) fn call(&mut self, call: &Call, group: Group, cx: &mut Context) -> Result<Step, Fault> {
        match call.callee {
            Callee::Function(index) => self.enter(call, index, group, cx),
            Callee::Register(slot) => {
                let addresses = *self.frame(group.frame).registers.doubles(slot);
                let first = group.mask.trailing_zeros() as usize;
                let address = addresses[first];
                let same = (0..LANES).filter(|lane| addresses[*lane] == address).fold(0, |mask, lane| mask | 1 << lane);
                let mask = group.mask & same;
                if mask != group.mask {
                    self.add(Group { mask: group.mask & !mask, ..group });
                }
                let group = Group { mask, ..group };
                match called(address, call, cx) {
                    Some(index) => self.enter(call, index, group, cx),
                    None => {
                        let what = format!("call to {address:#x}, which is not a function with these parameters");
                        Err(self.fault(FaultKind::LaunchFailed, &what, &group, cx))
                    }
                }
            }
            _ => {
                let local = self.local();
                let registers = &mut self.frame(group.frame).registers;
                match builtin::run(call, registers, group.mask, cx, local) {
                    Ok(()) => Ok(Step::Kept(Group { pc: group.pc + 1, ..group })),
                    Err(builtin::Failed::Access(refused)) => Err(self.refusal(&refused, &group, cx)),
                    Err(builtin::Failed::Assertion(lane, text)) => {
                        Err(self.fault_in(FaultKind::Assert, &text, &group, lane, cx))
                    }
                }
            }
        }
    }

    /// Enters a function with the lanes of the group.
    fn enter(&mut self, call: &Call, index: usize, group: Group, cx: &mut Context) -> Result<Step, Fault> {
        let program = cx.program;
        let callee = &program.functions[index];
        let (depth, local, stack) = {
            let caller = self.frame(group.frame);
            let local = u64::from(caller.local) + program.functions[caller.function].frame_locals();
            let stack = caller.stack.saturating_add(CALL_STACK_BYTES).saturating_add(callee.frame_locals() as u32);
            (caller.depth + 1, local, stack)
        };
        let call_bytes = self.call_bytes + u64::from(callee.frame_bytes);
        let local_bytes = local + u64::from(callee.local_bytes);
        if stack > cx.stack_bytes || call_bytes > CALL_BYTES_MAX || local_bytes > self.lane_bytes {
            let what = format!("stack overflow at a depth of {depth} calls");
            let fault = self.fault(FaultKind::IllegalAddress, &what, &group, cx);
            let limit = format!("a thread's stack has {} bytes; CU_LIMIT_STACK_SIZE sets it", cx.stack_bytes);
            return Err(fault.with_line(&limit));
        }
        if let Some(checks) = &mut cx.checks {
            checks.enter_frame(self.index, group.mask, local, callee.local_bytes.into());
        }
        self.call_bytes = call_bytes;
        let mut registers = cx.registers(index, self.index, local as u32);
        for (from, to) in call.arguments.iter().zip(&callee.params) {
            *registers.words(*to) = *self.frame(group.frame).registers.words(*from);
        }
        let frame = Frame {
            function: index,
            registers,
            caller: Caller { frame: group.frame, return_pc: group.pc + 1, lanes: group.mask },
            joined: Vec::new(),
            depth,
            lanes: group.mask,
            local: local as u32,
            stack,
        };
        let place = match self.frames.iter().position(Option::is_none) {
            Some(place) => {
                self.frames[place] = Some(frame);
                place
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        Ok(Step::Kept(Group { frame: place, depth, pc: 0, mask: group.mask, wait: Wait::None }))
    }
}

/// Returns the function at an address, if its signature matches the call.
fn called(address: u64, call: &Call, cx: &Context) -> Option<usize> {
    let offset = address.checked_sub(FUNCTION_WINDOW)?;
    let index = (offset / FUNCTION_STRIDE) as usize;
    let function = cx.program.functions.get(index)?;
    let fits = function.params.len() == call.arguments.len() && function.results.len() == call.results.len();
    (offset % FUNCTION_STRIDE == 0 && fits).then_some(index)
}
