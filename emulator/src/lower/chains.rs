//! Address chains: two or three instructions that compute `base[index]`. A load, a store or an atomic then takes the
//! index directly, and instructions that only computed the address are removed.
//!
//! This is possible if the access and the instructions of the chain are in one stretch of code that no branch enters,
//! and if nothing in between writes the index: every lane that reaches the access has then run the chain just before.
//! An instruction of the chain stays if anything else uses its result.

use std::collections::{HashMap, HashSet};

use super::layout::Layout;
use super::writes::Writes;
use crate::ops::lanes::NO_SLOT;
use crate::program::memory::{Address, Index, Reach};
use crate::program::{Function, Op};
use crate::ptx::tree::{Instruction, Operand};

/// The instructions of a function that may be part of a chain, in order.
#[derive(Debug, Default)]
pub struct Chains<'a> {
    links: Vec<Link<'a>>,
}

/// An instruction of a chain, with its place in the code.
#[derive(Debug)]
struct Link<'a> {
    at: u32,
    step: Step,
    target: &'a str,
    sources: Vec<&'a str>,
}

/// The operation that a link applies to its first source.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Extends a word to 64 bits and multiplies it by a factor.
    Scale {
        factor: u32,
        signed: bool,
    },
    /// Shifts left.
    Shift(u32),
    Offset(i64),
    /// Adds the second source, which is the base; the sources may be swapped.
    Base,
}

/// The value of a 64-bit register: a word times a factor, plus an offset, plus the value of another register.
#[derive(Clone, Copy, Debug)]
struct Value {
    index: u32,
    factor: u32,
    signed: bool,
    base: Option<u32>,
    offset: i64,
    /// Place of the instruction that wrote the register.
    made: u32,
}

impl<'a> Chains<'a> {
    /// Records an instruction that became the operation at `at`, if it can be part of a chain; it has no guard.
    pub fn note(&mut self, instruction: &Instruction<'a>, at: u32) {
        let [Operand::Name(target), Operand::Name(source), rest @ ..] = instruction.operands.as_slice() else { return };
        let mut sources = vec![*source];
        let step = match (instruction.mnemonic, instruction.modifiers.as_slice(), rest) {
            ("mul", ["wide", "u32"], [Operand::Integer(factor)]) => scale(*factor, false),
            ("mul", ["wide", "s32"], [Operand::Integer(factor)]) => scale(*factor, true),
            ("cvt", ["u64", "u32"], []) => scale(1, false),
            ("cvt", ["s64", "s32"], []) => scale(1, true),
            ("shl", ["b64"], [Operand::Integer(bits @ 0..32)]) => Some(Step::Shift(*bits as u32)),
            ("add", ["s64" | "u64"], [Operand::Integer(offset)]) => Some(Step::Offset(*offset as i64)),
            ("add", ["s64" | "u64"], [Operand::Name(other)]) => {
                sources.push(other);
                Some(Step::Base)
            }
            _ => None,
        };
        if let Some(step) = step {
            self.links.push(Link { at, step, target, sources });
        }
    }

    /// Lets accesses of `function` take indices where possible. Returns the places of instructions that are no longer
    /// needed. `labels` are the targets of jumps.
    pub fn fuse(&self, function: &mut Function, labels: &[u32], layout: &mut Layout, writes: &Writes<'a>) -> Vec<u32> {
        let labels: HashSet<u32> = labels.iter().copied().collect();
        let mut links = self.links.iter().peekable();
        let mut stretch = Stretch::default();
        // Number of accesses that no longer use each register as their address.
        let mut spared: HashMap<u32, u32> = HashMap::new();
        for (at, instruction) in function.code.iter_mut().enumerate() {
            let at = at as u32;
            if labels.contains(&at) {
                stretch = Stretch::default();
            }
            let link = links.next_if(|link| link.at == at);
            match &mut instruction.op {
                Op::Lanes { slots, .. } => {
                    let value = link.and_then(|link| stretch.value(link.step, slots.a, slots.b, layout));
                    stretch.write(slots.d, at);
                    stretch.write(slots.e, at);
                    if let Some(value) = value {
                        stretch.known.insert(slots.d, Value { made: at, ..value });
                    }
                }
                // Registers of the lanes that continue are unchanged.
                Op::Predicate { .. } | Op::Jump(_) | Op::Exit | Op::Return | Op::Fence => {}
                Op::Load(access) => {
                    stretch.serve(&mut access.address, layout, &mut spared);
                    access.slots.iter().for_each(|slot| stretch.write(*slot, at));
                }
                Op::Store(access) => stretch.serve(&mut access.address, layout, &mut spared),
                Op::Atomic(atomic) => {
                    stretch.serve(&mut atomic.address, layout, &mut spared);
                    atomic.d.iter().for_each(|slot| stretch.write(*slot, at));
                }
                _ => stretch = Stretch::default(),
            }
        }
        self.unneeded(function, writes, spared)
    }

