//! The demo's files: `.npy` arrays in, arrays and pictures out.

use std::{fs, io, path::Path};

use anyhow::{Context as _, bail, ensure};

use super::{picture, scene};

/// Elements of the two arrays.
const ELEMENTS: usize = 1_000_000;
const PHOTO_SIZE: (u32, u32) = (640, 480);
const EDGE_SOURCE: &str = include_str!("../../demo/edge.cu");

/// A picture of three bytes a pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub rgb: Vec<u8>,
}

pub fn fresh_folder(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", folder.display()));
        }
        _ => {}
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}

/// The two arrays; `x` rises slowly and `y` swings.
pub fn arrays() -> (Vec<f32>, Vec<f32>) {
    let at = |i: usize| i as f32 / ELEMENTS as f32;
    ((0..ELEMENTS).map(at).collect(), (0..ELEMENTS).map(|i| (at(i) * 100.0).sin()).collect())
}

pub fn make_inputs(folder: &Path) -> anyhow::Result<Picture> {
    let (x, y) = arrays();
    write_npy(&folder.join("x.npy"), &x)?;
    write_npy(&folder.join("y.npy"), &y)?;
    let path = folder.join("edge.cu");
    fs::write(&path, EDGE_SOURCE).with_context(|| format!("write {}", path.display()))?;
    let (width, height) = PHOTO_SIZE;
    let photo = Picture { width, height, rgb: scene::render(width, height) };
    picture::write_rgb(&folder.join("photo.png"), &photo)?;
    Ok(photo)
}

/// NumPy's format, version 1.0: a magic, a Python dictionary padded to 64 bytes, the elements.
fn write_npy(path: &Path, values: &[f32]) -> anyhow::Result<()> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).context("the header is short")?.to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// The elements of a one- or many-dimensional array of four-byte elements in C order.
pub fn read_npy<const SIZE: usize, T>(
    path: &Path,
    descr: &str,
    element: impl Fn([u8; SIZE]) -> T,
) -> anyhow::Result<Vec<T>> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
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
    fn an_array_is_read_back_as_it_was_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_npy(file.path(), &[1.0, -2.5]).unwrap();
        assert_eq!(read_npy(file.path(), "<f4", f32::from_le_bytes).unwrap(), [1.0, -2.5]);
        assert!(read_npy(file.path(), "<u4", u32::from_le_bytes).is_err());
        assert_eq!((fs::metadata(file.path()).unwrap().len() - 8) % 64, 0);
    }
}
