//! Transfers of matrices between memory and registers.

use super::fragment::{is_wmma, units};
use crate::lower::emitter::{Emitter, Lowered};
use crate::lower::modifiers::Modifiers;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Major, Role, Shape};
use crate::program::Op;
use crate::program::matrix::{Matrix, Rows, Transfer};
use crate::program::memory::Reach;
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Lowers `wmma.load` and `wmma.store`.
    pub(super) fn transfer(&mut self, loads: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let role = match (loads, m.one_of(&["a", "b", "c", "d"])) {
            (true, Some("a")) => Role::A,
            (true, Some("b")) => Role::B,
            (true, Some("c")) | (false, Some("d")) => Role::C,
            _ => return Err(self.unsupported()),
        };
        let major = m.parsed(Major::parse).ok_or_else(|| self.unsupported())?;
        let shape = self.shape(m)?;
        let reach = match m.one_of(&["global", "shared", "shared::cta"]) {
            Some("global") => Reach::Global,
            Some(_) => Reach::Shared,
            None => Reach::Generic,
        };
        let element = m.parsed(Element::parse).ok_or_else(|| self.unsupported())?;
        m.finish()?;
        if !exists(role, major, shape, element) {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=3)?;
        let (registers, place) = if loads { (&operands[0], &operands[1]) } else { (&operands[1], &operands[0]) };
        let layout = Emitter::wmma_layout(role, shape, element);
        let fragment = self.fragment(registers, loads, element, layout)?;
        let address = if loads { self.address(place, reach)? } else { self.target_address(place, reach)? };
        let stride = match operands.get(2) {
            Some(stride) => Some(self.source(stride, Type::U32)?),
            None => None,
        };
        let (rows, columns) = units(shape, element).extent(role);
        let (lines, length) = if major == Major::Row { (rows, columns) } else { (columns, rows) };
        let transfer = Box::new(Transfer { fragment, address, major, lines, length, stride });
        let matrix = if loads { Matrix::Load(transfer) } else { Matrix::Store(transfer) };
        self.push(Op::Matrix(matrix));
        Ok(())
    }

    /// Lowers `ldmatrix` and `stmatrix`.
    pub(super) fn matrix_rows(&mut self, loads: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let is_square = m.take("m8n8");
        let count = match m.one_of(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Err(self.unsupported()),
        };
        let transposed = m.take("trans");
        let reach = if m.one_of(&["shared", "shared::cta"]).is_some() { Reach::Shared } else { Reach::Generic };
        let ty = m.ty()?;
        m.finish()?;
        if !is_square || ty != Type::B16 {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let (registers, place) = if loads { (&operands[0], &operands[1]) } else { (&operands[1], &operands[0]) };
        let slots = self.vector(registers, loads, count, Type::B32)?;
        let address = if loads { self.address(place, reach)? } else { self.target_address(place, reach)? };
        let rows = Box::new(Rows { address, slots, transposed });
        let matrix = if loads { Matrix::LoadRows(rows) } else { Matrix::StoreRows(rows) };
        self.push(Op::Matrix(matrix));
        Ok(())
    }

    pub(super) fn transpose(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let known = m.take("m8n8") & m.take("trans") & (m.ty()? == Type::B16);
        m.finish()?;
        if !known {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let a = self.source(&operands[1], Type::B32)?;
        let d = self.target(&operands[0], Type::B32)?;
        self.push(Op::Matrix(Matrix::Transpose { d, a }));
        Ok(())
    }
}

/// Reports whether such a matrix can be in memory: factors of less than eight bits need row-major A and column-major B.
fn exists(role: Role, major: Major, shape: Shape, element: Element) -> bool {
    match role {
        Role::A => is_wmma(shape, element) && (element.bits() >= 8 || major == Major::Row),
        Role::B => is_wmma(shape, element) && (element.bits() >= 8 || major == Major::Column),
        Role::C => match element {
            Element::F16 => is_wmma(shape, Element::F16),
            Element::F32 => is_wmma(shape, Element::F16) || is_wmma(shape, Element::Tf32),
            Element::F64 => is_wmma(shape, Element::F64),
            Element::S32 => [Element::S8, Element::S4, Element::B1].iter().any(|factor| is_wmma(shape, *factor)),
            _ => false,
        },
    }
}
