//! An array in a file, which a client stores or sends without keeping a copy in memory.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

use gpufleet_schema::{Dtype, Inline};

use crate::{ArrayError, array};

/// An array in a file: elements in C order, as little-endian bytes, from an offset on. The file must not change until the
/// job is submitted.
#[derive(Debug, Clone)]
pub struct ArrayFile {
    file: Arc<File>,
    dtype: Dtype,
    shape: Vec<u64>,
    range: Range<u64>,
}

impl ArrayFile {
    /// Describes the array that begins at byte `offset` of the file. It may end before the file does.
    pub fn new(file: File, offset: u64, dtype: Dtype, shape: Vec<u64>) -> Result<Self, ArrayError> {
        let end = array::bytes(dtype, &shape).and_then(|bytes| offset.checked_add(bytes));
        match end {
            Some(end) => Ok(Self { file: Arc::new(file), dtype, shape, range: offset..end }),
            None => Err(ArrayError::TooLarge { dtype, shape }),
        }
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the length of each dimension, slowest first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the length of the array in bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The file, and the bytes of the elements in it.
    pub fn parts(&self) -> io::Result<(File, Range<u64>)> {
        Ok((self.file.try_clone()?, self.range.clone()))
    }

    /// The elements, for a message.
    pub(crate) fn read(&self) -> io::Result<Inline<'static>> {
        let mut bytes = vec![0; usize::try_from(self.bytes()).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.range.start)?;
        Ok(Inline::from(bytes))
    }
}
