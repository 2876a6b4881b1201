//! The emitter, to which the lowering of every instruction writes: the function so far, its slots, and the meaning of
//! names.
//!
//! The sibling modules add methods to [`Emitter`], each for one kind of instruction. They form layers: names and slots
//! at the bottom, then operands, addresses and single instructions, and at the top the walk through a function.

use std::collections::HashMap;

use super::chains::Chains;
use super::layout::{Layout, Width, width};
use super::modifiers::unsupported;
use super::symbols::{Symbol, Symbols};
use super::writes::Writes;
use crate::ops::lanes::{FULL, Lanes, Slots};
use crate::program::{Function, Instruction, Op, Special};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::{Operand, Shape};
use crate::ptx::types::Type;

/// Maximum number of labels in all target lists that the jumps of a function name. A `brx.idx` has one list, as long as
/// a `switch`.
const JUMP_TARGETS_MAX: usize = 1 << 20;

pub type Lowered<T> = Result<T, LoadError>;

/// Lowers the body of one function.
pub struct Emitter<'a, 'm> {
    pub symbols: &'m Symbols<'a>,
    pub is_entry: bool,
    pub layout: Layout,
    pub function: Function,
    pub(super) scopes: Vec<Scope<'a>>,
    pub(super) labels: HashMap<(usize, &'a str), usize>,
    pub(super) targets: HashMap<&'a str, Vec<&'a str>>,
    /// Number of labels in the named target lists so far.
    jump_targets: usize,
    /// Position of each label in the code.
    pub(super) positions: Vec<u32>,
    pub(super) specials: HashMap<Special, u32>,
    pub(super) local_addresses: HashMap<u32, u32>,
    pub(super) texts: HashMap<&'a str, u32>,
    pub(super) writes: Writes<'a>,
    pub(super) chains: Chains<'a>,
    /// End of the shared memory for this function's own variables.
    pub shared_end: u32,
    pub accesses: &'m mut u32,
    pub line: u32,
    pub text: &'a str,
    pub(super) guard: (u32, u32),
    carry: Option<u32>,
}

#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) number: usize,
    pub(super) names: HashMap<&'a str, Symbol>,
    pub(super) ranges: Vec<(&'a str, u32, (Type, Shape))>,
}

impl Scope<'_> {
    /// Returns the type of a register that is declared as one of a range (`%r<9>`).
    fn numbered(&self, name: &str) -> Option<(Type, Shape)> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[prefix.len()..].parse::<u32>().ok()?;
        // A prefix may itself end in digits (`%f1<3>`), so every split of the name is tried.
        self.ranges.iter().find_map(|(start, count, kind)| {
            let rest = name.strip_prefix(start)?;
            let number = if *start == prefix { number } else { rest.parse().ok()? };
            (number < *count).then_some(*kind)
        })
    }
}

impl<'a, 'm> Emitter<'a, 'm> {
    pub fn new(symbols: &'m Symbols<'a>, shared_start: u32, accesses: &'m mut u32) -> Emitter<'a, 'm> {
        let mut layout = Layout::default();
        let always = layout.constant_mask(FULL);
        Emitter {
            symbols,
            is_entry: false,
            layout,
            function: Function::default(),
            scopes: Vec::new(),
            labels: HashMap::new(),
            targets: HashMap::new(),
            jump_targets: 0,
            positions: Vec::new(),
            specials: HashMap::new(),
            local_addresses: HashMap::new(),
            texts: HashMap::new(),
            writes: Writes::default(),
            chains: Chains::default(),
            shared_end: shared_start,
            accesses,
            line: 0,
            text: "",
            guard: (always, 0),
            carry: None,
        }
    }

    /// Emits an operation under the guard of the current instruction.
    pub fn push(&mut self, op: Op) {
        let next = self.texts.len() as u32;
        let text = *self.texts.entry(self.text).or_insert(next);
        let (guard, invert) = self.guard;
        self.function.code.push(Instruction { op, guard, invert, line: self.line, text });
    }

    pub fn push_lanes(&mut self, run: Lanes, slots: Slots) {
        self.push(Op::Lanes { run, slots });
    }

    /// Returns a new slot for a temporary value.
    pub fn scratch(&mut self, width: Width) -> u32 {
        match width {
            Width::Mask => self.layout.mask(),
            Width::Word => self.layout.word(),
            Width::Double => self.layout.double(),
        }
    }

    pub fn special(&mut self, special: Special, width: Width) -> u32 {
        if let Some(slot) = self.specials.get(&special) {
            return *slot;
        }
        let slot = self.scratch(width);
        self.specials.insert(special, slot);
        self.layout.fixed.insert(slot);
        slot
    }

