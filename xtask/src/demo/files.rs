//! The `.npy` arrays in the demo's folder.

use std::{fs, path::Path};

use anyhow::{Context as _, bail, ensure};

/// Reads the elements of an array with four-byte elements in C order.
pub fn read_npy<const SIZE: usize, T>(
    path: &Path,
    descr: &str,
    element: impl Fn([u8; SIZE]) -> T,
) -> anyhow::Result<Vec<T>> {
    let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let Some((lead, rest)) = bytes.split_first_chunk::<10>() else {
        bail!("{} is too short for a .npy file", path.display())
    };
    ensure!(lead.starts_with(b"\x93NUMPY\x01"), "{} is not a .npy file of version 1", path.display());
    let (header, body) = rest
        .split_at_checked(usize::from(u16::from_le_bytes([lead[8], lead[9]])))
        .with_context(|| format!("{} ends in its header", path.display()))?;
    let header = String::from_utf8_lossy(header);
    ensure!(header.contains(&format!("'{descr}'")), "{} does not hold {descr}: {header}", path.display());
    ensure!(header.contains("'fortran_order': False"), "{} is in Fortran's order", path.display());
    let (elements, rest) = body.as_chunks::<SIZE>();
    ensure!(rest.is_empty(), "{} ends within an element", path.display());
    Ok(elements.iter().map(|bytes| element(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_read_as_the_type_that_its_header_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend([1.0_f32, -2.5].iter().flat_map(|value| value.to_le_bytes()));
        fs::write(file.path(), bytes).unwrap();
        assert_eq!(read_npy(file.path(), "<f4", f32::from_le_bytes).unwrap(), [1.0, -2.5]);
        assert!(read_npy(file.path(), "<u4", u32::from_le_bytes).is_err());
    }
}
