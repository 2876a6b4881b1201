//! Floating-point arithmetic.

use super::super::emitter::{Emitter, Lowered};
use super::super::modifiers::Modifiers;
use crate::ops::exact::Rounding;
use crate::ops::lanes::Lanes;
use crate::ops::{float, half, math};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// The modifiers of an instruction.
#[derive(Clone, Copy, Debug)]
struct Spelled {
    rounding: Option<Rounding>,
    /// `.approx` or `.full`.
    approximation: Option<&'static str>,
    flush: bool,
    saturate: bool,
    relu: bool,
    nan: bool,
    signs: bool,
}

/// What an instruction has to say about its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// Nothing, because the result is exact.
    Exact,
    /// Optionally a rounding mode; the default is to nearest.
    MayRound,
    /// A rounding mode.
    Rounds,
    /// A rounding mode or an approximation.
    RoundsOrApproximates,
    Approximates,
}

/// The modifiers that an instruction allows.
struct Allowed {
    precision: Precision,
    flush: bool,
    saturate: bool,
    relu: bool,
    /// Modifiers of minimum and maximum: `.NaN` and `.xorsign.abs`.
    choice: bool,
}

fn allowed(name: &str, ty: Type) -> Option<Allowed> {
    use Precision as P;
    let (single, double) = (ty == Type::F32, ty == Type::F64);
    let wide = single || double;
    let half = matches!(ty, Type::F16 | Type::F16x2);
    let precision = match name {
        "add" | "sub" | "mul" => P::MayRound,
        "fma" => P::Rounds,
        "mad" if wide => P::Rounds,
        "div" | "rcp" | "sqrt" if wide => P::RoundsOrApproximates,
        "rsqrt" if wide => P::Approximates,
        "sin" | "cos" | "lg2" if single => P::Approximates,
        "ex2" | "tanh" if !double => P::Approximates,
        "neg" | "abs" | "min" | "max" => P::Exact,
        "copysign" if wide => P::Exact,
        _ => return None,
    };
    let flush = match name {
        "tanh" | "copysign" => false,
        "rcp" | "rsqrt" if double => true,
        "ex2" => !half,
        _ => single || half,
    };
    Some(Allowed {
        precision,
        flush,
        saturate: matches!(name, "add" | "sub" | "mul" | "fma" | "mad") && (single || half),
        relu: name == "fma" && !wide,
        choice: matches!(name, "min" | "max") && !double,
    })
}

impl Spelled {
    fn is_allowed(&self, name: &str, ty: Type) -> bool {
        let Some(allowed) = allowed(name, ty) else { return false };
        let told = match allowed.precision {
            Precision::Exact => self.rounding.is_none() && self.approximation.is_none(),
            Precision::MayRound => self.approximation.is_none(),
            Precision::Rounds => self.rounding.is_some() && self.approximation.is_none(),
            Precision::RoundsOrApproximates => self.rounding.is_some() != self.approximation.is_some(),
            Precision::Approximates => self.rounding.is_none() && self.approximation == Some("approx"),
        };
        let directed = !matches!(self.rounding, None | Some(Rounding::Nearest));
        let wide = matches!(ty, Type::F32 | Type::F64);
        told && (wide || !directed)
            && (allowed.flush || !self.flush)
            && (allowed.saturate || !self.saturate)
            && (allowed.relu || !self.relu)
            && !(self.saturate && self.relu)
            && (allowed.choice || !self.nan && !self.signs)
            && self.approximation_exists(name, ty)
    }

    /// Reports whether the approximation exists for the type; some exist only with `.ftz`.
    fn approximation_exists(&self, name: &str, ty: Type) -> bool {
        match (name, ty, self.approximation) {
            ("div", _, Some(_)) => ty == Type::F32,
            (_, _, Some("full")) => false,
            ("rcp", Type::F64, Some(_)) => self.flush,
            ("rcp", Type::F64, None) => !self.flush,
            ("sqrt", Type::F64, Some(_)) => false,
            ("ex2", Type::Bf16 | Type::Bf16x2, Some(_)) => self.flush,
            _ => true,
        }
    }
}

impl<'a> Emitter<'a, '_> {
    pub(super) fn float(
        &mut self,
        name: &'a str,
        ty: Type,
        sources: usize,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let (absolute, signs) = (m.take("abs"), m.take("xorsign"));
        let spelled = Spelled {
            rounding: m.rounding(),
            approximation: m.one_of(&["approx", "full"]),
            flush: m.take("ftz"),
            saturate: m.take("sat"),
            relu: m.take("relu"),
            nan: m.take("NaN"),
            signs,
        };
        m.finish()?;
        // `.xorsign` and `.abs` are only allowed together.
        if absolute != signs || !spelled.is_allowed(name, ty) {
            return Err(self.unsupported());
        }
        self.emit(operation(name, ty, &spelled), operands, ty, &vec![ty; sources])
    }
}

fn operation(name: &str, ty: Type, spelled: &Spelled) -> Option<Lanes> {
    let mut full = if name == "mad" { "fma" } else { name }.to_owned();
    let suffixes = [(spelled.relu, ".relu"), (spelled.nan, ".NaN"), (spelled.signs, ".xorsign")];
    for (_, suffix) in suffixes.iter().filter(|(is_set, _)| *is_set) {
        full.push_str(suffix);
    }
    let (rounding, flush) = (spelled.rounding.unwrap_or(Rounding::Nearest), spelled.flush);
    let m = float::Modifiers { rounding, flush, saturate: spelled.saturate };
    match (ty, spelled.approximation) {
        (Type::F32, Some("approx")) if name == "div" => float::single("div.approx", m),
        (Type::F32, Some(_)) => math::single(name, m).or_else(|| float::single(name, m)),
        (Type::F32, None) => float::single(&full, m).or_else(|| float::single_exact(&full, m)),
        (Type::F64, Some(_)) => math::double(name, flush),
        (Type::F64, None) => float::double(&full, rounding).or_else(|| float::double_exact(&full)),
        _ => half::arithmetic(&full, ty, flush, spelled.saturate),
    }
}
