//! Instructions that reach memory: loads, stores, atomics, copies, and the parameters of functions.

use super::check::is_strong;
use super::code::{Access, Address, Atomic, AtomicFunction, Check, CopyAsync, NO_SLOT, Op, Reach, Special};
use super::function::{Emitter, Lowered, Width, width};
use super::modifiers::Modifiers;
use super::symbols::Symbol;
use crate::ops::lanes::{Slots, binary, quaternary, ternary, unary};
use crate::ptx::tree::{Base, Operand};
use crate::ptx::types::Type;
use crate::simt::access::{load_run, store_run};

/// What `discard` and `applypriority` speak about: one line of a device's cache.
const ADVICE_BYTES: u64 = 128;

/// Spaces as instructions name them; without one the address is generic.
fn reach(m: &mut Modifiers) -> Reach {
    match m.one_of(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry", "param::func"]) {
        Some("global" | "const") => Reach::Global,
        Some("shared" | "shared::cta") => Reach::Shared,
        Some("local") => Reach::Local,
        Some(_) => Reach::Param,
        None => Reach::Generic,
    }
}

impl<'a> Emitter<'a, '_> {
    pub(super) fn address(&mut self, operand: &Operand<'a>, reach: Reach) -> Lowered<Address> {
        let Operand::Address(base, offset) = operand else { return Err(self.syntax("an address is needed")) };
        let cache = *self.accesses;
        *self.accesses += 1;
        let (slot, wide, offset) = match base {
            Base::Integer(value) => (self.layout.constant64(*value), true, *offset),
            Base::Name(name) => match self.symbol(name)? {
                Symbol::Register { slot, width: Width::Double } => (slot, true, *offset),
                Symbol::Register { slot, width: Width::Word } => (slot, false, *offset),
                Symbol::Register { .. } => return Err(self.syntax("a predicate is no address")),
                symbol => {
                    self.check_space(&symbol, reach)?;
                    let (slot, _) = self.address_of(&symbol, *offset)?;
                    (slot, true, 0)
                }
            },
        };
        Ok(Address { slot, wide, offset, reach, cache })
    }

    /// A variable named in an address lies in the space that the instruction names.
    fn check_space(&self, symbol: &Symbol, reach: Reach) -> Lowered<()> {
        let fits = match symbol {
            Symbol::Global { .. } => matches!(reach, Reach::Global | Reach::Generic),
            Symbol::Shared { .. } | Symbol::DynamicShared => reach == Reach::Shared,
            Symbol::Local { .. } => reach == Reach::Local,
            Symbol::KernelParam { .. } => reach == Reach::Param,
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.syntax("the variable lies in another space")) }
    }

    /// `v2` or `v4` and the elements of the register operand.
    fn elements(&self, m: &mut Modifiers<'a>, operand: &Operand<'a>) -> Lowered<Vec<Operand<'a>>> {
        let count = match m.one_of(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let elements = match operand {
            Operand::Vector(elements) => elements.clone(),
            single => vec![single.clone()],
        };
        if elements.len() == count { Ok(elements) } else { Err(self.syntax("wrong number of vector elements")) }
    }

    pub fn load(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let strong = is_strong(m);
        let acquires = m.take("acquire");
        m.take_hints();
        let reach = reach(m);
        self.arity(operands, 2..=2)?;
        let elements = self.elements(m, &operands[0])?;
        let ty = m.ty()?;
        m.finish()?;
        if ty == Type::Pred {
            return Err(self.unsupported());
        }
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
        let wide = wide.unwrap_or(width(ty)) == Width::Double;
        if ty.bits() == 64 && !wide {
            return Err(self.syntax("result of the wrong size"));
        }
        self.check(Check::load(address, ty.bytes() * elements.len() as u32, strong));
        let run = load_run(ty, wide);
        self.push(Op::Load(Box::new(Access { address, count: elements.len() as u32, slots, run })));
        if acquires {
            self.push(Op::Fence);
        }
        Ok(())
    }

    pub fn store(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let strong = is_strong(m);
        let releases = m.take("release");
        m.take_hints();
        let reach = reach(m);
        self.arity(operands, 2..=2)?;
        let elements = self.elements(m, &operands[1])?;
        let ty = m.ty()?;
        m.finish()?;
        if ty == Type::Pred {
            return Err(self.unsupported());
        }
        if let (Reach::Param, Operand::Address(Base::Name(name), offset)) = (reach, &operands[0])
            && let Symbol::ParamWords(words) = self.symbol(name)?
        {
            return self.store_words(&words, *offset, &elements, ty);
        }
        if reach == Reach::Param {
            return Err(self.unsupported());
        }
        let address = self.address(&operands[0], reach)?;
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
        if releases {
            self.push(Op::Fence);
        }
        let count = elements.len();
        self.check(Check::store(address, ty.bytes() * count as u32, strong, &slots[..count], wide));
        let run = store_run(ty, wide);
        self.push(Op::Store(Box::new(Access { address, count: elements.len() as u32, slots, run })));
        Ok(())
    }

    /// A kernel parameter at an offset that is known: the same value in all lanes.
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

    /// The words of a function's parameter that an element covers, and its bit inside the first.
    fn covered(&self, words: &[u32], offset: i64, index: usize, ty: Type) -> Lowered<(usize, u32)> {
        let bytes = i64::from(ty.bytes());
        let start = offset + bytes * index as i64;
        if start < 0 || start % bytes != 0 || (start + bytes + 3) / 4 > words.len() as i64 {
            return Err(self.syntax("address outside the parameter"));
        }
        Ok((start as usize / 4, (start % 4) as u32 * 8))
    }

    fn load_words(&mut self, words: &[u32], offset: i64, elements: &[Operand<'a>], ty: Type) -> Lowered<()> {
        // All are read before any register is written that might be wanted still.
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

    pub fn atomic(&mut self, reduction: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        // Every atomic is sequentially consistent, so that orders and scopes are satisfied as they are.
        m.take_hints();
        let flush_is_told = m.take("noftz");
        let reach = reach(m);
        let name = m.one_of(&["add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec"]);
        let ty = m.ty()?;
        m.finish()?;
        let function = atomic_function(name.unwrap_or_default(), ty).ok_or_else(|| self.unsupported())?;
        let is_half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
        if is_half != flush_is_told || !matches!(reach, Reach::Generic | Reach::Global | Reach::Shared) {
            return Err(self.unsupported());
        }
        let swap = function == AtomicFunction::CompareAndSwap;
        let first = usize::from(!reduction);
        self.arity(operands, first + 2 + usize::from(swap)..=first + 2 + usize::from(swap))?;
        if reduction && matches!(function, AtomicFunction::CompareAndSwap | AtomicFunction::Exchange) {
            return Err(self.unsupported());
        }
        let address = self.address(&operands[first], reach)?;
        let b = self.source(&operands[first + 1], ty)?;
        let c = if swap { self.source(&operands[first + 2], ty)? } else { b };
        let unused = reduction || matches!(operands[0], Operand::Sink);
        let d = if unused { NO_SLOT } else { self.target(&operands[0], ty)? };
        self.check(Check::atomic(address, ty.bytes()));
        self.push(Op::Atomic(Box::new(Atomic { address, function, ty, d, b, c })));
        Ok(())
    }

    /// `cp.async`: the copy is made at once, so that committing and waiting have nothing left to do.
    pub fn copy_async(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if !m.take("async") {
            return Err(self.unsupported());
        }
        if m.one_of(&["commit_group", "wait_group", "wait_all"]).is_some() {
            return m.finish();
        }
        let by_cache = m.one_of(&["ca", "cg"]).is_some();
        let shared = m.one_of(&["shared", "shared::cta"]).is_some();
        let global = m.take("global");
        m.take_hints();
        m.finish()?;
        if !(by_cache && shared && global) {
            return Err(self.unsupported());
        }
        self.arity(operands, 3..=4)?;
        let bytes = match operands[2] {
            Operand::Integer(bytes @ (4 | 8 | 16)) => bytes as u32,
            _ => return Err(self.unsupported()),
        };
        let target = self.address(&operands[0], Reach::Shared)?;
        let source = self.address(&operands[1], Reach::Global)?;
        let source_bytes = match operands.get(3) {
            Some(operand) => Some(self.source(operand, Type::U32)?),
            None => None,
        };
        self.check(Check { length: source_bytes, ..Check::load(source, bytes, false) });
        self.check(Check::store(target, bytes, false, &[], false));
        self.push(Op::CopyAsync(Box::new(CopyAsync { target, source, bytes, source_bytes })));
        Ok(())
    }

    /// Advice about caches, of which there are none here. That the instruction is a valid one is still checked.
    pub fn advise(&mut self, name: &str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let reach = reach(m);
        let known = match name {
            "prefetch" if m.take("L1") => matches!(reach, Reach::Generic | Reach::Global | Reach::Local),
            "prefetch" => {
                let hinted = m.one_of(&["L2::evict_last", "L2::evict_normal"]).is_some();
                hinted && reach == Reach::Global || m.take("L2") && matches!(reach, Reach::Generic | Reach::Global)
            }
            "prefetchu" => m.take("L1") && reach == Reach::Generic,
            "discard" => m.take("L2") && matches!(reach, Reach::Generic | Reach::Global),
            _ => m.take("L2::evict_normal") && matches!(reach, Reach::Generic | Reach::Global),
        };
        m.finish()?;
        if !known {
            return Err(self.unsupported());
        }
        let address = match (name, operands) {
            ("prefetch" | "prefetchu", [address]) => address,
            ("discard" | "applypriority", [address, Operand::Integer(ADVICE_BYTES)]) => address,
            _ => return Err(self.syntax("unexpected operands")),
        };
        self.address(address, reach).map(drop)
    }

    pub fn fence(&mut self, m: &mut Modifiers<'a>) -> Lowered<()> {
        m.take_hints();
        m.finish()?;
        self.push(Op::Fence);
        Ok(())
    }
}

/// The function of an atomic, where PTX has it for the type.
pub fn atomic_function(name: &str, ty: Type) -> Option<AtomicFunction> {
    use AtomicFunction as F;
    use Type as T;
    let integer = matches!(ty, T::U32 | T::S32 | T::U64 | T::S64);
    let bits = matches!(ty, T::B32 | T::B64);
    let number = integer || ty.is_float();
    Some(match name {
        "add" if number => F::Add,
        "and" if bits => F::And,
        "or" if bits => F::Or,
        "xor" if bits => F::Xor,
        "exch" if bits => F::Exchange,
        "cas" if bits || ty == T::B16 => F::CompareAndSwap,
        "min" if integer => F::Min,
        "max" if integer => F::Max,
        "inc" if ty == T::U32 => F::Increment,
        "dec" if ty == T::U32 => F::Decrement,
        _ => return None,
    })
}
