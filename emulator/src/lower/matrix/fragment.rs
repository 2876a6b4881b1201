//! Fragments: operands whose registers contain a lane's part of a matrix.

use super::super::emitter::{Emitter, Lowered};
use super::super::modifiers::Modifiers;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Layout, Role, Shape};
use crate::program::matrix::Fragment;
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// Elements per lane of an f16 factor of `wmma`.
const FACTOR_HALVES: usize = 16;

impl<'a> Emitter<'a, '_> {
    pub(super) fn shape(&self, m: &mut Modifiers<'a>) -> Lowered<Shape> {
        m.parsed(Shape::parse).ok_or_else(|| self.unsupported())
    }

    /// Parses the registers of an operand in braces.
    pub(super) fn fragment(
        &mut self,
        operand: &Operand<'a>,
        is_target: bool,
        element: Element,
        layout: Layout,
    ) -> Lowered<Fragment> {
        let per = (element.per_register() / element.per_unit()) as usize;
        let ty = match element {
            Element::F64 => Type::F64,
            Element::F32 => Type::F32,
            _ => Type::B32,
        };
        let slots = self.vector(operand, is_target, layout.elements.len() / per, ty)?;
        Ok(Fragment { slots, element, per, layout })
    }

    pub(super) fn vector(
        &mut self,
        operand: &Operand<'a>,
        is_target: bool,
        count: usize,
        ty: Type,
    ) -> Lowered<Box<[u32]>> {
        let Operand::Vector(parts) = operand else { return Err(self.syntax("expected registers in braces")) };
        if parts.len() != count {
            return Err(self.syntax(format!("expected {count} registers, found {}", parts.len())));
        }
        parts.iter().map(|part| if is_target { self.target(part, ty) } else { self.source(part, ty) }).collect()
    }

    /// Returns the layout of a `wmma` fragment, with the number of registers in the ISA: f16 factors have eight for
    /// every shape.
    pub(super) fn wmma_layout(role: Role, shape: Shape, element: Element) -> Layout {
        let layout = Layout::tiled(role, units(shape, element), element.per_register() / element.per_unit());
        if element == Element::F16 && role != Role::C { layout.repeated(FACTOR_HALVES) } else { layout }
    }
}

/// Returns the shape, counted in the units in which a product takes its elements.
pub(super) fn units(shape: Shape, element: Element) -> Shape {
    Shape { k: shape.k / element.per_unit(), ..shape }
}

/// Reports whether `wmma` has the shape for factors of this type.
pub(super) fn is_wmma(shape: Shape, element: Element) -> bool {
    match element {
        Element::F16 | Element::Bf16 | Element::U8 | Element::S8 => {
            shape.is(16, 16, 16) || shape.is(32, 8, 16) || shape.is(8, 32, 16)
        }
        Element::Tf32 => shape.is(16, 16, 8),
        Element::F64 => shape.is(8, 8, 4),
        Element::U4 | Element::S4 => shape.is(8, 8, 32),
        Element::B1 => shape.is(8, 8, 128),
        _ => false,
    }
}
