//! Matrix instructions of a warp: `wmma`, `mma`, `ldmatrix`, `stmatrix` and `movmatrix`. Shapes and types follow the
//! PTX ISA. Sparse and block-scaled products, and those of warpgroups, are refused by name.

mod fragment;
mod multiply;
mod transfer;

use super::emitter::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::Operand;

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

    /// Refuses families of instructions that devices have and the emulator lacks.
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

    /// Returns an error like [`Emitter::unsupported`], with the feature that is missing.
    fn refused(&self, why: &str) -> LoadError {
        let message = format!("unsupported opcode `{}`: {why}", self.text);
        LoadError::new(self.line, LoadErrorKind::UnsupportedOpcode, message)
    }
}
