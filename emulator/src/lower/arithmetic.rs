//! Instructions that compute: arithmetic, logic, comparison, selection, conversion, moves.

use super::code::{LOCAL_WINDOW, Logic, Op, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BITS};
use super::function::{Emitter, Lowered, Width, width};
use super::modifiers::Modifiers;
use super::symbols::Symbol;
use crate::ops::convert::{self, Conversion};
use crate::ops::exact::Rounding;
use crate::ops::lanes::{Lanes, Slots, binary, compare, quaternary, unary};
use crate::ops::{float, half, integer, math};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Emits `lanes` with a result and sources of the given types.
    fn emit(&mut self, lanes: Option<Lanes>, operands: &[Operand<'a>], d: Type, sources: &[Type]) -> Lowered<()> {
        let lanes = lanes.ok_or_else(|| self.unsupported())?;
        self.arity(operands, sources.len() + 1..=sources.len() + 1)?;
        let mut slots = [0; 4];
        for (slot, (operand, ty)) in slots.iter_mut().zip(operands[1..].iter().zip(sources)) {
            *slot = self.source(operand, *ty)?;
        }
        let [a, b, c, e] = slots;
        let d = self.target(&operands[0], d)?;
        self.push_lanes(lanes, Slots { d, a, b, c, e });
        Ok(())
    }

    pub fn arithmetic(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let Some(sources) = source_count(name) else { return Err(self.unsupported()) };
        let half = m.one_of(&["lo", "hi", "wide"]);
        let writes_carry = m.take("cc");
        let carry = writes_carry || name == "addc" || name == "subc" || name == "madc";
        let approximate = m.take("approx") | m.take("full");
        let rounding = m.rounding();
        let (flush, saturate, nan) = (m.take("ftz"), m.take("sat"), m.take("NaN"));
        let ty = m.ty()?;
        m.finish()?;
        let modifiers = float::Modifiers { rounding: rounding.unwrap_or(Rounding::Nearest), flush, saturate };
        if ty.is_float() {
            if half.is_some() || carry {
                return Err(self.unsupported());
            }
            let lanes = float_operation(name, ty, modifiers, rounding.is_some(), approximate, nan);
            return self.emit(lanes, operands, ty, &vec![ty; sources]);
        }
        if flush || nan || approximate || rounding.is_some() || ty == Type::Pred {
            return Err(self.unsupported());
        }
        match half {
            None if name == "mad" || name == "mul" || name == "madc" => Err(self.unsupported()),
            _ if carry => self.carrying(name, half, ty, writes_carry, operands),
            Some("wide") => {
                let lanes = integer::arithmetic(&format!("{name}.wide"), ty).filter(|_| !saturate);
                let wide = if ty.bits() == 16 { Type::U32 } else { Type::U64 };
                let types = if name == "mad" { vec![ty, ty, wide] } else { vec![ty, ty] };
                self.emit(lanes, operands, wide, &types)
            }
            _ => {
                let mut spelled = name.to_owned();
                for part in half.into_iter().chain(saturate.then_some("sat")) {
                    spelled = format!("{spelled}.{part}");
                }
                self.emit(integer::arithmetic(&spelled, ty), operands, ty, &vec![ty; sources])
            }
        }
    }

    fn carrying(
        &mut self,
        name: &str,
        half: Option<&str>,
        ty: Type,
        writes: bool,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let mut spelled = name.to_owned();
        if let Some(half) = half {
            spelled = format!("{spelled}.{half}");
        }
        if half == Some("hi") && ty.is_signed() {
            spelled.push_str(".signed");
        }
        let lanes = integer::carrying(&spelled, ty).ok_or_else(|| self.unsupported())?;
        let sources = if half.is_some() { 3 } else { 2 };
        self.arity(operands, sources + 1..=sources + 1)?;
        let a = self.source(&operands[1], ty)?;
        let b = self.source(&operands[2], ty)?;
        let c = if sources == 3 { self.source(&operands[3], ty)? } else { b };
        let d = self.target(&operands[0], ty)?;
        let e = self.carry_slot();
        // Only `.cc` writes the carry; without it the flag of before stays.
        let flag = if writes { e } else { self.copied_mask(e) };
        self.push_lanes(lanes, Slots { d, a, b, c, e: flag });
        Ok(())
    }

    fn copied_mask(&mut self, slot: u32) -> u32 {
        let copy = self.layout.mask();
        self.push(Op::Predicate { function: Logic::Copy, d: copy, a: slot, b: slot, invert_b: false });
        copy
    }

    pub fn bits(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        match name {
            "prmt" => {
                let ty = m.ty()?;
                let mode = m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).unwrap_or_default();
                m.finish()?;
                let lanes = integer::permute(mode).filter(|_| ty == Type::B32);
                return self.emit(lanes, operands, Type::B32, &[Type::B32; 3]);
            }
            "shf" => {
                let left = m.one_of(&["l", "r"]).ok_or_else(|| self.unsupported())? == "l";
                let wrap = m.one_of(&["wrap", "clamp"]).ok_or_else(|| self.unsupported())? == "wrap";
                let ty = m.ty()?;
                m.finish()?;
                let lanes = Some(integer::funnel(left, wrap)).filter(|_| ty == Type::B32);
                return self.emit(lanes, operands, Type::B32, &[Type::B32, Type::B32, Type::U32]);
            }
            _ => {}
        }
        let shift_amount = m.take("shiftamt");
        let ty = m.ty()?;
        m.finish()?;
        if ty == Type::Pred {
            return self.logic(name, operands);
        }
        if ty.is_float() || shift_amount && name != "bfind" {
            return Err(self.unsupported());
        }
        let spelled = if shift_amount { "bfind.shiftamt" } else { name };
        let lanes = integer::bitwise(spelled, ty);
        let word = Type::U32;
        match name {
            "not" | "cnot" => self.emit(lanes, operands, ty, &[ty]),
            "popc" | "clz" | "bfind" => self.emit(lanes, operands, word, &[ty]),
            "brev" => self.emit(lanes, operands, ty, &[ty]),
            "shl" | "shr" => self.emit(lanes, operands, ty, &[ty, word]),
            "bfe" => self.emit(lanes, operands, ty, &[ty, word, word]),
            "bfi" => self.emit(lanes, operands, ty, &[ty, ty, word, word]),
            "lop3" => self.emit(lanes, operands, ty, &[ty, ty, ty, word]),
            _ => self.emit(lanes, operands, ty, &[ty, ty]),
        }
    }

    fn logic(&mut self, name: &str, operands: &[Operand<'a>]) -> Lowered<()> {
        let function = match name {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => Logic::Not,
            _ => return Err(self.unsupported()),
        };
        let sources = if function == Logic::Not { 1 } else { 2 };
        self.arity(operands, sources + 1..=sources + 1)?;
        let a = self.source(&operands[1], Type::Pred)?;
        let b = if sources == 2 { self.source(&operands[2], Type::Pred)? } else { a };
        let d = self.target(&operands[0], Type::Pred)?;
        self.push(Op::Predicate { function, d, a, b, invert_b: false });
        Ok(())
    }

    pub fn dot(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let part = m.one_of(&["lo", "hi"]);
        let (a, b) = (m.ty()?, m.ty()?);
        m.finish()?;
        let spelled = part.map_or(name.to_owned(), |part| format!("{name}.{part}"));
        let words = |ty| matches!(ty, Type::U32 | Type::S32);
        let lanes = integer::dot(&spelled, a.is_signed(), b.is_signed()).filter(|_| words(a) && words(b));
        self.emit(lanes, operands, Type::B32, &[Type::B32; 3])
    }

    pub fn mov(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 2..=2)?;
        match (&operands[0], &operands[1]) {
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
        let a = self.source(&operands[1], ty)?;
        if ty.bits() >= 32 && self.alias(&operands[0], a, width(ty)) {
            return Ok(());
        }
        let lanes = integer::bitwise("mov", ty).ok_or_else(|| self.unsupported())?;
        let d = self.target(&operands[0], ty)?;
        self.push_lanes(lanes, Slots { d, a, ..Slots::default() });
        Ok(())
    }

    /// The counters, which every read sees advance.
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
            *slot = self.source(operand, part)?;
        }
        let [a, b, c, e] = slots;
        let d = self.target(whole, ty)?;
        self.push_lanes(lanes, Slots { d, a, b, c, e });
        Ok(())
    }

    fn unpack(&mut self, parts: &[Operand<'a>], whole: &Operand<'a>, ty: Type) -> Lowered<()> {
        let a = self.source(whole, ty)?;
        let (part, lanes): (Type, Vec<Lanes>) = match (ty.bits(), parts.len()) {
            (64, 2) => (Type::B32, vec![unary(|a: u64| a as u32), unary(|a: u64| (a >> 32) as u32)]),
            (32, 2) => (Type::B16, vec![unary(|a: u32| a as u16), unary(|a: u32| (a >> 16) as u16)]),
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
        // A part may be the whole's own register, so that all are taken out before any is written.
        let mut taken = Vec::new();
        for (operand, run) in parts.iter().zip(lanes) {
            if matches!(operand, Operand::Sink) {
                continue;
            }
            let between = self.scratch(Width::Word);
            self.push_lanes(run, Slots { d: between, a, ..Slots::default() });
            taken.push((self.target(operand, part)?, between));
        }
        for (d, a) in taken {
            self.push_lanes(unary(|a: u32| a), Slots { d, a, ..Slots::default() });
        }
        Ok(())
    }

    pub fn select(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let flush = m.take("ftz");
        let ty = m.ty()?;
        self.arity(operands, 4..=4)?;
        if name == "selp" {
            m.finish()?;
            return self.emit(integer::bitwise("selp", ty).filter(|_| !flush), operands, ty, &[ty, ty, Type::Pred]);
        }
        let selector = m.ty()?;
        m.finish()?;
        let lanes = match selector {
            Type::S32 => integer::bitwise("slct.s32", ty),
            // A subnormal selector compares like zero already.
            Type::F32 if !flush => integer::bitwise("slct.f32", ty),
            _ => None,
        };
        self.emit(lanes, operands, ty, &[ty, ty, selector])
    }

    pub fn classify(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let class = m.one_of(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]);
        let ty = m.ty()?;
        m.finish()?;
        let class = class.filter(|_| matches!(ty, Type::F32 | Type::F64)).ok_or_else(|| self.unsupported())?;
        self.arity(operands, 2..=2)?;
        let a = self.source(&operands[1], ty)?;
        let d = self.target(&operands[0], Type::Pred)?;
        let lanes = float::classification(class, ty.bits()).ok_or_else(|| self.unsupported())?;
        self.push_lanes(lanes, Slots { d, a, b: a, ..Slots::default() });
        Ok(())
    }

    /// `setp` and `set`, with a second predicate combined in where there is one.
    pub fn compare(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        const RELATIONS: [&str; 18] = [
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
            "num", "nan",
        ];
        let relation = m.one_of(&RELATIONS).ok_or_else(|| self.unsupported())?;
        let combine = m.one_of(&["and", "or", "xor"]);
        let flush = m.take("ftz");
        let result = if name == "set" { Some(m.ty()?) } else { None };
        let ty = m.ty()?;
        m.finish()?;
        let lanes = match ty {
            Type::F32 => float::comparison32(relation, flush),
            Type::F64 => float::comparison64(relation).filter(|_| !flush),
            Type::F16 | Type::Bf16 => half::comparison(relation, ty, flush),
            Type::F16x2 | Type::Bf16x2 | Type::Pred => None,
            _ => integer::comparison(relation, ty).filter(|_| !flush),
        };
        let lanes = lanes.ok_or_else(|| self.unsupported())?;
        let count = if combine.is_some() { 4 } else { 3 };
        self.arity(operands, count..=count)?;
        let (a, b) = (self.source(&operands[1], ty)?, self.source(&operands[2], ty)?);
        let first = self.layout.mask();
        self.push_lanes(lanes, Slots { d: first, a, b, ..Slots::default() });
        match (&operands[0], result) {
            (Operand::Both(p, q), None) => {
                let second = self.layout.mask();
                self.push(Op::Predicate { function: Logic::Not, d: second, a: first, b: first, invert_b: false });
                let p = self.target(&Operand::Name(p), Type::Pred)?;
                let q = self.target(&Operand::Name(q), Type::Pred)?;
                // Both may combine with a predicate that one of them replaces.
                let (one, two) = (self.layout.mask(), self.layout.mask());
                self.combine(one, first, combine, operands.get(3))?;
                self.combine(two, second, combine, operands.get(3))?;
                self.combine(p, one, None, None)?;
                self.combine(q, two, None, None)
            }
            (target, None) => {
                let d = self.target(target, Type::Pred)?;
                self.combine(d, first, combine, operands.get(3))
            }
            (target, Some(result)) => {
                let mask = self.layout.mask();
                self.combine(mask, first, combine, operands.get(3))?;
                let one = match result {
                    Type::F32 => self.layout.constant(1f32.to_bits()),
                    Type::U32 | Type::S32 | Type::B32 => self.layout.constant(u32::MAX),
                    _ => return Err(self.unsupported()),
                };
                let (d, zero) = (self.target(target, result)?, self.layout.constant(0));
                let choose = integer::bitwise("selp", Type::B32).ok_or_else(|| self.unsupported())?;
                self.push_lanes(choose, Slots { d, a: one, b: zero, c: mask, e: 0 });
                Ok(())
            }
        }
    }

    fn combine(&mut self, d: u32, a: u32, by: Option<&str>, with: Option<&Operand<'a>>) -> Lowered<()> {
        let (function, b, invert_b) = match (by, with) {
            (Some(by), Some(with)) => {
                let (b, invert) = self.predicate(with)?;
                let function = match by {
                    "and" => Logic::And,
                    "or" => Logic::Or,
                    _ => Logic::Xor,
                };
                (function, b, invert)
            }
            _ => (Logic::Copy, a, false),
        };
        self.push(Op::Predicate { function, d, a, b, invert_b });
        Ok(())
    }

    pub fn convert(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let integral = m.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let plain = m.rounding();
        let (flush, saturate, relu) = (m.take("ftz"), m.take("sat"), m.take("relu"));
        let (to, from) = (m.ty()?, m.ty()?);
        m.finish()?;
        let rounding = match integral {
            Some("rzi") => Rounding::Zero,
            Some("rmi") => Rounding::Down,
            Some("rpi") => Rounding::Up,
            Some(_) => Rounding::Nearest,
            None => plain.unwrap_or(Rounding::Nearest),
        };
        if matches!(to, Type::F16x2 | Type::Bf16x2) {
            let lanes = convert::pack(to, rounding, relu).filter(|_| from == Type::F32 && !flush && !saturate);
            return self.emit(lanes, operands, to, &[from, from]);
        }
        self.arity(operands, 2..=2)?;
        // Without a mode for it, a conversion that rounds is not PTX: it would be a guess.
        let told = match (from.is_float(), to.is_float()) {
            (true, false) => integral.is_some() && plain.is_none(),
            (false, true) => plain.is_some() && integral.is_none(),
            (true, true) if to.bits() < from.bits() => plain.is_some() && integral.is_none(),
            (true, true) => plain.is_none() || integral.is_none(),
            (false, false) => plain.is_none() && integral.is_none(),
        };
        if !told {
            return Err(self.unsupported());
        }
        let conversion = Conversion { to, from, rounding, integral: integral.is_some(), flush, saturate, relu };
        let lanes = convert::conversion(conversion).ok_or_else(|| self.unsupported())?;
        let a = self.loose_source(&operands[1], from)?;
        let (d, found) = self.any_target(&operands[0], to)?;
        if found == width(to) {
            self.push_lanes(lanes, Slots { d, a, ..Slots::default() });
            return Ok(());
        }
        if found != Width::Double {
            return Err(self.syntax("result of the wrong size"));
        }
        let between = self.scratch(Width::Word);
        self.push_lanes(lanes, Slots { d: between, a, ..Slots::default() });
        self.widen(d, between, to.is_signed());
        Ok(())
    }

    /// A word as a 64-bit value.
    pub fn widen(&mut self, d: u32, a: u32, signed: bool) {
        let lanes = if signed { unary(|a: i32| i64::from(a)) } else { unary(|a: u32| u64::from(a)) };
        self.push_lanes(lanes, Slots { d, a, ..Slots::default() });
    }

    pub fn cvta(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let to = m.take("to");
        let window = match m.one_of(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry"]) {
            Some("global" | "const") => 0,
            Some("shared" | "shared::cta") => SHARED_WINDOW,
            Some("local") => LOCAL_WINDOW,
            Some(_) => PARAM_WINDOW,
            None => return Err(self.unsupported()),
        };
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 2..=2)?;
        if ty.bits() != 64 {
            return Err(self.unsupported());
        }
        let a = self.source(&operands[1], ty)?;
        if window == 0 && self.alias(&operands[0], a, Width::Double) {
            return Ok(());
        }
        let d = self.target(&operands[0], ty)?;
        let by = if to { window.wrapping_neg() } else { window };
        let b = self.layout.constant64(by);
        let lanes = if by == 0 { unary(|a: u64| a) } else { binary(|a: u64, b: u64| a.wrapping_add(b)) };
        self.push_lanes(lanes, Slots { d, a, b, ..Slots::default() });
        Ok(())
    }

    pub fn is_space(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let space = m.one_of(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry"]);
        m.finish()?;
        self.arity(operands, 2..=2)?;
        let a = match &operands[1] {
            Operand::Name(name) if matches!(self.symbol(name)?, Symbol::Register { .. }) => {
                self.source(&operands[1], Type::U64)?
            }
            _ => return Err(self.syntax("unexpected operand")),
        };
        let d = self.target(&operands[0], Type::Pred)?;
        let (start, bytes) = self.symbols.constants;
        let window = |number: u64| (number << WINDOW_BITS, 1 << WINDOW_BITS);
        let (start, bytes) = match space {
            Some("const") => (start, bytes),
            Some("global") => window(0),
            Some("shared" | "shared::cta") => window(1),
            Some("local") => window(2),
            Some("param" | "param::entry") => window(3),
            _ => return Err(self.unsupported()),
        };
        let (start, bytes) = (self.layout.constant64(start), self.layout.constant64(bytes));
        let offset = self.scratch(Width::Double);
        self.push_lanes(
            binary(|a: u64, b: u64| a.wrapping_sub(b)),
            Slots { d: offset, a, b: start, ..Slots::default() },
        );
        self.push_lanes(compare(|a: u64, b: u64| a < b), Slots { d, a: offset, b: bytes, ..Slots::default() });
        Ok(())
    }
}