    /// Returns the places of links whose results are used only by instructions that no longer need them.
    fn unneeded(&self, function: &Function, writes: &Writes<'a>, mut spared: HashMap<u32, u32>) -> Vec<u32> {
        let mut found = Vec::new();
        for link in self.links.iter().rev() {
            let Op::Lanes { slots, .. } = &function.code[link.at as usize].op else { continue };
            let Some(count) = spared.get(&slots.d) else { continue };
            if !writes.named_but(link.target, *count) {
                continue;
            }
            found.push(link.at);
            for (slot, _) in [slots.a, slots.b].iter().zip(&link.sources) {
                *spared.entry(*slot).or_default() += 1;
            }
        }
        found
    }
}

/// Makes a factor, if it is positive in the index's type.
fn scale(factor: u64, signed: bool) -> Option<Step> {
    let most = if signed { i32::MAX as u64 } else { u32::MAX.into() };
    (factor <= most).then_some(Step::Scale { factor: factor as u32, signed })
}

/// What is known at one place in a stretch of code.
#[derive(Debug, Default)]
struct Stretch {
    known: HashMap<u32, Value>,
    /// Place of the last instruction that wrote each register.
    written: HashMap<u32, u32>,
}

impl Stretch {
    fn write(&mut self, slot: u32, at: u32) {
        if slot != NO_SLOT {
            self.written.insert(slot, at);
            self.known.remove(&slot);
        }
    }

    /// Returns the value of a register if its index is unchanged since.
    fn get(&self, slot: u32) -> Option<Value> {
        let value = *self.known.get(&slot)?;
        let same = self.written.get(&value.index).is_none_or(|at| *at <= value.made);
        same.then_some(value)
    }

    fn value(&self, step: Step, a: u32, b: u32, layout: &Layout) -> Option<Value> {
        match step {
            Step::Scale { factor, signed } => Some(Value { index: a, factor, signed, base: None, offset: 0, made: 0 }),
            Step::Shift(bits) => {
                let value = self.get(a).filter(|value| value.base.is_none() && value.offset == 0)?;
                match scale(u64::from(value.factor) << bits, value.signed)? {
                    Step::Scale { factor, .. } => Some(Value { factor, ..value }),
                    _ => None,
                }
            }
            Step::Offset(offset) => {
                let value = self.get(a)?;
                Some(Value { offset: value.offset.wrapping_add(offset), ..value })
            }
            Step::Base => {
                let (value, base) = self.get(a).map(|value| (value, b)).or_else(|| Some((self.get(b)?, a)))?;
                let fits = value.base.is_none() && layout.is_uniform(base);
                fits.then_some(Value { base: Some(base), ..value })
            }
        }
    }

