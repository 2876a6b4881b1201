//! The loop for frequent instructions. It is small, so that the compiler keeps its state in registers.

use std::hint::cold_path;

use crate::ops::lanes::{FULL, load_mask, store_mask};
use crate::program::{Instruction, Logic, Op};
use crate::simt::access::{Local, Refused, View};
use crate::simt::{atomic, shuffle};

/// An invalid access, and the place of its instruction.
pub type Refusal = Box<(u32, Refused)>;

/// The state that a group runs with.
#[derive(Clone, Copy)]
pub struct Group {
    /// The frame's registers.
    pub registers: *mut u8,
    pub active: u32,
    /// All lanes of the warp that have not exited.
    pub live: u32,
    pub local: Local,
}

/// The backward jumps that a group may make before it has to check whether it may continue, and the instructions that
/// it ran in them.
#[derive(Default)]
pub struct Loops {
    pub free: u32,
    pub spent: u64,
}

impl Loops {
    /// Reports whether all lanes may make this jump; counts it if it goes backwards.
    #[inline(always)]
    fn allow(&mut self, from: u32, target: u32) -> bool {
        if target > from {
            return true;
        }
        if self.free == 0 {
            return false;
        }
        self.free -= 1;
        self.spent += u64::from(from - target) + 1;
        true
    }
}

/// Runs frequent instructions from `pc` on, up to `stop` or to another instruction; returns where it stopped. Jumps of
/// all lanes are included if `loops` allows them.
///
/// # Safety
/// The slots of the code are inside the frame, with the widths that the instructions need; the view and the local
/// memory are those of the block and the warp. With `VECTOR`, the machine has what the vector builds need.
pub unsafe fn run<const VECTOR: bool>(
    code: &[Instruction],
    mut pc: u32,
    stop: u32,
    group: &Group,
    loops: &mut Loops,
    view: &mut View,
) -> Result<u32, Refusal> {
    let Group { registers, active, live, local } = *group;
    let end = code.len().min(stop as usize);
    'code: loop {
        // An iterator needs no bounds check for each instruction.
        let mut rest = code.get(pc as usize..end).unwrap_or_default().iter();
        while let Some(instruction) = rest.next() {
            // SAFETY: here and below, the caller vouches for slots, view, local memory and machine.
            let guard = unsafe { load_mask(registers, instruction.guard) } ^ instruction.invert;
            let mask = active & guard;
            if mask == 0 {
                continue;
            }
            // Most instructions are these, so they come before the jump table of the `match`; the hint keeps them
            // there.
            if let Op::Lanes { run, slots } = &instruction.op {
                let run = if VECTOR { run.vector } else { run.portable };
                // SAFETY: see above.
                unsafe { run(registers, slots, mask) };
                continue;
            }
            cold_path();
            match &instruction.op {
                Op::Load(access) | Op::Store(access) => {
                    let run = if VECTOR { access.run.vector } else { access.run.portable };
                    // SAFETY: see above.
                    if let Err(refused) = unsafe { run(access, registers, mask, view, local) } {
                        return Err(Box::new(((end - rest.len()) as u32 - 1, *refused)));
                    }
                }
                Op::Branch { run, slots, target, invert } => {
                    let run = if VECTOR { run.vector } else { run.portable };
                    // SAFETY: see above; the result is a predicate.
                    let guard = unsafe {
                        run(registers, slots, mask);
                        load_mask(registers, slots.d) ^ invert
                    };
                    let jump = (end - rest.len()) as u32;
                    // Other groups may wait at the jump to be merged.
                    if rest.next().is_none() {
                        return Ok(jump);
                    }
                    if active & guard != 0 {
                        if active & !guard != 0 || !loops.allow(jump, *target) {
                            return Ok(jump);
                        }
                        pc = *target;
                        continue 'code;
                    }
                }
                Op::Jump(target) => {
                    let jump = (end - rest.len()) as u32 - 1;
                    if mask != active || !loops.allow(jump, *target) {
                        return Ok(jump);
                    }
                    pc = *target;
                    continue 'code;
                }
                Op::Predicate { function, d, a, b, invert_b } => {
                    // SAFETY: see above.
                    unsafe {
                        let a = load_mask(registers, *a);
                        let b = load_mask(registers, *b) ^ if *invert_b { FULL } else { 0 };
                        store_mask(registers, *d, logic(*function, a, b), mask);
                    }
                }
                Op::Atomic(operation) => {
                    // SAFETY: see above.
                    if let Err(refused) = unsafe { atomic::run(operation, registers, mask, view, local, VECTOR) } {
                        return Err(Box::new(((end - rest.len()) as u32 - 1, refused)));
                    }
                }
                // SAFETY: see above.
                Op::Shuffle(shuffle) if shuffle.all && mask == live => unsafe {
                    shuffle::run::<VECTOR>(shuffle, registers, mask);
                },
                _ => return Ok((end - rest.len()) as u32 - 1),
            }
        }
        return Ok(pc.max(end as u32));
    }
}

fn logic(function: Logic, a: u32, b: u32) -> u32 {
    match function {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::Copy => a,
        Logic::Not => !a,
    }
}
