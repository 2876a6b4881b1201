//! Conversion of addresses between state spaces (`cvta`), and tests for their space (`isspacep`).

use super::super::emitter::{Emitter, Lowered};
use super::super::layout::Width;
use super::super::modifiers::Modifiers;
use super::super::symbols::Symbol;
use crate::ops::lanes::{Slots, binary, compare, unary};
use crate::program::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BITS};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// State spaces of these instructions. Clusters have one block here.
const SPACES: [&str; 8] =
    ["global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"];

impl<'a> Emitter<'a, '_> {
    pub fn cvta(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let to = m.take("to");
        let window = match m.one_of(&SPACES) {
            Some("global" | "const") => 0,
            Some("shared" | "shared::cta" | "shared::cluster") => SHARED_WINDOW,
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
        let space = m.one_of(&SPACES);
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
            Some("shared" | "shared::cta" | "shared::cluster") => window(1),
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
