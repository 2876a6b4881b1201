//! Conversions (`cvt`): which ones PTX has, and where their operands are.

use super::super::emitter::{Emitter, Lowered};
use super::super::layout::{Width, width};
use super::super::modifiers::Modifiers;
use crate::ops::convert::eight::{self, Eight};
use crate::ops::convert::{self, Conversion};
use crate::ops::dot;
use crate::ops::exact::Rounding;
use crate::ops::lanes::{Slots, unary};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// A type of one side of a conversion, including types that registers do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Plain(Type),
    Tf32,
    Eight(Eight),
}

impl Number {
    fn parse(name: &str) -> Option<Number> {
        Some(match name {
            "tf32" => Number::Tf32,
            "e4m3x2" => Number::Eight(Eight::E4m3),
            "e5m2x2" => Number::Eight(Eight::E5m2),
            _ => Number::Plain(Type::parse(name)?),
        })
    }
}

/// The modifiers of a conversion.
struct Spelled {
    plain: Option<Rounding>,
    integral: Option<&'static str>,
    away: bool,
    flush: bool,
    saturate: bool,
    relu: bool,
    finite: bool,
}

impl Spelled {
    /// Reports whether there are no modifiers but a rounding mode to float, `.relu` and `.satfinite`.
    fn only_limits(&self) -> bool {
        self.integral.is_none() && !self.away && !self.flush && !self.saturate
    }

    fn rounding(&self) -> Rounding {
        match self.integral {
            Some("rzi") => Rounding::Zero,
            Some("rmi") => Rounding::Down,
            Some("rpi") => Rounding::Up,
            Some(_) => Rounding::Nearest,
            None => self.plain.unwrap_or(Rounding::Nearest),
        }
    }
}

