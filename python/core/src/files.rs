//! The files of a host program: packs those that go with it, and unpacks those that it brings back.

use std::{
    fs::File,
    io::{self, Cursor, Read, Seek},
    path::{Path, PathBuf},
};

use gpufleet::{
    ArrayFile, StoredArray,
    archive::{self, ArchiveError, Selection, Unpacked},
    schema::Dtype,
};
use pyo3::{
    Bound, PyAny, PyErr, PyResult, Python,
    exceptions::{PyFileExistsError, PyOSError},
    pyfunction,
};

use crate::{
    arrays::Elements,
    client::Client,
    errors::{chain, raise, value},
};

/// Packs files and folders into an archive, which is in a file without a name.
pub fn pack(py: Python<'_>, paths: &[PathBuf]) -> PyResult<ArrayFile> {
    let file = temporary()?;
    let written = py.detach(|| Selection::of(paths)?.write(file));
    let mut file = written.map_err(|error| python_error(py, &error))?;
    let bytes = file.stream_position().map_err(temporary_failed)?;
    ArrayFile::new(file, 0, Dtype::U8, vec![bytes]).map_err(value)
}

/// Unpacks an archive, which is an array of bytes, into a folder. Returns the paths of its files. Those that exist with other contents are
/// replaced only if `replaces` is true.
#[pyfunction]
pub fn unpack(py: Python<'_>, archive: &Bound<'_, PyAny>, folder: PathBuf, replaces: bool) -> PyResult<Vec<PathBuf>> {
    let archive = Elements::of(archive)?;
    unpacked(py, &mut Cursor::new(archive), &folder, replaces)
}

/// Unpacks an archive of the blob store like [`unpack`], with little memory.
pub fn unpack_stored(
    py: Python<'_>,
    client: &Client,
    archive: &StoredArray,
    folder: &Path,
    replaces: bool,
) -> PyResult<Vec<PathBuf>> {
    let mut file = client.copy_stored(py, archive, temporary()?)?;
    unpacked(py, &mut file, folder, replaces)
}

fn unpacked<R: Read + Seek + Send>(
    py: Python<'_>,
    archive: &mut R,
    folder: &Path,
    replaces: bool,
) -> PyResult<Vec<PathBuf>> {
    let done = py.detach(|| archive::unpack(archive, folder, replaces));
    let Unpacked { written, unchanged, .. } = done.map_err(|error| python_error(py, &error))?;
    let mut names: Vec<_> = written.into_iter().chain(unchanged).map(|name| folder.join(name)).collect();
    names.sort();
    Ok(names)
}

fn temporary() -> PyResult<File> {
    tempfile::tempfile().map_err(temporary_failed)
}

fn temporary_failed(error: io::Error) -> PyErr {
    let problem = format!(
        "failed to write a temporary file: {error}; check that TMPDIR names a folder that you may write to, and that its disk has room"
    );
    io::Error::new(error.kind(), problem).into()
}

/// Returns Python's exception for files that can't be packed or unpacked.
fn python_error(py: Python<'_>, error: &ArchiveError) -> PyErr {
    let text = chain(error);
    match error {
        // The kind decides the class, such as FileNotFoundError.
        ArchiveError::Read { source, .. } | ArchiveError::Write { source, .. } | ArchiveError::Archive { source } => {
            io::Error::new(source.kind(), text).into()
        }
        ArchiveError::Exists { .. } => {
            PyFileExistsError::new_err(format!("{text}; choose another folder, or replace the files with replace=True"))
        }
        ArchiveError::Changed { .. } => PyOSError::new_err(text),
        ArchiveError::Damaged { .. } | ArchiveError::Refused { .. } => raise(py, "ResultUnavailable", &text),
        ArchiveError::SameName { .. }
        | ArchiveError::LinkOutside { .. }
        | ArchiveError::Special { .. }
        | ArchiveError::TooLarge { .. }
        | ArchiveError::IgnoreFile { .. } => raise(py, "InvalidJob", &text),
    }
}
