//! The fast path of a turn, for a warp whose lanes are all together in the kernel itself. Most warps never leave it.

use super::straight::{self, Loops};
use super::turns::FREE_TURNS_MAX;
use super::{Group, Pause, Wait, Warp};
use crate::fault::Fault;
use crate::ops::lanes::load_mask;
use crate::program::Op;
use crate::simt::context::Context;

impl Warp {
    /// Runs frequent instructions up to the end of the kernel or a barrier of the block. Any other instruction stops
    /// it, with the group at that instruction.
    pub(super) fn sprint(&mut self, cx: &mut Context) -> Result<Option<Pause>, Fault> {
        // Reads field by field, as it was written, because processors are slow to read a value at once that was just
        // written in pieces.
        let &[Group { frame: 0, depth, pc, mask, wait: Wait::None }] = self.groups.as_slice() else { return Ok(None) };
        self.schedule.together();
        let run = if cx.vector { straight::run::<true> } else { straight::run::<false> };
        let code = &cx.program.functions[cx.entry.function].code;
        let registers = self.frame(0).registers.start();
        let lanes = straight::Group { registers, active: mask, live: self.live, local: self.local() };
        let mut loops = Loops { free: FREE_TURNS_MAX, spent: 0 };
        // SAFETY: the frame is the kernel's, whose code this is, with slots as lowering hands them out; the view and the
        // local memory are those of this block and warp, and the vector build runs only where the machine has its vectors.
        let halted = unsafe { run(code, pc, u32::MAX, &lanes, &mut loops, &mut cx.view) };
        cx.spent += loops.spent;
        let group = |pc: u32| Group { frame: 0, depth, pc, mask, wait: Wait::None };
        let pc = match halted {
            Ok(pc) => pc,
            Err(refusal) => return Err(self.refusal(&refusal.1, &group(refusal.0), cx)),
        };
        let Some(instruction) = code.get(pc as usize) else { return Ok(None) };
        // SAFETY: as above.
        let guard = unsafe { load_mask(registers, instruction.guard) } ^ instruction.invert;
        match &instruction.op {
            Op::Exit | Op::Return if guard & mask == mask => {
                self.live = 0;
                self.groups.clear();
                Ok(Some(Pause::Finished))
            }
            Op::Barrier(barrier) if guard & mask == mask && barrier.all.is_some() => {
                self.groups[0] = self.halt(barrier, &group(pc), cx)?;
                Ok(Some(Pause::Waiting))
            }
            _ => {
                self.groups[0].pc = pc;
                Ok(None)
            }
        }
    }
}
