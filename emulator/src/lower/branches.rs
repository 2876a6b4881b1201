//! Fuses a comparison with the jump right behind it that uses its result, so that both are one step.

use crate::program::{Function, Op};

/// Fuses the comparisons of `function` whose guard is `always`, not inverted. The jumps stay in the code, because lanes
/// may reach them another way.
pub fn find(function: &mut Function, always: u32) {
    for at in 1..function.code.len() {
        let [compared, jump] = &mut function.code[at - 1..=at] else { continue };
        if let (Op::Lanes { run, slots }, Op::Jump(target)) = (&compared.op, &jump.op)
            && (compared.guard, compared.invert) == (always, 0)
            && jump.guard == slots.d
        {
            compared.op = Op::Branch { run: *run, slots: *slots, target: *target, invert: jump.invert };
        }
    }
}
