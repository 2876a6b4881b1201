//! Asynchronous copies (`cp.async`), and cache hints.

use super::address::reach;
use super::emitter::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::ops::lanes::{Slots, unary};
use crate::program::Op;
use crate::program::memory::{Check, CopyAsync, Part, Reach};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// Bytes that `discard` and `applypriority` work on (PTX ISA): a line of a device's cache.
const ADVICE_BYTES: u64 = 128;

/// Primary priorities of `createpolicy`.
const PRIMARY: [&str; 4] = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];

impl<'a> Emitter<'a, '_> {
    /// Lowers `cp.async`. The copy is made immediately, so committing and waiting have nothing to do.
    pub fn copy_async(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if !m.take("async") {
            return Err(self.unsupported());
        }
        if m.take("bulk") {
            return self.copy_bulk(m, operands);
        }
        match m.one_of(&["commit_group", "wait_group", "wait_all", "mbarrier"]) {
            Some("mbarrier") => return self.arrive_after_copies(m, operands),
            Some(name) => {
                m.finish()?;
                return match (name, operands) {
                    ("wait_group", [Operand::Integer(_)]) | ("commit_group" | "wait_all", []) => Ok(()),
                    _ => Err(self.syntax("unexpected operands")),
                };
            }
            None => {}
        }
        let cache = m.one_of(&["ca", "cg"]);
        let shared = m.one_of(&["shared", "shared::cta"]).is_some();
        let global = m.take("global");
        let has_policy = m.take("L2::cache_hint");
        m.prefetch_size();
        m.finish()?;
        let (Some(cache), true, true) = (cache, shared, global) else { return Err(self.unsupported()) };
        let operands = self.without_policy(operands, has_policy)?;
        self.arity(operands, 3..=4)?;
        let bytes = match operands[2] {
            Operand::Integer(bytes @ (4 | 8 | 16)) if cache == "ca" || bytes == 16 => bytes as u32,
            _ => return Err(self.unsupported()),
        };
        let target = self.target_address(&operands[0], Reach::Shared)?;
        let source = self.address(&operands[1], Reach::Global)?;
        let part = match operands.get(3) {
            Some(operand) if self.is_predicate(operand) => {
                let (predicate, negated) = self.predicate(operand)?;
                Some(Part::Unless(predicate, negated))
            }
            Some(Operand::Integer(length)) if *length > bytes.into() => {
                return Err(self.syntax("the copy reads more than it writes"));
            }
            Some(operand) => Some(Part::Length(self.source(operand, Type::U32)?)),
            None => None,
        };
        self.check(Check { part, ..Check::load(source, bytes, false) });
        self.check(Check::store(target, bytes, false, &[], false));
        self.push(Op::CopyAsync(Box::new(CopyAsync { target, source, bytes, part })));
        Ok(())
    }

    fn is_predicate(&mut self, operand: &Operand<'a>) -> bool {
        matches!(operand, Operand::Name(_) | Operand::Negated(_)) && self.predicate(operand).is_ok()
    }

    /// Lowers cache hints, which have no effect because there is no cache; they are still checked.
    pub fn advise(&mut self, name: &str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let is_constant = m.take("const");
        let reach = reach(m);
        let known = match name {
            "prefetch" if m.one_of(&["L1", "L2"]).is_some() => {
                matches!(reach, Reach::Generic | Reach::Global | Reach::Local)
            }
            "prefetch" => m.one_of(&["L2::evict_last", "L2::evict_normal"]).is_some() && reach == Reach::Global,
            "prefetchu" => m.take("L1") && reach == Reach::Generic,
            "discard" => m.take("L2") && matches!(reach, Reach::Generic | Reach::Global),
            _ => m.take("L2::evict_normal") && matches!(reach, Reach::Generic | Reach::Global),
        };
        m.finish()?;
        if !known || is_constant {
            return Err(self.unsupported());
        }
        let address = match (name, operands) {
            ("prefetch" | "prefetchu", [address]) => address,
            ("discard" | "applypriority", [address, Operand::Integer(ADVICE_BYTES)]) => address,
            _ => return Err(self.syntax("unexpected operands")),
        };
        self.address(address, reach).map(drop)
    }

    /// Lowers `createpolicy`. A policy is only a hint, so its value is zero.
    pub fn create_policy(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let form = m.one_of(&["fractional", "range", "cvt"]).ok_or_else(|| self.unsupported())?;
        let known = match form {
            "cvt" => m.take("L2"),
            _ => {
                if form == "range" {
                    m.take("global");
                }
                let primary = m.one_of(&PRIMARY).is_some();
                m.one_of(&["L2::evict_first", "L2::evict_unchanged"]);
                primary
            }
        };
        let ty = m.ty()?;
        m.finish()?;
        if !known || ty != Type::B64 {
            return Err(self.unsupported());
        }
        match (form, operands) {
            ("fractional", [_]) => {}
            ("fractional", [_, fraction]) => {
                let known = match fraction {
                    Operand::Double(value) => Some(*value),
                    Operand::Single(bits) => Some(f32::from_bits(*bits).into()),
                    _ => None,
                };
                if known.is_some_and(|value| value <= 0.0 || value > 1.0) {
                    return Err(self.syntax("the fraction must be above 0 and at most 1"));
                }
                self.source(fraction, Type::F32)?;
            }
            ("cvt", [_, property]) => drop(self.source(property, Type::B64)?),
            ("range", [_, address, primary, total]) => {
                self.address(address, Reach::Global)?;
                self.source(primary, Type::U32)?;
                self.source(total, Type::U32)?;
            }
            _ => return Err(self.syntax("wrong number of operands")),
        }
        let d = self.target(&operands[0], ty)?;
        let a = self.layout.constant64(0);
        self.push_lanes(unary(|a: u64| a), Slots { d, a, ..Slots::default() });
        Ok(())
    }
}
