//! Calls, returns and exits: lanes that enter and leave frames.

use super::{Group, Step, Wait, Warp};
use crate::fault::{Fault, FaultKind};
use crate::ops::lanes::LANES;
use crate::program::memory::{FUNCTION_STRIDE, FUNCTION_WINDOW};
use crate::program::{Call, Callee, Op};
use crate::simt::block::Context;
use crate::simt::builtin;
use crate::simt::frames::Frame;

/// Calls inside one another; a device's stack ends sooner.
const DEPTH_MAX: u32 = 1024;

/// Registers of all calls of a warp that are under way at once: a thousand frames of five hundred registers. Lanes
/// that part ways have frames of their own, so that the depth alone is no bound.
const CALL_BYTES_MAX: u64 = 64 << 20;

impl Warp {
    pub(super) fn exit(&mut self, frame: usize, mask: u32, cx: &mut Context) {
        self.live &= !mask;
        self.leave_barriers(mask, cx);
        let mut index = frame;
        while index != 0 {
            let parent = self.frame(index).parent;
            self.leave(index, mask, cx);
            index = parent;
        }
    }

    /// Lanes leave a frame; the last ones take it away.
    fn leave(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let frame = self.frame(index);
        frame.lanes &= !mask;
        if frame.lanes == 0 {
            let frame = self.frames[index].take().expect("looked at just now");
            self.call_bytes -= u64::from(cx.program.functions[frame.function].frame_bytes);
            cx.spare.give(frame.function, frame.registers);
        }
    }

    pub(super) fn return_lanes(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let program = cx.program;
        let (parent, return_pc, function) = {
            let frame = self.frame(index);
            (frame.parent, frame.return_pc, frame.function)
        };
        let caller = self.frame(parent).function;
        if let Op::Call(call) = &program.functions[caller].code[return_pc as usize - 1].op {
            for (from, to) in program.functions[function].results.iter().zip(&call.results) {
                let values = *self.frame(index).registers.words(*from);
                let target = self.frame(parent).registers.words(*to);
                for lane in 0..LANES {
                    target[lane] = if mask >> lane & 1 != 0 { values[lane] } else { target[lane] };
                }
            }
        }
        let depth = self.frame(parent).depth;
        self.leave(index, mask, cx);
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
        let (depth, local) = {
            let caller = self.frame(group.frame);
            let local = u64::from(caller.local) + program.functions[caller.function].frame_locals();
            (caller.depth + 1, local)
        };
        let call_bytes = self.call_bytes + u64::from(callee.frame_bytes);
        let local_bytes = local + u64::from(callee.local_bytes);
        if depth > DEPTH_MAX || call_bytes > CALL_BYTES_MAX || local_bytes > self.lane_bytes {
            let what = format!("stack overflow at a depth of {depth} calls");
            return Err(self.fault(FaultKind::IllegalAddress, &what, &group, cx));
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
            parent: group.frame,
            return_pc: group.pc + 1,
            depth,
            lanes: group.mask,
            local: local as u32,
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

/// The function at an address, where its arguments are those of the call.
fn called(address: u64, call: &Call, cx: &Context) -> Option<usize> {
    let offset = address.checked_sub(FUNCTION_WINDOW)?;
    let index = (offset / FUNCTION_STRIDE) as usize;
    let function = cx.program.functions.get(index)?;
    let fits = function.params.len() == call.arguments.len() && function.results.len() == call.results.len();
    (offset % FUNCTION_STRIDE == 0 && fits).then_some(index)
}