impl<'a> Emitter<'a, '_> {
    pub fn convert(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if m.take("pack") {
            return self.pack_integers(m, operands);
        }
        let spelled = Spelled {
            integral: m.one_of(&["rni", "rzi", "rmi", "rpi"]),
            plain: m.rounding(),
            away: m.take("rna"),
            flush: m.take("ftz"),
            saturate: m.take("sat"),
            relu: m.take("relu"),
            finite: m.take("satfinite"),
        };
        let (to, from) = (m.first(Number::parse), m.first(Number::parse));
        m.finish()?;
        let (Some(to), Some(from)) = (to, from) else { return Err(self.unsupported()) };
        match (to, from) {
            (Number::Plain(to @ (Type::F16x2 | Type::Bf16x2)), Number::Plain(Type::F32)) => {
                let lanes = spelled.plain.and_then(|mode| convert::pack(to, mode, spelled.relu, spelled.finite));
                self.emit(lanes.filter(|_| spelled.only_limits()), operands, to, &[Type::F32; 2])
            }
            (Number::Plain(to), Number::Plain(from)) => self.convert_plain(to, from, &spelled, operands),
            (Number::Tf32, Number::Plain(Type::F32)) => {
                let told = spelled.away != spelled.plain.is_some() && !spelled.flush && !spelled.saturate;
                let lanes = convert::tf32(spelled.plain, spelled.relu, spelled.finite);
                let lanes = lanes.filter(|_| told && spelled.integral.is_none());
                self.emit(lanes, operands, Type::B32, &[Type::F32])
            }
            _ => self.convert_eight(to, from, &spelled, operands),
        }
    }

    /// Lowers conversions from and to 8-bit floats. Those to 8-bit floats have to name `.satfinite`.
    fn convert_eight(&mut self, to: Number, from: Number, s: &Spelled, operands: &[Operand<'a>]) -> Lowered<()> {
        if !s.only_limits() || s.plain != Some(Rounding::Nearest) || s.finite != matches!(to, Number::Eight(_)) {
            return Err(self.unsupported());
        }
        match (to, from) {
            (Number::Eight(to), Number::Plain(Type::F32)) => {
                self.emit(Some(eight::of_singles(to, s.relu)), operands, Type::B16, &[Type::F32; 2])
            }
            (Number::Eight(to), Number::Plain(Type::F16x2)) => {
                self.emit(Some(eight::of_pair(to, s.relu)), operands, Type::B16, &[Type::B32])
            }
            (Number::Plain(Type::F16x2), Number::Eight(from)) => {
                self.emit(Some(eight::to_pair(from, s.relu)), operands, Type::B32, &[Type::B16])
            }
            _ => Err(self.unsupported()),
        }
    }

    fn pack_integers(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        const NAMES: [&str; 9] = ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2", "s32"];
        let named = |name: &str| NAMES.into_iter().find(|known| *known == name);
        let saturates = m.take("sat");
        let (to, from, rest) = (m.first(named), m.first(named), m.try_ty());
        m.finish()?;
        let to = to.filter(|_| saturates && from == Some("s32")).ok_or_else(|| self.unsupported())?;
        let takes_rest = !matches!(to, "u16" | "s16");
        if rest != takes_rest.then_some(Type::B32) {
            return Err(self.unsupported());
        }
        let types = [Type::S32, Type::S32, Type::B32];
        self.emit(dot::pack(to), operands, Type::B32, &types[..if takes_rest { 3 } else { 2 }])
    }

    fn convert_plain(&mut self, to: Type, from: Type, s: &Spelled, operands: &[Operand<'a>]) -> Lowered<()> {
        if s.away || !is_known(to, from, s) {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let conversion = Conversion {
            to,
            from,
            rounding: s.rounding(),
            integral: s.integral.is_some(),
            flush: s.flush,
            saturate: s.saturate,
            relu: s.relu,
            finite: s.finite,
        };
        let lanes = convert::conversion(conversion).ok_or_else(|| self.unsupported())?;
        let (source, _) = self.any_source(&operands[1], from)?;
        self.check_type(source, from, from.bits()..=64)?;
        let a = self.loose_source(&operands[1], from)?;
        let (d, found) = self.any_target(&operands[0], to)?;
        self.check_type(d, to, to.bits()..=64)?;
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

    /// Extends a word to 64 bits.
    pub fn widen(&mut self, d: u32, a: u32, signed: bool) {
        let lanes = if signed { unary(|a: i32| i64::from(a)) } else { unary(|a: u32| u64::from(a)) };
        self.push_lanes(lanes, Slots { d, a, ..Slots::default() });
    }
}

/// Reports whether PTX has the conversion. It requires a rounding mode exactly if the conversion rounds, so that none
/// is guessed.
fn is_known(to: Type, from: Type, s: &Spelled) -> bool {
    let (rounds, integral) = (s.plain.is_some(), s.integral.is_some());
    let limits = s.relu || s.finite;
    let small = |ty| matches!(ty, Type::F16 | Type::Bf16);
    match (from.is_float(), to.is_float()) {
        (false, false) => !rounds && !integral && !s.flush && !limits && (!s.saturate || can_exceed(from, to)),
        (false, true) | (true, false) => {
            let float = if from.is_float() { from } else { to };
            let rounds_once = if to.is_float() { rounds && !integral } else { integral && !rounds };
            rounds_once && !limits && (!s.flush || float == Type::F32) && (!s.saturate || float != Type::Bf16)
        }
        (true, true) if to == from => {
            let clamps = !s.saturate || to != Type::Bf16;
            !rounds && !limits && clamps && (!s.flush || to == Type::F32)
        }
        (true, true) => {
            let narrows = to.bits() < from.bits() || small(to) && small(from);
            let told = if narrows { rounds } else { !rounds || from == Type::Bf16 };
            let clamps = !s.saturate || from != Type::Bf16 && to != Type::Bf16;
            let flushes = !s.flush || to == Type::F32 || from == Type::F32;
            let cut = matches!(s.plain, Some(Rounding::Nearest | Rounding::Zero));
            let limited = from == Type::F32 && small(to) && cut && !s.flush && !s.saturate;
            told && !integral && clamps && flushes && (!limits || limited)
        }
    }
}

/// Reports whether the first type has values that the second can't represent.
fn can_exceed(from: Type, to: Type) -> bool {
    let fits = match (from.is_signed(), to.is_signed()) {
        (true, false) => false,
        (false, true) => from.bits() < to.bits(),
        _ => from.bits() <= to.bits(),
    };
    !fits
}
