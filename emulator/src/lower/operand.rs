//! Operands: resolves each one to the slot that an instruction reads or writes.

use super::emitter::{Emitter, Lowered};
use super::layout::{Width, width};
use super::symbols::Symbol;
use crate::ops::lanes::{FULL, Slots, binary, unary};
use crate::program::memory::{FUNCTION_STRIDE, FUNCTION_WINDOW};
use crate::program::{Callee, Logic, Op, Special};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Returns the slot of a source of type `ty`, which has that type's width.
    pub fn source(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let (slot, found) = self.any_source(operand, ty)?;
        if found == width(ty) { Ok(slot) } else { Err(self.syntax("operand of the wrong size")) }
    }

    /// Returns the slot of a source like [`Emitter::source`]; the register may be wider than the type, and its low part
    /// counts.
    pub fn loose_source(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let (slot, found) = self.any_source(operand, ty)?;
        match (found, width(ty)) {
            (found, wanted) if found == wanted => Ok(slot),
            (Width::Double, Width::Word) => {
                let d = self.scratch(Width::Word);
                self.push_lanes(unary(|a: u64| a as u32), Slots { d, a: slot, ..Slots::default() });
                Ok(d)
            }
            _ => Err(self.syntax("operand of the wrong size")),
        }
    }

    /// Returns the slot of a source and its width; literals get the type `ty`.
    pub fn any_source(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<(u32, Width)> {
        match operand {
            Operand::Name(name) => self.named_source(name, 0, ty),
            Operand::Offset(name, offset) => self.named_source(name, *offset, ty),
            Operand::Element(name, element) => match special_vector(name, element) {
                Some(special) => {
                    self.check_special(name)?;
                    Ok((self.special(special, Width::Word), Width::Word))
                }
                None => self.part(name, element),
            },
            Operand::Negated(name) => {
                let slot = self.predicate_named(name)?;
                let d = self.layout.mask();
                self.push(Op::Predicate { function: Logic::Not, d, a: slot, b: slot, invert_b: false });
                Ok((d, Width::Mask))
            }
            Operand::Integer(_) | Operand::Single(_) | Operand::Double(_) => self.literal(operand, ty),
            _ => Err(self.syntax("unexpected operand")),
        }
    }

    fn literal(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<(u32, Width)> {
        let is_bits = |bits| ty.bits() == bits && !ty.is_float() && !ty.is_number();
        let bits = match (operand, ty) {
            (Operand::Integer(value), Type::Pred) => {
                let mask = if *value == 0 { 0 } else { FULL };
                return Ok((self.layout.constant_mask(mask), Width::Mask));
            }
            (Operand::Integer(value), _) if !ty.is_float() => *value,
            (Operand::Single(bits), Type::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
            (Operand::Single(bits), _) if ty == Type::F32 || is_bits(32) => u64::from(*bits),
            (Operand::Double(value), Type::F32) => u64::from((*value as f32).to_bits()),
            (Operand::Double(value), _) if ty == Type::F64 || is_bits(64) => value.to_bits(),
            _ => return Err(self.syntax("literal of the wrong type")),
        };
        Ok(match width(ty) {
            Width::Double => (self.layout.constant64(bits), Width::Double),
            _ => {
                let kept = if ty.bits() < 32 { bits as u32 & ((1 << ty.bits()) - 1) } else { bits as u32 };
                (self.layout.constant(kept), Width::Word)
            }
        })
    }

    fn named_source(&mut self, name: &'a str, offset: i64, ty: Type) -> Lowered<(u32, Width)> {
        if name == "WARP_SZ" {
            return Ok((self.layout.constant(32), Width::Word));
        }
        self.check_special(name)?;
        if name == "%is_explicit_cluster" {
            return Ok((self.layout.constant_mask(if self.symbols.explicit_clusters { FULL } else { 0 }), Width::Mask));
        }
        if let Some((special, width)) = special_scalar(name) {
            return Ok((self.special(special, width), width));
        }
        let symbol = self.symbol(name)?;
        if let Symbol::Register { slot, width } = symbol {
            return Ok((slot, width));
        }
        let (slot, constant) = self.address_of(&symbol, offset)?;
        match (ty.bits(), constant) {
            (32, Some(address)) => Ok((self.layout.constant(address as u32), Width::Word)),
            (32, None) => {
                let d = self.scratch(Width::Word);
                self.push_lanes(unary(|a: u64| a as u32), Slots { d, a: slot, ..Slots::default() });
                Ok((d, Width::Word))
            }
            _ => Ok((slot, Width::Double)),
        }
    }

    /// Returns the address of a variable in its own space: a 64-bit slot, and the value if it is a constant.
    pub fn address_of(&mut self, symbol: &Symbol, offset: i64) -> Lowered<(u32, Option<u64>)> {
        let address = match symbol {
            Symbol::Global { address } | Symbol::Opaque { handle: address } => *address,
            Symbol::Shared { offset } => {
                self.function.shared_used.insert(*offset);
                u64::from(*offset)
            }
            Symbol::KernelParam { offset } => u64::from(*offset),
            Symbol::Function(Callee::Function(index)) => FUNCTION_WINDOW + *index as u64 * FUNCTION_STRIDE,
            Symbol::Local { offset: start } => return Ok((self.plus(Place::Local(*start), offset), None)),
            Symbol::DynamicShared => return Ok((self.plus(Place::Dynamic, offset), None)),
            Symbol::ParamWords(_) | Symbol::Function(_) | Symbol::Register { .. } | Symbol::Tuple { .. } => {
                return Err(self.unsupported());
            }
        };
        let address = address.wrapping_add_signed(offset);
        Ok((self.layout.constant64(address), Some(address)))
    }

    fn plus(&mut self, place: Place, offset: i64) -> u32 {
        let base = match place {
            Place::Local(start) => self.local_address(start),
            Place::Dynamic => self.special(Special::DynamicSharedStart, Width::Double),
        };
        if offset == 0 {
            return base;
        }
        let (d, b) = (self.scratch(Width::Double), self.layout.constant64(offset as u64));
        self.push_lanes(binary(|a: u64, b: u64| a.wrapping_add(b)), Slots { d, a: base, b, ..Slots::default() });
        d
    }

    /// Returns the slot to which an instruction writes a value of type `ty`.
    pub fn target(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let (slot, found) = self.any_target(operand, ty)?;
        if found == width(ty) { Ok(slot) } else { Err(self.syntax("result of the wrong size")) }
    }

    /// Returns the slot to which an instruction writes, and its width, which may exceed that of the type.
    pub fn any_target(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<(u32, Width)> {
        match operand {
            Operand::Sink => Ok((self.scratch(width(ty)), width(ty))),
            Operand::Element(name, part) => self.part(name, part),
            Operand::Name("_") => Ok((self.scratch(width(ty)), width(ty))),
            Operand::Name(name) => match self.symbol(name)? {
                Symbol::Register { slot, width } => Ok((slot, width)),
                _ => Err(self.syntax("the result is not a register")),
            },
            _ => Err(self.syntax("the result is not a register")),
        }
    }

    pub fn predicate_named(&mut self, name: &'a str) -> Lowered<u32> {
        match self.symbol(name)? {
            Symbol::Register { slot, width: Width::Mask } => Ok(slot),
            _ => Err(self.syntax(format!("`{name}` is not a predicate"))),
        }
    }

    /// Returns the slot of a predicate operand, and whether it is negated.
    pub fn predicate(&mut self, operand: &Operand<'a>) -> Lowered<(u32, bool)> {
        match operand {
            Operand::Name(name) => Ok((self.predicate_named(name)?, false)),
            Operand::Negated(name) => Ok((self.predicate_named(name)?, true)),
            Operand::Integer(_) => Ok((self.source(operand, Type::Pred)?, false)),
            _ => Err(self.syntax("unexpected operand")),
        }
    }

    /// Returns the operands without the cache policy at their end, which is checked but not used.
    pub fn without_policy<'o>(&mut self, operands: &'o [Operand<'a>], has: bool) -> Lowered<&'o [Operand<'a>]> {
        match operands {
            [rest @ .., policy] if has => {
                self.source(policy, Type::B64)?;
                Ok(rest)
            }
            _ if has => Err(self.syntax("expected a cache policy")),
            _ => Ok(operands),
        }
    }

    pub fn arity(&self, operands: &[Operand<'a>], wanted: std::ops::RangeInclusive<usize>) -> Lowered<()> {
        if wanted.contains(&operands.len()) { Ok(()) } else { Err(self.syntax("wrong number of operands")) }
    }
}

enum Place {
    Local(u32),
    Dynamic,
}

/// Returns a special register with elements. A cluster is one block: clusters are numbered like blocks, and each
/// contains one block, with rank 0.
fn special_vector(name: &str, element: &str) -> Option<Special> {
    let axis = match element {
        "x" | "r" => 0,
        "y" | "g" => 1,
        "z" | "b" => 2,
        // The fourth element is not used.
        "w" | "a" => 3,
        _ => return None,
    };
    let special = match name {
        "%tid" => Special::Thread(axis),
        "%ntid" => Special::BlockSize(axis),
        "%ctaid" | "%clusterid" => Special::Block(axis),
        "%nctaid" | "%nclusterid" => Special::GridSize(axis),
        "%cluster_ctaid" => Special::Zero,
        "%cluster_nctaid" => Special::One,
        _ => return None,
    };
    Some(if axis == 3 { Special::Zero } else { special })
}

fn special_scalar(name: &str) -> Option<(Special, Width)> {
    let special = match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LanesEqual,
        "%lanemask_lt" => Special::LanesBelow,
        "%lanemask_le" => Special::LanesUpTo,
        "%lanemask_gt" => Special::LanesAbove,
        "%lanemask_ge" => Special::LanesFrom,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" | "%aggr_smem_size" => Special::TotalShared,
        // The reserved region for cooperative groups is in front of all shared variables.
        "%reserved_smem_offset_begin" | "%reserved_smem_offset_0" | "%reserved_smem_offset_1" => Special::Zero,
        "%reserved_smem_offset_end" | "%reserved_smem_offset_cap" => Special::ReservedShared,
        "%cluster_ctarank" => Special::Zero,
        "%cluster_nctarank" => Special::One,
        "%smid" => Special::Zero,
        "%nsmid" => Special::One,
        "%envreg0" => Special::Environment(0),
        "%envreg1" => Special::Environment(1),
        "%envreg2" => Special::Environment(2),
        // Zero, because device graph launch is not supported.
        "%current_graph_exec" => return Some((Special::ZeroDouble, Width::Double)),
        "%gridid" => return Some((Special::GridId, Width::Double)),
        _ => return None,
    };
    Some((special, Width::Word))
}
