//! Branches, calls, barriers, and instructions that the lanes of a warp run together.

use super::atomic::reduction_function;
use super::emitter::{Emitter, Lowered};
use super::layout::Width;
use super::modifiers::Modifiers;
use super::symbols::Symbol;
use crate::ops::lanes::{FULL, LANES, NO_SLOT};
use crate::program::warp::{Barrier, BarrierKind, Elect, Match, Reduce, Shuffle, ShuffleMode, Vote, VoteMode};
use crate::program::{Call, Callee, Op};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;
use crate::simt::shuffle;

impl<'a> Emitter<'a, '_> {
    pub fn control(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let indexed = m.take("idx");
        m.take("uni");
        m.finish()?;
        match (name, operands) {
            ("bra", [Operand::Name(label)]) if !indexed => {
                let label = self.label(label)?;
                self.push(Op::Jump(label));
            }
            ("brx", [index, Operand::Name(list)]) if indexed => {
                let targets = self.label_list(list)?.into();
                let index = self.source(index, Type::U32)?;
                self.push(Op::JumpTable { index, targets });
            }
            ("ret", []) => self.push(Op::Return),
            ("exit", []) => self.push(Op::Exit),
            ("trap", []) => self.push(Op::Trap),
            ("brkpt", []) => self.push(Op::Breakpoint),
            ("call", _) if !indexed => return self.call(operands),
            _ => return Err(self.unsupported()),
        }
        Ok(())
    }

    fn call(&mut self, operands: &[Operand<'a>]) -> Lowered<()> {
        let (results, rest) = match operands {
            [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
            _ => (&[][..], operands),
        };
        let (name, arguments) = match rest {
            [Operand::Name(name)] => (*name, &[][..]),
            [Operand::Name(name), Operand::List(arguments)] => (*name, arguments.as_slice()),
            // The prototype or the list of targets adds nothing to the arguments.
            [Operand::Name(name), Operand::List(arguments), Operand::Name(_)] => (*name, arguments.as_slice()),
            [Operand::Name(name), Operand::Name(_)] => (*name, &[][..]),
            _ => return Err(self.syntax("malformed call")),
        };
        let (arguments, results) = (self.call_words(arguments)?, self.call_words(results)?);
        let callee = match self.symbol(name)? {
            Symbol::Function(callee) => callee,
            Symbol::Register { slot, width: Width::Double } => Callee::Register(slot),
            _ => return Err(self.syntax(format!("`{name}` cannot be called"))),
        };
        let expected = match callee {
            Callee::Function(_) => self.symbols.signatures.get(name).copied(),
            Callee::Register(_) => None,
            Callee::Print => Some((4, 1)),
            // Arguments of `__assertfail`: message, file, line, function, size of a character.
            Callee::AssertFail => Some((9, 0)),
            Callee::Allocate => Some((2, 2)),
            Callee::Free => Some((2, 0)),
        };
        if expected.is_some_and(|expected| expected != (arguments.len(), results.len())) {
            return Err(self.syntax(format!("the arguments do not match `{name}`")));
        }
        match callee {
            Callee::Function(index) => self.function.calls.functions.push(index),
            Callee::Register(_) => self.function.calls.indirect = true,
            _ => {}
        }
        self.push(Op::Call(Box::new(Call { callee, arguments, results })));
        Ok(())
    }

    fn call_words(&mut self, list: &[Operand<'a>]) -> Lowered<Vec<u32>> {
        let mut words = Vec::new();
        for operand in list {
            match operand {
                Operand::Name(name) => match self.symbol(name)? {
                    Symbol::ParamWords(found) => words.extend(found),
                    Symbol::Register { slot, width: Width::Word } => words.push(slot),
                    _ => return Err(self.unsupported()),
                },
                _ => return Err(self.unsupported()),
            }
        }
        Ok(words)
    }

    pub fn barrier(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if m.take("warp") {
            let synchronizes = m.take("sync");
            m.finish()?;
            self.arity(operands, 1..=1)?;
            let mask = self.source(&operands[0], Type::B32)?;
            if !synchronizes {
                return Err(self.unsupported());
            }
            self.push(Op::WarpBarrier { mask });
            return Ok(());
        }
        if m.take("cluster") {
            return self.cluster_barrier(m, operands);
        }
        let is_bar = self.text.split('.').next() == Some("bar");
        m.take("cta");
        // Unlike `bar`, `barrier` without `.aligned` does not require all lanes of a warp to reach the same
        // instruction.
        let aligned = m.take("aligned") || is_bar;
        let kind = match m.one_of(&["sync", "arrive", "red"]) {
            Some("sync") => BarrierKind::Sync,
            Some("arrive") => BarrierKind::Arrive,
            Some(_) => match m.one_of(&["popc", "and", "or"]) {
                Some("popc") => BarrierKind::Count,
                Some("and") => BarrierKind::And,
                Some(_) => BarrierKind::Or,
                None => return Err(self.unsupported()),
            },
            None => return Err(self.unsupported()),
        };
        let is_reduction = matches!(kind, BarrierKind::Count | BarrierKind::And | BarrierKind::Or);
        if is_reduction {
            let ty = m.ty()?;
            if (ty == Type::Pred) == (kind == BarrierKind::Count) {
                return Err(self.unsupported());
            }
        }
        m.finish()?;
        self.function.has_barrier = true;
        let (d, rest) = match (kind, operands) {
            (BarrierKind::Count, [d, rest @ ..]) => (self.target(d, Type::U32)?, rest),
            (BarrierKind::And | BarrierKind::Or, [d, rest @ ..]) => (self.target(d, Type::Pred)?, rest),
            (_, rest) => (NO_SLOT, rest),
        };
        let (p, invert, rest) = match rest {
            [rest @ .., p] if is_reduction => {
                let (p, invert) = self.predicate(p)?;
                (p, invert, rest)
            }
            _ => (NO_SLOT, false, rest),
        };
        self.arity(rest, 1..=2)?;
        let id = self.source(&rest[0], Type::U32)?;
        let threads = match rest.get(1) {
            Some(threads) => self.source(threads, Type::U32)?,
            None if kind == BarrierKind::Arrive => return Err(self.syntax("wrong number of operands")),
            None => NO_SLOT,
        };
        let is_plain = kind == BarrierKind::Sync && threads == NO_SLOT;
        let all = if is_plain { self.layout.value(id) } else { None };
        self.push(Op::Barrier(Box::new(Barrier { kind, aligned, all, id, threads, d, p, invert })));
        Ok(())
    }

    pub fn shuffle(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let synchronizes = m.take("sync");
        let mode = match m.one_of(&["up", "down", "bfly", "idx"]) {
            Some("up") => ShuffleMode::Up,
            Some("down") => ShuffleMode::Down,
            Some("bfly") => ShuffleMode::Butterfly,
            Some(_) => ShuffleMode::Index,
            None => return Err(self.unsupported()),
        };
        let ty = m.ty()?;
        m.finish()?;
        if !synchronizes || ty != Type::B32 {
            return Err(self.unsupported());
        }
        self.arity(operands, 5..=5)?;
        let (d, valid) = match &operands[0] {
            Operand::Both(d, p) => (self.target(&Operand::Name(d), ty)?, self.target(&Operand::Name(p), Type::Pred)?),
            d => (self.target(d, ty)?, self.scratch(Width::Mask)),
        };
        let a = self.source(&operands[1], ty)?;
        let b = self.source(&operands[2], ty)?;
        let c = self.source(&operands[3], ty)?;
        let mask = self.source(&operands[4], ty)?;
        let all = self.layout.value(mask) == Some(FULL) && !self.symbols.checked;
        let sources = match (self.layout.value(b), self.layout.value(c)) {
            (Some(b), Some(c)) => Some(Box::new(shuffle::sources(mode, &[b; LANES], &[c; LANES]))),
            _ => None,
        };
        self.push(Op::Shuffle(Box::new(Shuffle { mode, d, valid, a, b, c, mask, all, sources })));
        Ok(())
    }

    pub fn vote(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let synchronizes = m.take("sync");
        let mode = match m.one_of(&["all", "any", "uni", "ballot"]) {
            Some("all") => VoteMode::All,
            Some("any") => VoteMode::Any,
            Some("uni") => VoteMode::Uniform,
            Some(_) => VoteMode::Ballot,
            None => return Err(self.unsupported()),
        };
        let ty = m.ty()?;
        m.finish()?;
        let wanted = if mode == VoteMode::Ballot { Type::B32 } else { Type::Pred };
        if ty != wanted || !synchronizes {
            return Err(self.unsupported());
        }
        self.arity(operands, 3..=3)?;
        let d = self.target(&operands[0], ty)?;
        let (a, invert) = self.predicate(&operands[1])?;
        let mask = self.source(&operands[2], Type::B32)?;
        self.push(Op::Vote(Box::new(Vote { mode, d, a, invert, mask })));
        Ok(())
    }

    pub fn match_lanes(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let all = m.one_of(&["any", "all"]).ok_or_else(|| self.unsupported())? == "all";
        let synchronizes = m.take("sync");
        let ty = m.ty()?;
        m.finish()?;
        if !synchronizes || !matches!(ty, Type::B32 | Type::B64) {
            return Err(self.unsupported());
        }
        self.arity(operands, 3..=3)?;
        let (d, p) = match &operands[0] {
            Operand::Both(d, p) if all => {
                (self.target(&Operand::Name(d), Type::B32)?, self.target(&Operand::Name(p), Type::Pred)?)
            }
            d => (self.target(d, Type::B32)?, NO_SLOT),
        };
        let a = self.source(&operands[1], ty)?;
        let mask = self.source(&operands[2], Type::B32)?;
        self.push(Op::Match(Box::new(Match { all, d, p, a, wide: ty == Type::B64, mask })));
        Ok(())
    }

    pub fn reduce(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let synchronizes = m.take("sync");
        let name = m.one_of(&["add", "min", "max", "and", "or", "xor"]).unwrap_or_default();
        let ty = m.ty()?;
        m.finish()?;
        let function = reduction_function(name, ty).filter(|_| synchronizes);
        let function = function.ok_or_else(|| self.unsupported())?;
        self.arity(operands, 3..=3)?;
        let d = self.target(&operands[0], ty)?;
        let a = self.source(&operands[1], ty)?;
        let mask = self.source(&operands[2], Type::B32)?;
        self.push(Op::Reduce(Box::new(Reduce { function, ty, d, a, mask })));
        Ok(())
    }

    pub fn elect(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let synchronizes = m.take("sync");
        m.finish()?;
        let (true, [Operand::Both(d, p), mask]) = (synchronizes, operands) else { return Err(self.unsupported()) };
        let d = if *d == "_" { NO_SLOT } else { self.target(&Operand::Name(d), Type::B32)? };
        let p = self.target(&Operand::Name(p), Type::Pred)?;
        let mask = self.source(mask, Type::B32)?;
        self.push(Op::Elect(Box::new(Elect { d, p, mask })));
        Ok(())
    }

    pub fn sleep(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 1..=1)?;
        if ty != Type::U32 {
            return Err(self.unsupported());
        }
        let nanoseconds = self.source(&operands[0], ty)?;
        self.push(Op::Sleep { nanoseconds });
        Ok(())
    }

    /// Accepts `pmevent`, which triggers a profiler's counters; there is no profiler.
    pub fn monitor(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        m.take("mask");
        m.finish()?;
        match operands {
            [Operand::Integer(_)] => Ok(()),
            _ => Err(self.syntax("expected a constant")),
        }
    }

    pub fn active_mask(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 1..=1)?;
        if ty != Type::B32 {
            return Err(self.unsupported());
        }
        let d = self.target(&operands[0], ty)?;
        self.push(Op::ActiveMask { d });
        Ok(())
    }
}
