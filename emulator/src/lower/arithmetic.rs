//! Arithmetic instructions. Each file here handles one kind; types and modifiers that PTX does not have, or does not
//! combine, are refused.

mod address;
mod bits;
mod compare;
mod convert;
mod float;
mod integer;
mod moves;
mod target;
mod typed;

use super::emitter::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::ptx::tree::Operand;

impl<'a> Emitter<'a, '_> {
    /// Lowers instructions that have no entry of their own in the list of mnemonics.
    pub fn arithmetic(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if matches!(name, "fns" | "bmsk" | "szext") {
            return self.bits(name, m, operands);
        }
        if matches!(name, "vabsdiff2" | "vabsdiff4") {
            return self.differences(name, m, operands);
        }
        let Some(sources) = source_count(name) else { return Err(self.unsupported()) };
        if let Some(pair) = m.one_of(&["u16x2", "s16x2"]) {
            return self.paired_integers(name, pair == "s16x2", m, operands);
        }
        let ty = m.ty()?;
        if ty.is_float() {
            self.float(name, ty, sources, m, operands)
        } else {
            self.integer(name, ty, sources, m, operands)
        }
    }
}

fn source_count(name: &str) -> Option<usize> {
    Some(match name {
        "neg" | "abs" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => 1,
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "addc" | "subc" | "mul24" | "copysign" => 2,
        "mad" | "madc" | "fma" | "sad" | "mad24" => 3,
        _ => return None,
    })
}