    /// Makes an address take the index.
    fn serve(&self, address: &mut Address, layout: &mut Layout, spared: &mut HashMap<u32, u32>) {
        let takes = address.wide && matches!(address.reach, Reach::Global | Reach::Generic | Reach::Shared);
        let Some(value) = self.get(address.slot).filter(|_| takes) else { return };
        *spared.entry(address.slot).or_default() += 1;
        let base = value.base.unwrap_or_else(|| layout.constant64(0));
        let index = Index { base, factor: value.factor, signed: value.signed };
        let offset = address.offset.wrapping_add(value.offset);
        *address = Address { slot: value.index, wide: false, index: Some(index), offset, ..*address };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::memory::Memory;
    use crate::module::{ComputeCapability, Module};
    use crate::program::Op;

    /// Returns the number of operations that a kernel is lowered to, and how many of its accesses take an index.
    fn lowered(body: &str) -> (usize, usize) {
        let text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry kernel(.param .u64 data)\n{{\n\
             .reg .pred %p<2>;\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n\
             ld.param.u64 %d0, [data];\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
        );
        let memory = Arc::new(Memory::new(1 << 20).unwrap());
        let module = Module::load(&text, &memory, ComputeCapability { major: 8, minor: 0 }).unwrap();
        let entry = module.entry("kernel").unwrap();
        let code = &entry.program.functions[entry.function].code;
        let takes = |op: &Op| match op {
            Op::Load(access) | Op::Store(access) => access.address.index.is_some(),
            Op::Atomic(atomic) => atomic.address.index.is_some(),
            _ => false,
        };
        (code.len(), code.iter().filter(|instruction| takes(&instruction.op)).count())
    }

    /// Operations in every kernel: the return in the text, and the one at the end.
    const ENDS: usize = 2;
    const CHAIN: &str = "mul.wide.u32 %d1, %r0, 4;\nadd.s64 %d2, %d0, %d1;";

    #[test]
    fn what_only_serves_addresses_is_left_out() {
        assert_eq!(lowered(&format!("{CHAIN}\nld.global.u32 %r1, [%d2];")), (ENDS + 1, 1));
        let body = "ld.global.u32 %r1, [%d2];\nst.global.u32 [%d2+4], %r1;\nred.global.add.u32 [%d2], 1;";
        assert_eq!(lowered(&format!("{CHAIN}\n{body}")), (ENDS + 3, 3));
        let body = "cvt.s64.s32 %d1, %r0;\nshl.b64 %d3, %d1, 3;\nadd.s64 %d4, %d3, %d0;\nadd.s64 %d2, %d4, 16;\n";
        assert_eq!(lowered(&format!("{body}ld.global.u64 %d5, [%d2];")), (ENDS + 1, 1));
    }

    #[test]
    fn what_something_else_names_stays() {
        assert_eq!(lowered(&format!("{CHAIN}\nld.global.u32 %r1, [%d2];\nst.global.u64 [%d0], %d2;")), (ENDS + 4, 1));
        assert_eq!(lowered(&format!("{CHAIN}\nld.global.u32 %r1, [%d2];\nst.global.u64 [%d0], %d1;")), (ENDS + 3, 1));
        assert_eq!(lowered(&format!("{CHAIN}\nst.global.u64 [%d2], %d2;")), (ENDS + 3, 1));
    }

    #[test]
    fn an_index_that_was_written_since_is_not_taken() {
        for between in ["add.u32 %r0, %r0, 1;", "LABEL:", "@%p1 mov.u32 %r0, 1;", "ld.global.u32 %r0, [%d0];"] {
            let body =
                format!("mov.u32 %r0, %laneid;\nadd.u32 %r0, %r0, 1;\n{CHAIN}\n{between}\nld.global.u32 %r1, [%d2];");
            assert_eq!(lowered(&body).1, 0, "{between}");
        }
        let between = "setp.eq.u32 %p1, %r0, 3;\n@%p1 ret;\nadd.u32 %r2, %r0, 1;";
        assert_eq!(lowered(&format!("{CHAIN}\n{between}\nld.global.u32 %r1, [%d2];")).1, 1);
    }

    #[test]
    fn instructions_that_may_not_run_make_no_address() {
        let body = "setp.eq.u32 %p1, %r0, 3;\nmul.wide.u32 %d1, %r0, 4;\n@%p1 add.s64 %d2, %d0, %d1;";
        assert_eq!(lowered(&format!("{body}\nld.global.u32 %r1, [%d2];")).1, 0);
    }
}
