//! How many instructions of a function write each register.

use std::collections::HashMap;

use crate::ptx::tree::{Operand, Statement};

/// Counts by name. A name counts too often where scopes share it, and for an instruction that only reads its first
/// operand: both err on the safe side.
#[derive(Debug, Default)]
pub struct Writes<'a> {
    counts: HashMap<&'a str, u32>,
}

impl<'a> Writes<'a> {
    pub fn of(body: &[Statement<'a>]) -> Writes<'a> {
        let mut writes = Writes::default();
        for statement in body {
            if let Statement::Instruction(instruction) = statement
                && let Some(first) = instruction.operands.first()
            {
                writes.count(first);
            }
        }
        writes
    }

    /// Whether exactly one instruction writes the register.
    pub fn once(&self, name: &str) -> bool {
        self.counts.get(name) == Some(&1)
    }

    fn count(&mut self, operand: &Operand<'a>) {
        match operand {
            Operand::Name(name) => *self.counts.entry(name).or_default() += 1,
            Operand::Both(one, other) => {
                *self.counts.entry(one).or_default() += 1;
                *self.counts.entry(other).or_default() += 1;
            }
            Operand::Vector(parts) | Operand::List(parts) => parts.iter().for_each(|part| self.count(part)),
            _ => {}
        }
    }
}
