//! Initial values of variables.

use super::link::{Linked, Unit};
use super::symbols::{Symbol, Symbols};
use crate::memory::Memory;
use crate::program::Callee;
use crate::program::memory::{FUNCTION_STRIDE, FUNCTION_WINDOW};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::{Initial, Variable};
use crate::ptx::types::Type;

/// Writes the initial values of variables; fresh memory is zero.
pub(super) fn fill(units: &[Unit], linked: &Linked, memory: &Memory) -> Result<(), LoadError> {
    for (unit, place) in &linked.variables {
        let Unit { tree, symbols, .. } = &units[*unit];
        let variable = &tree.variables[*place];
        let Some(Symbol::Global { address }) = symbols.get(variable.name) else { continue };
        let size = variable.ty.bytes() as usize;
        let mut bytes = Vec::with_capacity(variable.initial.len() * size);
        for initial in &variable.initial {
            let bits = initial_bits(initial, variable, symbols)?;
            bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
        }
        // SAFETY: the bytes are a live vector of that length.
        unsafe { memory.copy_in(address, bytes.as_ptr(), bytes.len() as u64) }
            .map_err(|error| LoadError::syntax(variable.line, error.to_string()))?;
    }
    Ok(())
}

fn initial_bits(initial: &Initial, variable: &Variable, symbols: &Symbols) -> Result<u64, LoadError> {
    Ok(match (initial, variable.ty) {
        (Initial::Integer(value), Type::F32) => u64::from((*value as i64 as f32).to_bits()),
        (Initial::Integer(value), Type::F64) => (*value as i64 as f64).to_bits(),
        (Initial::Integer(value), _) => *value,
        (Initial::Single(bits), Type::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
        (Initial::Single(bits), _) => u64::from(*bits),
        (Initial::Double(value), Type::F32) => u64::from((*value as f32).to_bits()),
        (Initial::Double(value), _) => value.to_bits(),
        (Initial::Symbol { name, offset }, _) => {
            if variable.ty.bits() != 64 {
                return Err(LoadError::syntax(variable.line, "an address needs 64 bits"));
            }
            initial_address(name, variable, symbols)?.wrapping_add_signed(*offset)
        }
        (Initial::Byte { shift, name, offset }, _) => {
            let start = name.map_or(Ok(0), |name| initial_address(name, variable, symbols))?;
            start.wrapping_add_signed(*offset) >> shift & 0xff
        }
    })
}

/// Returns the address of a variable or a function that an initial value names.
fn initial_address(name: &str, variable: &Variable, symbols: &Symbols) -> Result<u64, LoadError> {
    match symbols.get(name) {
        Some(Symbol::Global { address }) => Ok(address),
        Some(Symbol::Function(Callee::Function(index))) => Ok(FUNCTION_WINDOW + index as u64 * FUNCTION_STRIDE),
        _ => {
            let message = format!("unresolved name `{name}` in an initial value");
            Err(LoadError::new(variable.line, LoadErrorKind::Unresolved, message))
        }
    }
}
