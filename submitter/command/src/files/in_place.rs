//! Arrays that a blob store takes from their files as they are, without reading them into memory.

use std::{fs::File, io::Read as _, path::Path};

use gpufleet::{ArrayError, ArrayFile};

use super::{Kind, agree, check_format, formless, misfit, misnamed, npy, unreadable, unusable};
use crate::{complaint::Complaint, spec::Form};

/// More than any header of a file with plain numbers.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Finds the elements of an array in its file. `None` if the file has to be converted, such as a picture, or if it has no
/// length, such as a pipe. `form` is as in [`read`](super::read).
pub fn in_place(path: &Path, form: Option<&Form>) -> Result<Option<ArrayFile>, Complaint> {
    check_format(path)?;
    let file = File::open(path).map_err(|problem| unreadable(path, &problem))?;
    let metadata = file.metadata().map_err(|problem| unreadable(path, &problem))?;
    match Kind::of(path) {
        _ if !metadata.is_file() => Ok(None),
        Kind::Png => Ok(None),
        Kind::Npy => in_npy(path, file, metadata.len(), form),
        Kind::Raw => in_raw(path, file, metadata.len(), form.ok_or_else(|| formless(path))?).map(Some),
    }
}

fn in_npy(path: &Path, file: File, length: u64, form: Option<&Form>) -> Result<Option<ArrayFile>, Complaint> {
    let mut start = Vec::new();
    (&file).take(HEADER_BYTES_MAX).read_to_end(&mut start).map_err(|problem| unreadable(path, &problem))?;
    if !start.starts_with(Kind::Npy.signature()) {
        return Err(misnamed(path, Kind::Npy));
    }
    let located = npy::locate(&start, length).map_err(|problem| unusable(path, &problem))?;
    let Some(npy::Located { dtype, shape, offset }) = located else { return Ok(None) };
    agree(path, form, dtype, &shape)?;
    ArrayFile::new(file, offset, dtype, shape).map(Some).map_err(|problem| misfit(path, &problem))
}

fn in_raw(path: &Path, file: File, length: u64, Form { dtype, shape }: &Form) -> Result<ArrayFile, Complaint> {
    let (dtype, shape) = (*dtype, shape.clone());
    let array = ArrayFile::new(file, 0, dtype, shape.clone()).map_err(|problem| misfit(path, &problem))?;
    match array.bytes() {
        wanted if wanted == length => Ok(array),
        wanted => Err(misfit(path, &ArrayError::WrongLength { dtype, shape, given: length, wanted })),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _};

    use gpufleet::{Array, schema::Dtype};

    use super::*;
    use crate::files;

    #[test]
    fn the_elements_in_the_file_are_those_that_reading_it_gives() {
        let folder = tempfile::tempdir().unwrap();
        let array = Array::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).reshape(vec![2, 3]).unwrap();
        let form = Form { dtype: Dtype::F32, shape: vec![2, 3] };
        for name in ["x.npy", "x.bin"] {
            let path = folder.path().join(name);
            files::write(&path, &array).unwrap();
            let found = in_place(&path, Some(&form)).unwrap().unwrap();
            let (file, range) = found.parts().unwrap();
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).unwrap();
            assert_eq!(Array::new(found.dtype(), found.shape().to_vec(), bytes).unwrap(), array, "{name}");
        }
    }

    #[test]
    fn files_to_convert_are_left_to_memory() {
        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("x.png");
        files::write(&picture, &Array::from_slice(&[1_u8, 2, 3, 4]).reshape(vec![2, 2]).unwrap()).unwrap();
        let column_major = folder.path().join("x.npy");
        let header = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n";
        let start = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
        fs::write(&column_major, [&start[..], &[0; 12]].concat()).unwrap();
        for path in [&*picture, &*column_major, Path::new("/dev/null")] {
            assert!(in_place(path, None).unwrap().is_none(), "{}", path.display());
        }
    }

    #[test]
    fn unusable_files_are_reported_as_by_reading_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        files::write(&path("x.npy"), &Array::from_slice(&[1_u8])).unwrap();
        fs::copy(path("x.npy"), path("x.bin")).unwrap();
        fs::write(path("text.npy"), "text").unwrap();
        let mut long = fs::read(path("x.npy")).unwrap();
        long.push(0);
        fs::write(path("long.npy"), long).unwrap();
        let form = Some(Form { dtype: Dtype::F32, shape: vec![3] });
        let huge = Some(Form { dtype: Dtype::F32, shape: vec![u64::MAX, 2] });
        for (name, form) in [
            ("none.npy", &None),
            ("text.npy", &None),
            ("long.npy", &None),
            ("x.npy", &form),
            ("x.bin", &form),
            ("x.bin", &huge),
            ("x.bin", &None),
        ] {
            let found = in_place(&path(name), form.as_ref()).unwrap_err();
            let read = files::read(&path(name), form.as_ref(), files::Purpose::Converted).unwrap_err();
            assert_eq!((found.message, found.hint), (read.message, read.hint), "{name}");
        }
    }
}