    /// Returns a slot with the address of `offset` in the frame's local memory.
    pub fn local_address(&mut self, offset: u32) -> u32 {
        if let Some(slot) = self.local_addresses.get(&offset) {
            return *slot;
        }
        let slot = self.layout.double();
        self.local_addresses.insert(offset, slot);
        self.layout.fixed.insert(slot);
        // In functions the address may differ between lanes, because their calls may have different depths.
        if !self.is_entry {
            self.layout.varied.insert(slot);
        }
        slot
    }

    /// Returns the slot of the function's carry flag.
    pub fn carry_slot(&mut self) -> u32 {
        match self.carry {
            Some(slot) => slot,
            None => *self.carry.insert(self.layout.mask()),
        }
    }

    /// Resolves a name, from the innermost scope outwards.
    pub fn symbol(&mut self, name: &'a str) -> Lowered<Symbol> {
        for index in (0..self.scopes.len()).rev() {
            if let Some(symbol) = self.scopes[index].names.get(name) {
                return Ok(symbol.clone());
            }
            if let Some((ty, shape)) = self.scopes[index].numbered(name) {
                let symbol = self.new_register(ty, shape);
                self.scopes[index].names.insert(name, symbol.clone());
                return Ok(symbol);
            }
        }
        self.symbols.get(name).ok_or_else(|| self.unresolved(name))
    }

    pub(super) fn declare(&mut self, name: &'a str, symbol: Symbol) {
        let scope = self.scopes.last_mut().expect("the function's own scope stays open");
        scope.names.insert(name, symbol);
    }

    pub(super) fn new_register(&mut self, ty: Type, shape: Shape) -> Symbol {
        let width = width(ty);
        let count = match shape {
            Shape::Scalar => 1,
            Shape::Vector(count) => count,
            Shape::Quad => 2,
        };
        self.layout.registers += count
            * match width {
                Width::Mask => 0,
                Width::Word => 1,
                Width::Double => 2,
            };
        match shape {
            Shape::Scalar => {
                let slot = self.scratch(width);
                self.layout.declared.insert(slot, ty);
                Symbol::Register { slot, width }
            }
            _ => {
                let slots: Vec<u32> = (0..count).map(|_| self.scratch(width)).collect();
                self.layout.declared.extend(slots.iter().map(|slot| (*slot, ty)));
                Symbol::Tuple { slots, width, quad: shape == Shape::Quad }
            }
        }
    }

    /// Makes a register an alias of a plane that never changes, which saves a copy. This is possible if only one
    /// instruction writes the register and no earlier instruction in the code names it.
    pub fn alias(&mut self, register: &Operand<'a>, slot: u32, wanted: Width) -> bool {
        let Operand::Name(name) = register else { return false };
        let always = self.guard == (self.layout.constant_mask(FULL), 0);
        if !always || !self.layout.fixed.contains(&slot) || !self.writes.once(name) {
            return false;
        }
        for scope in self.scopes.iter_mut().rev() {
            if scope.names.contains_key(name) {
                return false;
            }
            if let Some((ty, shape)) = scope.numbered(name) {
                if shape != Shape::Scalar {
                    return false;
                }
                if width(ty) == wanted {
                    scope.names.insert(name, Symbol::Register { slot, width: wanted });
                }
                return width(ty) == wanted;
            }
        }
        false
    }

    /// Reports whether a result goes to a register that nothing reads.
    pub fn is_unread(&self, target: &Operand<'a>) -> bool {
        matches!(target, Operand::Name(name) if self.writes.unread(name))
    }

    /// Returns the number of a label; jumps contain it until all positions are known.
    pub fn label(&self, name: &str) -> Lowered<u32> {
        let found = self.scopes.iter().rev().find_map(|scope| self.labels.get(&(scope.number, name)));
        found.map(|label| *label as u32).ok_or_else(|| self.unresolved(name))
    }

    pub fn label_list(&mut self, name: &str) -> Lowered<Vec<u32>> {
        let names = self.targets.get(name).ok_or_else(|| self.unresolved(name))?;
        self.jump_targets += names.len();
        if self.jump_targets > JUMP_TARGETS_MAX {
            return Err(self.syntax(format!("more than {JUMP_TARGETS_MAX} labels in lists of targets")));
        }
        names.iter().map(|label| self.label(label)).collect()
    }

    pub fn unresolved(&self, name: &str) -> LoadError {
        LoadError::new(self.line, LoadErrorKind::Unresolved, format!("unresolved name `{name}`"))
    }

    pub fn unsupported(&self) -> LoadError {
        unsupported(self.line, self.text)
    }

    pub fn syntax(&self, message: impl Into<String>) -> LoadError {
        LoadError::syntax(self.line, format!("{} in `{}`", message.into(), self.text))
    }
}