fn source_count(name: &str) -> Option<usize> {
    Some(match name {
        "neg" | "abs" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => 1,
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "addc" | "subc" | "mul24" | "copysign" => 2,
        "mad" | "madc" | "fma" | "sad" | "mad24" => 3,
        _ => return None,
    })
}

fn float_operation(
    name: &str,
    ty: Type,
    m: float::Modifiers,
    rounded: bool,
    approximate: bool,
    nan: bool,
) -> Option<Lanes> {
    let spelled = if nan { format!("{name}.NaN") } else { name.to_owned() };
    let name = if name == "mad" { "fma" } else { spelled.as_str() };
    let takes_saturation = matches!(name, "add" | "sub" | "mul" | "fma");
    if m.saturate && !takes_saturation || rounded && approximate {
        return None;
    }
    let function = matches!(name, "sin" | "cos" | "lg2" | "ex2" | "tanh" | "rsqrt");
    if approximate && !function && !matches!(name, "div" | "rcp" | "sqrt") {
        return None;
    }
    // These name either a rounding mode or the approximation; the bare form is not PTX.
    if matches!(name, "div" | "rcp" | "sqrt" | "fma") && !rounded && !approximate || function && !approximate {
        return None;
    }
    match ty {
        Type::F32 if function => math::single(name, m),
        Type::F32 => float::single(name, m).or_else(|| float::single_exact(name, m).filter(|_| !rounded)),
        Type::F64 if m.saturate => None,
        Type::F64 if approximate => math::double(name, m.flush),
        Type::F64 if m.flush => None,
        Type::F64 => float::double(name, m.rounding).or_else(|| float::double_exact(name).filter(|_| !rounded)),
        _ if m.rounding != Rounding::Nearest => None,
        _ => half::arithmetic(name, ty, m.flush, m.saturate),
    }
}
