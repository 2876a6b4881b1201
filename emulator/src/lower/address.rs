//! Addresses of memory accesses: resolves the variable or register in brackets, and the state space.

use super::emitter::{Emitter, Lowered};
use super::layout::Width;
use super::modifiers::Modifiers;
use super::symbols::Symbol;
use crate::program::memory::{Address, Reach};
use crate::ptx::tree::{Base, Operand};

/// State spaces of an instruction. Clusters have one block here, so `shared::cluster` is the block's own shared memory.
const SPACES: [&str; 9] =
    ["global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "param::func"];

/// Returns the state space that an instruction names; without one the address is generic.
pub fn reach(m: &mut Modifiers) -> Reach {
    match m.one_of(&SPACES) {
        Some("global" | "const") => Reach::Global,
        Some("shared" | "shared::cta" | "shared::cluster") => Reach::Shared,
        Some("local") => Reach::Local,
        Some(_) => Reach::Param,
        None => Reach::Generic,
    }
}

impl<'a> Emitter<'a, '_> {
    /// Resolves an address that an instruction writes, or reads and writes.
    pub fn target_address(&mut self, operand: &Operand<'a>, reach: Reach) -> Lowered<Address> {
        Ok(Address { writes: true, ..self.address(operand, reach)? })
    }

    /// Resolves an address that an instruction reads.
    pub fn address(&mut self, operand: &Operand<'a>, reach: Reach) -> Lowered<Address> {
        let Operand::Address(base, offset) = operand else { return Err(self.syntax("expected an address")) };
        let cache = *self.accesses;
        *self.accesses += 1;
        let (slot, wide, offset) = match base {
            Base::Integer(value) => (self.layout.constant64(*value), true, *offset),
            Base::Name(name) => match self.symbol(name)? {
                Symbol::Register { slot, width: Width::Double } => (slot, true, *offset),
                Symbol::Register { slot, width: Width::Word } => (slot, false, *offset),
                Symbol::Register { .. } => return Err(self.syntax("a predicate is not an address")),
                symbol => {
                    self.check_space(&symbol, reach)?;
                    let (slot, _) = self.address_of(&symbol, *offset)?;
                    (slot, true, 0)
                }
            },
        };
        Ok(Address { slot, wide, index: None, offset, reach, writes: false, cache })
    }

    /// Checks that a variable named in an address is in the state space that the instruction names.
    fn check_space(&self, symbol: &Symbol, reach: Reach) -> Lowered<()> {
        let fits = match symbol {
            Symbol::Global { .. } => matches!(reach, Reach::Global | Reach::Generic),
            Symbol::Shared { .. } | Symbol::DynamicShared => reach == Reach::Shared,
            Symbol::Local { .. } => reach == Reach::Local,
            Symbol::KernelParam { .. } => reach == Reach::Param,
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.syntax("the variable is in another state space")) }
    }
}
