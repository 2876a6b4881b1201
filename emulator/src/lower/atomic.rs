//! Atomic operations (`atom`, `red`).

use super::address::reach;
use super::emitter::{Emitter, Lowered};
use super::layout::Width;
use super::modifiers::Modifiers;
use super::qualifiers::MemoryOrder;
use crate::ops::lanes::NO_SLOT;
use crate::program::Op;
use crate::program::memory::{Address, Atomic, AtomicFunction, Check, ELEMENTS_MAX, Reach};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

const FUNCTIONS: [&str; 10] = ["add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec"];

/// The modifiers of `atom` or `red`.
struct Form {
    function: AtomicFunction,
    ty: Type,
    count: usize,
    quad: bool,
    reach: Reach,
    has_policy: bool,
}

impl<'a> Emitter<'a, '_> {
    pub fn atomic(&mut self, reduction: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let form = self.atomic_form(reduction, m)?;
        m.finish()?;
        let swap = usize::from(form.function == AtomicFunction::CompareAndSwap);
        let (first, policy) = (usize::from(!reduction), usize::from(form.has_policy));
        let wanted = first + 2 + swap + policy;
        self.arity(operands, wanted..=wanted)?;
        if form.has_policy {
            self.source(&operands[wanted - 1], Type::B64)?;
        }
        let address = self.target_address(&operands[first], form.reach)?;
        let (b, c) = (&operands[first + 1], &operands[first + 1 + swap]);
        let (b, c) = (self.atomic_sources(b, &form)?, self.atomic_sources(c, &form)?);
        let d = if reduction { [NO_SLOT; ELEMENTS_MAX] } else { self.atomic_targets(&operands[0], &form)? };
        let Form { function, ty, count, quad, .. } = form;
        self.check(Check::atomic(address, ty.bytes() * if quad { 2 } else { count as u32 }));
        self.push(Op::Atomic(Box::new(Atomic { address, function, ty, count, quad, d, b, c: [c[0], c[1]] })));
        Ok(())
    }

    /// Parses the modifiers. Every atomic is sequentially consistent here, so memory orders and scopes need no further
    /// action.
    fn atomic_form(&mut self, reduction: bool, m: &mut Modifiers<'a>) -> Lowered<Form> {
        let order = m.order().unwrap_or(MemoryOrder::Relaxed);
        m.scope();
        let has_policy = m.take("L2::cache_hint");
        let never_flushes = m.take("noftz");
        if m.take("const") {
            return Err(self.unsupported());
        }
        let reach = reach(m);
        let name = m.one_of(&FUNCTIONS).unwrap_or_default();
        let count = match m.one_of(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let quad = m.take("b128");
        let ty = if quad { Type::B64 } else { m.ty()? };
        let function = atomic_function(name, ty, count > 1).ok_or_else(|| self.unsupported())?;
        let is_half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
        let swaps = matches!(function, AtomicFunction::CompareAndSwap | AtomicFunction::Exchange);
        let known = is_half == never_flushes
            && !matches!(order, MemoryOrder::Weak | MemoryOrder::Volatile)
            && (matches!(reach, Reach::Generic | Reach::Global) || reach == Reach::Shared && count == 1 && !has_policy)
            && count as u32 * ty.bytes() <= 16
            && (!quad || swaps && count == 1)
            && !(reduction && swaps)
            && (count == 1 || is_half || ty == Type::F32);
        if known { Ok(Form { function, ty, count, quad, reach, has_policy }) } else { Err(self.unsupported()) }
    }

    fn atomic_sources(&mut self, operand: &Operand<'a>, form: &Form) -> Lowered<[u32; ELEMENTS_MAX]> {
        let mut slots = [NO_SLOT; ELEMENTS_MAX];
        if form.quad {
            slots[..2].copy_from_slice(&self.quad(operand)?);
            return Ok(slots);
        }
        let elements = self.elements(operand, form.count)?;
        for (slot, element) in slots.iter_mut().zip(&elements) {
            *slot = self.source(element, form.ty)?;
        }
        Ok(slots)
    }

    fn atomic_targets(&mut self, operand: &Operand<'a>, form: &Form) -> Lowered<[u32; ELEMENTS_MAX]> {
        let mut slots = [NO_SLOT; ELEMENTS_MAX];
        if matches!(operand, Operand::Sink) {
            return Ok(slots);
        }
        if form.quad {
            slots[..2].copy_from_slice(&self.quad(operand)?);
            return Ok(slots);
        }
        let elements = self.elements(operand, form.count)?;
        for (slot, element) in slots.iter_mut().zip(&elements) {
            if matches!(element, Operand::Sink) {
                continue;
            }
            let target = self.target(element, form.ty)?;
            // Compilers emit `atom` with a register that is never read where `red` would do.
            if !self.is_unread(element) {
                *slot = target;
            }
        }
        Ok(slots)
    }

    /// Emits an atomic 128-bit load or store.
    pub fn strong_quad(&mut self, function: AtomicFunction, address: Address, slots: [u32; 2]) {
        let mut both = [NO_SLOT; ELEMENTS_MAX];
        both[..2].copy_from_slice(&slots);
        let unused = self.scratch(Width::Double);
        let (d, b) = match function {
            AtomicFunction::Load => {
                let mut unused_both = [NO_SLOT; ELEMENTS_MAX];
                unused_both[..2].fill(unused);
                (both, unused_both)
            }
            _ => ([NO_SLOT; ELEMENTS_MAX], both),
        };
        let c = [unused; 2];
        self.check(match function {
            AtomicFunction::Load => Check::load(address, 16, true),
            _ => Check::store(address, 16, true, &slots, true),
        });
        let atomic = Atomic { address, function, ty: Type::B64, count: 1, quad: true, d, b, c };
        self.push(Op::Atomic(Box::new(atomic)));
    }
}

/// Returns the function of an atomic if PTX has it for the type; some types have more functions in vectors.
fn atomic_function(name: &str, ty: Type, in_vector: bool) -> Option<AtomicFunction> {
    use AtomicFunction as F;
    use Type as T;
    let integer = matches!(ty, T::U32 | T::S32 | T::U64 | T::S64);
    let bits = matches!(ty, T::B32 | T::B64);
    let half = matches!(ty, T::F16 | T::F16x2 | T::Bf16 | T::Bf16x2);
    Some(match name {
        "add" if integer && ty != T::S64 || ty.is_float() => F::Add,
        "min" if integer || half && in_vector => F::Min,
        "max" if integer || half && in_vector => F::Max,
        "and" if bits => F::And,
        "or" if bits => F::Or,
        "xor" if bits => F::Xor,
        "exch" if bits => F::Exchange,
        "cas" if bits || ty == T::B16 => F::CompareAndSwap,
        "inc" if ty == T::U32 => F::Increment,
        "dec" if ty == T::U32 => F::Decrement,
        _ => return None,
    })
}

/// Returns the function of `redux` if PTX has it for the type.
pub fn reduction_function(name: &str, ty: Type) -> Option<AtomicFunction> {
    match (name, ty) {
        ("add" | "min" | "max", Type::U32 | Type::S32) | ("and" | "or" | "xor", Type::B32) => {
            atomic_function(name, ty, false)
        }
        _ => None,
    }
}
