//! What stops a kernel in this warp, told with its place.

use super::{Group, Warp};
use crate::fault::{Fault, FaultKind, Place, describe_address};
use crate::simt::access::Refused;
use crate::simt::block::Context;

impl Warp {
    #[cold]
    pub(super) fn fault(&mut self, kind: FaultKind, what: &str, group: &Group, cx: &Context) -> Fault {
        self.fault_in(kind, what, group, group.mask.trailing_zeros(), cx)
    }

    #[cold]
    pub(super) fn fault_in(&mut self, kind: FaultKind, what: &str, group: &Group, lane: u32, cx: &Context) -> Fault {
        let function = &cx.program.functions[self.frame(group.frame).function];
        let instruction = &function.code[group.pc as usize];
        let place = Place {
            kernel: &cx.entry.name,
            function: &function.name,
            line: instruction.line,
            opcode: &function.texts[instruction.text as usize],
            block: cx.block,
            thread: cx.thread(self.index, lane),
        };
        Fault::at(kind, what, &place)
    }

    #[cold]
    pub(super) fn refusal(&mut self, refused: &Refused, group: &Group, cx: &Context) -> Fault {
        let Refused { lane, address, bytes, space, kind } = *refused;
        let mut what = match kind {
            FaultKind::MisalignedAddress => {
                format!("misaligned access of {bytes} bytes at {address:#x} in {space} memory")
            }
            _ => format!("illegal access of {bytes} bytes at {address:#x} in {space} memory"),
        };
        match space {
            "global" => what = format!("{what} ({})", describe_address(cx.view.memory, address)),
            "shared" => what = format!("{what} (the block has {} bytes)", cx.view.shared_bytes),
            "local" => what = format!("{what} (the thread has {} bytes)", self.lane_bytes),
            _ => {}
        }
        self.fault_in(kind, &what, group, lane as u32, cx)
    }

    /// Counts work against the budget and looks whether someone wants the launch to end.
    #[inline(always)]
    pub(super) fn count(&mut self, instructions: u64, group: &Group, cx: &mut Context) -> Result<(), Fault> {
        cx.spent += instructions;
        match cx.must_stop() {
            None => Ok(()),
            Some(what) => Err(self.fault(FaultKind::Timeout, what, group, cx)),
        }
    }
}
