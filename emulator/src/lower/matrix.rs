//! Instructions on matrices that a whole warp holds: `wmma`, `mma`, `ldmatrix`, `stmatrix` and `movmatrix`. What
//! there is of shapes and types follows the PTX ISA; sparse and block-scaled products, and those of warp groups, are
//! refused by name.

mod multiply;
mod transfer;

use super::function::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Layout, Role, Shape};
use crate::program::matrix::Fragment;
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    pub fn matrix(&mut self, name: &str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        self.check_known(name, m)?;
        if !m.take("sync") || !m.take("aligned") {
            return Err(self.unsupported());
        }
        match name {
            "mma" => self.mma(m, operands),
            "ldmatrix" | "stmatrix" => self.matrix_rows(name == "ldmatrix", m, operands),
            "movmatrix" => self.transpose(m, operands),
            _ => match m.one_of(&["load", "store", "mma"]) {
                Some("mma") => self.wmma(m, operands),
                Some(way) => self.transfer(way == "load", m, operands),
                None => Err(self.unsupported()),
            },
        }
    }

    /// Whole families that devices have and that are not here.
    fn check_known(&self, name: &str, m: &mut Modifiers<'a>) -> Lowered<()> {
        let why = match name {
            "wgmma" => "warpgroup matrix products are not supported",
            "tcgen05" => "tensor memory is not supported",
            _ if m.take("sp") || m.take("sp::ordered_metadata") => "sparse matrix products are not supported",
            _ if m.take("block_scale") => "block-scaled matrix products are not supported",
            _ if m.one_of(&["e2m1", "e3m2", "e2m3", "kind::f8f6f4"]).is_some() => {
                "floating-point elements narrower than eight bits are not supported"
            }
            _ if m.one_of(&["m16n16", "m8n16", "m16n8", "b8"]).is_some() => "only m8n8 matrices of b16 are supported",
            _ => return Ok(()),
        };
        Err(self.refused(why))
    }

    /// As [`Emitter::unsupported`], with a word on what it is that is not there.
    fn refused(&self, why: &str) -> LoadError {
        let message = format!("unsupported opcode `{}`: {why}", self.text);
        LoadError::new(self.line, LoadErrorKind::UnsupportedOpcode, message)
    }

    fn shape(&self, m: &mut Modifiers<'a>) -> Lowered<Shape> {
        m.parsed(Shape::parse).ok_or_else(|| self.unsupported())
    }

    /// The registers of an operand in braces.
    fn fragment(
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

    fn vector(&mut self, operand: &Operand<'a>, is_target: bool, count: usize, ty: Type) -> Lowered<Box<[u32]>> {
        let Operand::Vector(parts) = operand else { return Err(self.syntax("expected registers in braces")) };
        if parts.len() != count {
            return Err(self.syntax(format!("expected {count} registers, found {}", parts.len())));
        }
        parts.iter().map(|part| if is_target { self.target(part, ty) } else { self.source(part, ty) }).collect()
    }

    /// The fragments of `wmma` as the ISA counts their registers: those of f16 factors have eight, whatever the shape.
    fn wmma_layout(role: Role, shape: Shape, element: Element) -> Layout {
        let layout = Layout::tiled(role, units(shape, element), element.per_register() / element.per_unit());
        if element == Element::F16 && role != Role::C { layout.repeated(FACTOR_HALVES) } else { layout }
    }
}

/// Elements of an f16 factor of `wmma` in a lane.
const FACTOR_HALVES: usize = 16;

/// The shape in what the elements of a product are taken by.
fn units(shape: Shape, element: Element) -> Shape {
    Shape { k: shape.k / element.per_unit(), ..shape }
}

/// Whether `wmma` has the shape for factors of this type.
fn is_wmma(shape: Shape, element: Element) -> bool {
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
