//! Surface reductions (`sured`).

use super::emitter::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::program::memory::AtomicFunction;
use crate::program::texture::{Outside, SurfaceAction};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;
use crate::texture::Geometry;

impl<'a> Emitter<'a, '_> {
    pub(super) fn surface_reduction(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let by_texel = m.one_of(&["b", "p"]).ok_or_else(|| self.unsupported())? == "p";
        let name = m.one_of(&["add", "min", "max", "and", "or"]).ok_or_else(|| self.unsupported())?;
        let geometry = m.parsed(Geometry::parse).ok_or_else(|| self.unsupported())?;
        let ty = m.ty()?;
        let outside = match m.one_of(&["trap", "clamp", "zero"]) {
            Some("trap") => Outside::Trap,
            Some("clamp") => Outside::Clamp,
            Some(_) => Outside::Zero,
            None => return Err(self.unsupported()),
        };
        m.finish()?;
        let is_plain = matches!(geometry, Geometry::D1 | Geometry::D2 | Geometry::D3);
        let function = function(name, ty, by_texel).filter(|_| is_plain).ok_or_else(|| self.unsupported())?;
        self.arity(operands, 2..=2)?;
        // 64-bit texels, which arrays do not have.
        if by_texel && ty == Type::B64 {
            return self.defer();
        }
        let value = self.source(&operands[1], ty)?;
        let action = SurfaceAction::Reduce { function, ty, by_texel };
        self.push_surface(&operands[0], geometry, outside, action, vec![value])
    }
}

/// Returns the operation if it exists for the type. For texels the surface's format decides about the sign.
fn function(name: &str, ty: Type, by_texel: bool) -> Option<AtomicFunction> {
    use AtomicFunction as F;
    match (name, ty, by_texel) {
        ("add", Type::B32, true) | ("add", Type::U32 | Type::S32 | Type::U64, false) => Some(F::Add),
        ("min", Type::B32 | Type::B64, true) | ("min", Type::U32 | Type::S32 | Type::U64 | Type::S64, false) => {
            Some(F::Min)
        }
        ("max", Type::B32 | Type::B64, true) | ("max", Type::U32 | Type::S32 | Type::U64 | Type::S64, false) => {
            Some(F::Max)
        }
        ("and", Type::B32, _) => Some(F::And),
        ("or", Type::B32, _) => Some(F::Or),
        _ => None,
    }
}
