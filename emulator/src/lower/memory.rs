//! Memory instructions: loads, stores, fences, and the parameters of functions.

use super::address::reach;
use super::emitter::{Emitter, Lowered};
use super::layout::{Width, width};
use super::modifiers::Modifiers;
use super::qualifiers::MemoryOrder;
use super::symbols::Symbol;
use crate::ops::lanes::{NO_SLOT, Slots, binary, quaternary, ternary, unary};
use crate::program::memory::{AtomicFunction, Check, Reach, Repeat};
use crate::program::{Op, Special};
use crate::ptx::tree::{Base, Operand};
use crate::ptx::types::Type;
use crate::simt::access::{Access, load_run, store_run};

/// `.sync_restrict` modifiers of a fence.
const RESTRICTIONS: [&str; 2] = ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"];

impl<'a> Emitter<'a, '_> {
    /// Parses what a load or a store moves: its elements, their type, and whether they are the halves of 128 bits.
    fn moved(&mut self, m: &mut Modifiers<'a>, operand: &Operand<'a>) -> Lowered<(Vec<Operand<'a>>, Type, bool)> {
        if m.take("b128") {
            m.finish()?;
            return Ok((self.halves(operand)?, Type::B64, true));
        }
        let count = match m.one_of(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let ty = m.ty()?;
        m.finish()?;
        // PTX has loads and stores of untyped bits, integers, and 32-bit and 64-bit floats.
        let known = ty != Type::Pred && !matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
        if !known || count as u32 * ty.bytes() > 16 {
            return Err(self.unsupported());
        }
        Ok((self.elements(operand, count)?, ty, false))
    }

    pub fn load(&mut self, uniform: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let constant = m.take("nc");
        let qualifiers = m.access(&["ca", "cg", "cs", "lu", "cv"], MemoryOrder::Acquire);
        let qualifiers = qualifiers.ok_or_else(|| self.unsupported())?;
        m.prefetch_size();
        let reach = reach(m);
        let plain = qualifiers.order == MemoryOrder::Weak;
        let ordered_fits = plain || matches!(reach, Reach::Generic | Reach::Global | Reach::Shared);
        let uniform_fits = !uniform || plain && matches!(reach, Reach::Generic | Reach::Global);
        if !ordered_fits || !uniform_fits || constant && !(plain && reach == Reach::Global) {
            return Err(self.unsupported());
        }
        let operands = self.without_policy(operands, qualifiers.has_policy)?;
        self.arity(operands, 2..=2)?;
        let (elements, ty, quad) = self.moved(m, &operands[0])?;
        if reach == Reach::Param
            && let Operand::Address(Base::Name(name), offset) = &operands[1]
        {
            match self.symbol(name)? {
                Symbol::KernelParam { offset: start } => {
                    return self.load_parameter(i64::from(start) + offset, &elements, ty);
                }
                Symbol::ParamWords(words) => return self.load_words(&words, *offset, &elements, ty),
                _ => {}
            }
        }
        if reach == Reach::Param && !self.is_entry {
            return Err(self.unsupported());
        }
        let address = self.address(&operands[1], reach)?;
        if quad && !plain {
            let slots = self.quad(&operands[0])?;
            self.strong_quad(AtomicFunction::Load, address, slots);
            return Ok(());
        }
        let mut slots = [NO_SLOT; 4];
        let mut wide = None;
        for (slot, element) in slots.iter_mut().zip(&elements) {
            if matches!(element, Operand::Sink) {
                continue;
            }
            let (found, width) = self.any_target(element, ty)?;
            if width == Width::Mask || *wide.get_or_insert(width) != width {
                return Err(self.syntax("result of the wrong size"));
            }
            *slot = found;
        }
        let width = wide.unwrap_or(width(ty));
        let wide = width == Width::Double;
        if ty.bits() == 64 && !wide {
            return Err(self.syntax("result of the wrong size"));
        }
        // Unwanted elements (`_`) get a register too, so that a load need not test for them.
        for slot in slots[..elements.len()].iter_mut().filter(|slot| **slot == NO_SLOT) {
            *slot = self.scratch(width);
        }
        self.check(Check::load(address, ty.bytes() * elements.len() as u32, !plain));
        let run = load_run(ty, wide, elements.len() as u32);
        self.push(Op::Load(Box::new(Access { address, ordered: !plain, repeat: Repeat::Never, slots, run })));
        if qualifiers.order == MemoryOrder::Acquire {
            self.push(Op::Fence);
        }
        Ok(())
    }

    pub fn store(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let qualifiers = m.access(&["wb", "cg", "cs", "wt"], MemoryOrder::Release);
        let qualifiers = qualifiers.ok_or_else(|| self.unsupported())?;
        if m.take("const") {
            return Err(self.unsupported());
        }
        let reach = reach(m);
        let plain = qualifiers.order == MemoryOrder::Weak;
        if !plain && !matches!(reach, Reach::Generic | Reach::Global | Reach::Shared) {
            return Err(self.unsupported());
        }
        let operands = self.without_policy(operands, qualifiers.has_policy)?;
        self.arity(operands, 2..=2)?;
        let (elements, ty, quad) = self.moved(m, &operands[1])?;
        if let (Reach::Param, Operand::Address(Base::Name(name), offset)) = (reach, &operands[0])
            && let Symbol::ParamWords(words) = self.symbol(name)?
        {
            return self.store_words(&words, *offset, &elements, ty);
        }
        if reach == Reach::Param {
            return Err(self.unsupported());
        }
        let address = self.target_address(&operands[0], reach)?;
        if quad && !plain {
            let slots = self.quad(&operands[1])?;
            self.strong_quad(AtomicFunction::Store, address, slots);
            return Ok(());
        }
        let mut slots = [NO_SLOT; 4];
        let mut wide = None;
        for (slot, element) in slots.iter_mut().zip(&elements) {
            let (found, width) = self.any_source(element, ty)?;
            if width == Width::Mask || *wide.get_or_insert(width) != width {
                return Err(self.syntax("operand of the wrong size"));
            }
            *slot = found;
        }
        let wide = wide == Some(Width::Double);
        if ty.bits() == 64 && !wide {
            return Err(self.syntax("operand of the wrong size"));
        }
        if qualifiers.order == MemoryOrder::Release {
            self.push(Op::Fence);
        }
        let count = elements.len();
        self.check(Check::store(address, ty.bytes() * count as u32, !plain, &slots[..count], wide));
        let run = store_run(ty, wide, count as u32);
        self.push(Op::Store(Box::new(Access { address, ordered: !plain, repeat: Repeat::Never, slots, run })));
        Ok(())
    }

    /// Lowers the load of a kernel parameter at a constant offset, whose value is equal in all lanes.
    fn load_parameter(&mut self, start: i64, elements: &[Operand<'a>], ty: Type) -> Lowered<()> {
        let bytes = ty.bytes();
        for (index, element) in elements.iter().enumerate() {
            let offset = u32::try_from(start + i64::from(bytes) * index as i64);
            let offset = offset.map_err(|_| self.syntax("address outside the parameters"))?;
            if !offset.is_multiple_of(bytes) {
                return Err(self.syntax("misaligned parameter"));
            }
            let special = |wide| Special::Parameter { offset, bytes, signed: ty.is_signed(), wide };
            if bytes >= 4 {
                let a = self.special(special(bytes == 8), width(ty));
                if self.alias(element, a, width(ty)) {
                    continue;
                }
            }
            let (d, found) = self.any_target(element, ty)?;
            if found == Width::Mask || ty.bits() == 64 && found != Width::Double {
                return Err(self.syntax("result of the wrong size"));
            }
            let wide = found == Width::Double;
            let a = self.special(special(wide), found);
            let copy = if wide { unary(|a: u64| a) } else { unary(|a: u32| a) };
            self.push_lanes(copy, Slots { d, a, ..Slots::default() });
        }
        Ok(())
    }

    /// Returns the index of the parameter word that contains an element, and the element's bit in that word.
    fn covered(&self, words: &[u32], offset: i64, index: usize, ty: Type) -> Lowered<(usize, u32)> {
        let bytes = i64::from(ty.bytes());
        let start = offset + bytes * index as i64;
        if start < 0 || start % bytes != 0 || (start + bytes + 3) / 4 > words.len() as i64 {
            return Err(self.syntax("address outside the parameter"));
        }
        Ok((start as usize / 4, (start % 4) as u32 * 8))
    }

    fn load_words(&mut self, words: &[u32], offset: i64, elements: &[Operand<'a>], ty: Type) -> Lowered<()> {
        // All elements are read before any register is written, because a register may still be needed.
        for (index, element) in elements.iter().enumerate() {
            let (word, bit) = self.covered(words, offset, index, ty)?;
            let (d, found) = self.any_target(element, ty)?;
            let a = words[word];
            match (ty.bits(), found) {
                (_, Width::Mask) | (64, Width::Word) => return Err(self.syntax("result of the wrong size")),
                (64, _) => {
                    let join = binary(|a: u32, b: u32| u64::from(a) | u64::from(b) << 32);
                    self.push_lanes(join, Slots { d, a, b: words[word + 1], ..Slots::default() });
                }
                (bits, _) => {
                    let target = if found == Width::Double { self.scratch(Width::Word) } else { d };
                    if bits == 32 {
                        self.push_lanes(unary(|a: u32| a), Slots { d: target, a, ..Slots::default() });
                    } else {
                        let (b, c) = (self.layout.constant(bit), self.layout.constant(bits));
                        let field = if ty.is_signed() {
                            ternary(|a: u32, b: u32, c: u32| ((a << (32 - b - c)) as i32) >> (32 - c))
                        } else {
                            ternary(|a: u32, b: u32, c: u32| (a << (32 - b - c)) >> (32 - c))
                        };
                        self.push_lanes(field, Slots { d: target, a, b, c, e: 0 });
                    }
                    if found == Width::Double {
                        self.widen(d, target, ty.is_signed());
                    }
                }
            }
        }
        Ok(())
    }

    fn store_words(&mut self, words: &[u32], offset: i64, elements: &[Operand<'a>], ty: Type) -> Lowered<()> {
        for (index, element) in elements.iter().enumerate() {
            let (word, bit) = self.covered(words, offset, index, ty)?;
            let d = words[word];
            if ty.bits() == 64 {
                let a = self.source(element, ty)?;
                self.push_lanes(unary(|a: u64| a as u32), Slots { d, a, ..Slots::default() });
                let high = words[word + 1];
                self.push_lanes(unary(|a: u64| (a >> 32) as u32), Slots { d: high, a, ..Slots::default() });
                continue;
            }
            let a = self.loose_source(element, ty)?;
            if ty.bits() == 32 {
                self.push_lanes(unary(|a: u32| a), Slots { d, a, ..Slots::default() });
            } else {
                let (c, e) = (self.layout.constant(bit), self.layout.constant((1 << ty.bits()) - 1));
                let insert = quaternary(|a: u32, b: u32, c: u32, e: u32| b & !(e << c) | (a & e) << c);
                self.push_lanes(insert, Slots { d, a, b: d, c, e });
            }
        }
        Ok(())
    }

    /// Lowers fences and `membar`. All accesses and copies are made in program order here, so any fence is just a fence
    /// between threads.
    pub fn fence(&mut self, is_membar: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        self.arity(operands, 0..=0)?;
        let known = if m.take("proxy") {
            m.take("alias") || !is_membar && self.proxy(m)
        } else if is_membar {
            m.one_of(&["cta", "gl", "sys"]).is_some()
        } else if m.take("mbarrier_init") {
            m.take("release") && m.take("cluster")
        } else {
            let order = m.one_of(&["sc", "acq_rel", "acquire", "release"]);
            match m.one_of(&RESTRICTIONS) {
                Some(restriction) => restricts(order, restriction) && m.take("cluster"),
                None => m.scope(),
            }
        };
        m.finish()?;
        if !known {
            return Err(self.unsupported());
        }
        self.push(Op::Fence);
        Ok(())
    }

    /// Parses a fence between the generic and the async proxy.
    fn proxy(&mut self, m: &mut Modifiers<'a>) -> bool {
        if m.take("async") {
            m.one_of(&["global", "shared::cta", "shared::cluster"]);
            return true;
        }
        m.take("async::generic")
            && restricts(m.one_of(&["acquire", "release"]), m.one_of(&RESTRICTIONS).unwrap_or_default())
            && m.take("cluster")
    }
}

/// Reports whether a restriction fits the order of a fence: a release is restricted to shared memory of the own block,
/// an acquire to that of the cluster.
fn restricts(order: Option<&str>, restriction: &str) -> bool {
    let releases = (Some("release"), "sync_restrict::shared::cta");
    let acquires = (Some("acquire"), "sync_restrict::shared::cluster");
    [releases, acquires].contains(&(order, restriction))
}
