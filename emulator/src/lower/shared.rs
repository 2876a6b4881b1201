//! Variables in shared memory: their offsets, and their names in reports.

use crate::program::SharedVariable;
use crate::ptx::error::LoadError;
use crate::ptx::tree::{Linkage, Variable};

/// Maximum shared memory of a block in bytes, on the largest devices.
const SHARED_BYTES_MAX: u64 = 227 << 10;

/// Maximum static shared memory of a kernel in bytes, on every device; more has to be dynamic.
const STATIC_BYTES_MAX: u64 = 48 << 10;

/// Reports whether the launch determines the size of a shared variable.
pub fn is_dynamic(variable: &Variable) -> bool {
    variable.linkage == Linkage::Extern || variable.count == 0
}

/// Returns the alignment of a dynamic shared variable in bytes.
pub fn dynamic_align(variable: &Variable) -> Result<u32, LoadError> {
    match u64::from(variable.align) <= SHARED_BYTES_MAX {
        true => Ok(variable.align),
        false => Err(LoadError::syntax(variable.line, format!("more than {SHARED_BYTES_MAX} bytes of shared memory"))),
    }
}

/// Checks the static shared memory of the kernel on `line`.
pub fn check_static(kernel: &str, line: u32, bytes: u64) -> Result<(), LoadError> {
    if bytes <= STATIC_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "kernel `{kernel}` uses {bytes} bytes of static shared memory, and {STATIC_BYTES_MAX} (48 KiB) is the limit; \
         declare an `extern __shared__` array and give its size in the launch"
    );
    Err(LoadError::syntax(line, message))
}

/// Places a shared variable behind the earlier ones; returns its offset.
pub fn place_shared(end: &mut u32, variable: &Variable) -> Result<u32, LoadError> {
    let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
    let offset = u64::from(*end).next_multiple_of(variable.align.into());
    if bytes > SHARED_BYTES_MAX || offset + bytes > SHARED_BYTES_MAX {
        return Err(LoadError::syntax(variable.line, format!("more than {SHARED_BYTES_MAX} bytes of shared memory")));
    }
    *end = (offset + bytes) as u32;
    Ok(offset as u32)
}

/// Describes a shared variable, with its name in the source.
pub fn shared_variable(variable: &Variable, offset: u32) -> SharedVariable {
    let bytes = variable.count.saturating_mul(variable.ty.bytes().into()) as u32;
    SharedVariable { name: plain_name(variable.name).to_owned(), offset, bytes }
}

/// Returns the last part of a mangled name, such as `tile` of `_ZZ6kernelPfE4tile`, which a compiler derives from a
/// variable in a function. Other names are unchanged.
fn plain_name(name: &str) -> &str {
    let parts =
        name.strip_prefix("_ZZ").into_iter().flat_map(|rest| rest.match_indices('E').map(|(at, _)| &rest[at + 1..]));
    let mut named = parts.rev().filter_map(|part| {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length: usize = part[..digits].parse().ok()?;
        // A number may follow the name if a function has several variables of that name.
        part[digits..]
            .get(..length)
            .filter(|_| part[digits + length..].is_empty() || part[digits + length..].starts_with('_'))
    });
    named.next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn variables_go_by_the_names_that_their_writers_gave_them() {
        assert_eq!(plain_name("_ZZ6kernelPfE4tile"), "tile");
        assert_eq!(plain_name("_ZZN3ops3sumEPfE6Edges2_0"), "Edges2");
        assert_eq!(plain_name("tile"), "tile");
        assert_eq!(plain_name("_ZZ9"), "_ZZ9");
    }
}
