//! Moves (`mov`): copies, packing, unpacking, and clock registers.

use super::super::emitter::{Emitter, Lowered};
use super::super::layout::{Width, width};
use super::super::modifiers::Modifiers;
use crate::ops::bits;
use crate::ops::lanes::{Lanes, Slots, binary, quaternary, unary};
use crate::program::{Logic, Op};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Lowers `mov.b128`, between 128-bit registers and pairs of 64 bits.
    pub fn move_quad(&mut self, operands: &[Operand<'a>]) -> Lowered<()> {
        let [d, a] = operands else { return Err(self.syntax("wrong number of operands")) };
        let a = match a {
            Operand::Vector(parts) if parts.len() == 2 => {
                [self.source(&parts[0], Type::B64)?, self.source(&parts[1], Type::B64)?]
            }
            single => self.quad(single)?,
        };
        // Everything is read before anything is written, because the halves may be swapped.
        let held = [self.scratch(Width::Double), self.scratch(Width::Double)];
        for (d, a) in held.into_iter().zip(a) {
            self.push_lanes(unary(|a: u64| a), Slots { d, a, ..Slots::default() });
        }
        let d = match d {
            Operand::Vector(parts) if parts.len() == 2 => {
                [self.target(&parts[0], Type::B64)?, self.target(&parts[1], Type::B64)?]
            }
            single => self.quad(single)?,
        };
        for (d, a) in d.into_iter().zip(held) {
            self.push_lanes(unary(|a: u64| a), Slots { d, a, ..Slots::default() });
        }
        Ok(())
    }

    pub fn mov(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        let small = ty.bits() == 8 || ty.is_float() && !matches!(ty, Type::F32 | Type::F64);
        if small {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let is_bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        match (&operands[0], &operands[1]) {
            (Operand::Vector(_), _) | (_, Operand::Vector(_)) if !is_bits => return Err(self.unsupported()),
            (Operand::Vector(parts), whole) => return self.unpack(parts, whole, ty),
            (whole, Operand::Vector(parts)) => return self.pack(whole, parts, ty),
            (_, Operand::Name(name)) if self.clock(name, ty, &operands[0])? => return Ok(()),
            _ => {}
        }
        if ty == Type::Pred {
            let a = self.source(&operands[1], ty)?;
            let d = self.target(&operands[0], ty)?;
            self.push(Op::Predicate { function: Logic::Copy, d, a, b: a, invert_b: false });
            return Ok(());
        }
        let a = self.typed_source(&operands[1], ty)?;
        if ty.bits() >= 32 && self.alias(&operands[0], a, width(ty)) {
            return Ok(());
        }
        let lanes = bits::copy("mov", ty).ok_or_else(|| self.unsupported())?;
        let d = self.typed_target(&operands[0], ty)?;
        self.push_lanes(lanes, Slots { d, a, ..Slots::default() });
        Ok(())
    }

    /// Lowers reads of clock registers, which advance with every read.
    fn clock(&mut self, name: &str, ty: Type, target: &Operand<'a>) -> Lowered<bool> {
        let (wide, shift) = match name {
            "%clock64" | "%globaltimer" => (true, 0),
            "%clock" | "%globaltimer_lo" => (false, 0),
            "%clock_hi" | "%globaltimer_hi" => (false, 32),
            _ => return Ok(false),
        };
        let wanted = if wide { Width::Double } else { Width::Word };
        let (d, found) = self.any_target(target, ty)?;
        if found != wanted {
            return Err(self.syntax("result of the wrong size"));
        }
        self.push(Op::Clock { d, wide, shift });
        Ok(true)
    }

    fn pack(&mut self, whole: &Operand<'a>, parts: &[Operand<'a>], ty: Type) -> Lowered<()> {
        let (part, lanes) = match (ty.bits(), parts.len()) {
            (64, 2) => (Type::B32, binary(|a: u32, b: u32| u64::from(a) | u64::from(b) << 32)),
            (32, 2) => (Type::B16, binary(|a: u16, b: u16| u32::from(a) | u32::from(b) << 16)),
            (64, 4) => {
                let join = quaternary(|a: u16, b: u16, c: u16, e: u16| {
                    u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(e) << 48
                });
                (Type::B16, join)
            }
            (16, 2) => (Type::B8, binary(|a: u8, b: u8| u16::from(a) | u16::from(b) << 8)),
            (32, 4) => {
                let join = quaternary(|a: u8, b: u8, c: u8, e: u8| u32::from_le_bytes([a, b, c, e]));
                (Type::B8, join)
            }
            _ => return Err(self.unsupported()),
        };
        let mut slots = [0; 4];
        for (slot, operand) in slots.iter_mut().zip(parts) {
            *slot = self.typed_source(operand, part)?;
        }
        let [a, b, c, e] = slots;
        let d = self.typed_target(whole, ty)?;
        self.push_lanes(lanes, Slots { d, a, b, c, e });
        Ok(())
    }

    fn unpack(&mut self, parts: &[Operand<'a>], whole: &Operand<'a>, ty: Type) -> Lowered<()> {
        let a = self.typed_source(whole, ty)?;
        let (part, lanes): (Type, Vec<Lanes>) = match (ty.bits(), parts.len()) {
            (64, 2) => (Type::B32, vec![unary(|a: u64| a as u32), unary(|a: u64| (a >> 32) as u32)]),
            (32, 2) => (Type::B16, vec![unary(|a: u32| a as u16), unary(|a: u32| (a >> 16) as u16)]),
            (16, 2) => (Type::B8, vec![unary(|a: u16| a as u8), unary(|a: u16| (a >> 8) as u8)]),
            (64, 4) => (
                Type::B16,
                vec![
                    unary(|a: u64| a as u16),
                    unary(|a: u64| (a >> 16) as u16),
                    unary(|a: u64| (a >> 32) as u16),
                    unary(|a: u64| (a >> 48) as u16),
                ],
            ),
            (32, 4) => (
                Type::B8,
                vec![
                    unary(|a: u32| a as u8),
                    unary(|a: u32| (a >> 8) as u8),
                    unary(|a: u32| (a >> 16) as u8),
                    unary(|a: u32| (a >> 24) as u8),
                ],
            ),
            _ => return Err(self.unsupported()),
        };
        // A part may be the register of the whole, so all parts are extracted before any is written.
        let mut taken = Vec::new();
        for (operand, run) in parts.iter().zip(lanes) {
            if matches!(operand, Operand::Sink) {
                continue;
            }
            let between = self.scratch(Width::Word);
            self.push_lanes(run, Slots { d: between, a, ..Slots::default() });
            taken.push((self.typed_target(operand, part)?, between));
        }
        for (d, a) in taken {
            self.push_lanes(unary(|a: u32| a), Slots { d, a, ..Slots::default() });
        }
        Ok(())
    }
}
