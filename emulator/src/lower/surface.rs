//! Surface loads and stores (`suld`, `sust`).

use super::emitter::{Emitter, Lowered};
use super::layout::{Width, width};
use super::modifiers::Modifiers;
use crate::ops::lanes::{Slots, unary};
use crate::program::Op;
use crate::program::texture::{Outside, SurfaceAccess, SurfaceAction, Texturing};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;
use crate::texture::Geometry;

impl<'a> Emitter<'a, '_> {
    pub(super) fn surface_load(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let is_plain = m.take("b");
        m.one_of(&["ca", "cg", "cs", "cv"]);
        let (geometry, count, ty, outside) = self.surface_modifiers(m)?;
        if !is_plain {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let elements = self.elements(&operands[0], count)?;
        let (mut values, mut wider) = (Vec::new(), Vec::new());
        for element in &elements {
            match self.any_target(element, ty)? {
                (slot, found) if found == width(ty) => values.push(slot),
                (slot, Width::Double) => {
                    let narrow = self.scratch(Width::Word);
                    values.push(narrow);
                    wider.push((slot, narrow));
                }
                _ => return Err(self.syntax("result of the wrong size")),
            }
        }
        self.push_surface(&operands[1], geometry, outside, SurfaceAction::Load(ty.bytes()), values)?;
        for (d, a) in wider {
            self.push_lanes(unary(|a: u32| u64::from(a)), Slots { d, a, ..Slots::default() });
        }
        Ok(())
    }

    pub(super) fn surface_store(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let kind = m.one_of(&["b", "p"]).ok_or_else(|| self.unsupported())?;
        m.one_of(&["wb", "cg", "cs", "wt"]);
        let (geometry, count, ty, outside) = self.surface_modifiers(m)?;
        let action = if kind == "b" { SurfaceAction::Store(ty.bytes()) } else { SurfaceAction::StoreTexel };
        if kind == "p" && ty != Type::B32 {
            return Err(self.unsupported());
        }
        self.arity(operands, 2..=2)?;
        let elements = self.elements(&operands[1], count)?;
        let values = elements.iter().map(|element| self.loose_source(element, ty)).collect::<Lowered<Vec<_>>>()?;
        self.push_surface(&operands[0], geometry, outside, action, values)
    }

    fn surface_modifiers(&mut self, m: &mut Modifiers<'a>) -> Lowered<(Geometry, usize, Type, Outside)> {
        let geometry = m.parsed(Geometry::parse).filter(|geometry| !geometry.is_cube());
        let geometry = geometry.ok_or_else(|| self.unsupported())?;
        let count = match m.one_of(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let ty = m.ty()?;
        let outside = match m.one_of(&["trap", "clamp", "zero"]) {
            Some("clamp") => Outside::Clamp,
            Some("zero") => Outside::Zero,
            _ => Outside::Trap,
        };
        m.finish()?;
        // Accesses have at most 16 bytes.
        if !matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64) || ty == Type::B64 && count == 4 {
            return Err(self.unsupported());
        }
        Ok((geometry, count, ty, outside))
    }

    pub(super) fn push_surface(
        &mut self,
        place: &Operand<'a>,
        geometry: Geometry,
        outside: Outside,
        action: SurfaceAction,
        values: Vec<u32>,
    ) -> Lowered<()> {
        let Operand::Indexed(base, rest) = place else { return Err(self.syntax("expected a surface and coordinates")) };
        let [coordinates] = rest.as_slice() else { return Err(self.syntax("expected a surface and coordinates")) };
        let surface = self.handle(*base)?;
        let (layer, coordinates) = self.coordinates(coordinates, geometry, Type::S32)?;
        let access = SurfaceAccess { surface, geometry, coordinates, layer, outside, action, values };
        self.push(Op::Texture(Texturing::Surface(Box::new(access))));
        Ok(())
    }
}
