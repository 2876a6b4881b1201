//! Counts how many instructions of a function write each register, and how often each is named.

use std::collections::HashMap;

use crate::ptx::tree::{Base, Operand, Statement};

/// Counts by name. The counts are too large if scopes share a name, or if an instruction only reads its first operand;
/// both errors only prevent optimisations.
#[derive(Debug, Default)]
pub struct Writes<'a> {
    counts: HashMap<&'a str, u32>,
    mentions: HashMap<&'a str, u32>,
}

impl<'a> Writes<'a> {
    pub fn of(body: &[Statement<'a>]) -> Writes<'a> {
        let mut writes = Writes::default();
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            if let Some(first) = instruction.operands.first() {
                count_written(&mut writes.counts, first);
            }
            instruction.operands.iter().for_each(|operand| count(&mut writes.mentions, operand));
            if let Some((guard, _)) = instruction.guard {
                *writes.mentions.entry(guard).or_default() += 1;
            }
        }
        writes
    }

    /// Reports whether exactly one instruction writes the register.
    pub fn once(&self, name: &str) -> bool {
        self.counts.get(name) == Some(&1)
    }

    /// Reports whether only the instruction that writes the register names it.
    pub fn unread(&self, name: &str) -> bool {
        self.named_but(name, 0)
    }

    /// Reports whether the register is named by one instruction and `others` further mentions only.
    pub fn named_but(&self, name: &str, others: u32) -> bool {
        self.mentions.get(name) == Some(&(1 + others))
    }
}

/// Counts an address as read, even if it is the first operand.
fn count_written<'a>(counts: &mut HashMap<&'a str, u32>, operand: &Operand<'a>) {
    match operand {
        Operand::Name(_) | Operand::Both(..) => count(counts, operand),
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().for_each(|part| count_written(counts, part)),
        Operand::Resident(parts, predicate) => {
            parts.iter().for_each(|part| count_written(counts, part));
            *counts.entry(predicate).or_default() += 1;
        }
        _ => {}
    }
}

fn count<'a>(counts: &mut HashMap<&'a str, u32>, operand: &Operand<'a>) {
    match operand {
        Operand::Name(name)
        | Operand::Negated(name)
        | Operand::Element(name, _)
        | Operand::Offset(name, _)
        | Operand::Address(Base::Name(name), _) => *counts.entry(name).or_default() += 1,
        Operand::Both(one, other) => {
            *counts.entry(one).or_default() += 1;
            *counts.entry(other).or_default() += 1;
        }
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().for_each(|part| count(counts, part)),
        Operand::Resident(parts, predicate) => {
            parts.iter().for_each(|part| count(counts, part));
            *counts.entry(predicate).or_default() += 1;
        }
        Operand::Indexed(base, parts) => {
            parts.iter().for_each(|part| count(counts, part));
            if let Base::Name(name) = base {
                *counts.entry(name).or_default() += 1;
            }
        }
        Operand::Address(Base::Integer(_), _)
        | Operand::Integer(_)
        | Operand::Single(_)
        | Operand::Double(_)
        | Operand::Sink => {}
    }
}
