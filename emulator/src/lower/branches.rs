//! Finds jumps that go by what the instruction before has just compared, so that both are one step.

use crate::program::{Function, Op};

/// Makes branches of the comparisons of `function` that run under the guard `always`, not inverted. The jumps stay where
/// they are, for those who come to them another way.
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
