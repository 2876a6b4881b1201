//! Arrays that cross the border between Python and Rust: read from Python's buffers, and given to Python without a copy.

use std::{ffi::c_int, slice};

use gpufleet::{Array, BlobBytes, schema::Dtype};
use pyo3::{Bound, PyAny, PyErr, PyResult, Python, buffer::PyUntypedBuffer, ffi, pyclass, pymethods};

use crate::errors;

/// The size from which other Python threads run while an array is copied.
const COPY_BYTES_DETACHED: usize = 256 << 10;

/// The bytes of an array that Rust owns. Python writes to them in place.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Bytes {
    start: *mut u8,
    length: usize,
    _owner: BlobBytes,
}

// SAFETY: the memory belongs to this value alone, and Rust does not access it before it frees it.
unsafe impl Send for Bytes {}
// SAFETY: as above. Races between Python threads on one array are the caller's concern, as with any NumPy array.
unsafe impl Sync for Bytes {}

impl From<BlobBytes> for Bytes {
    fn from(mut owner: BlobBytes) -> Self {
        Self { start: owner.as_mut_ptr(), length: owner.len(), _owner: owner }
    }
}

#[pymethods]
impl Bytes {
    /// Gives Python a writable view of the bytes.
    ///
    /// # Safety
    ///
    /// `view` must be valid for writes, as Python's buffer protocol requires.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get();
        let length = bytes.length.try_into().expect("an allocation has at most isize::MAX bytes");
        // SAFETY: Python passes a view to fill. The memory lives as long as this object, and the view holds a reference to the object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.start.cast(), length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __len__(&self) -> usize {
        self.length
    }
}

/// Copies the little-endian elements of an array.
pub fn copy(py: Python<'_>, dtype: Dtype, shape: Vec<u64>, elements: &Elements) -> PyResult<Array> {
    let copy = || elements.as_ref().to_vec();
    let length = elements.as_ref().len();
    let bytes = if length < COPY_BYTES_DETACHED { copy() } else { py.detach(copy) };
    Array::new(dtype, shape, bytes).map_err(|error| errors::value(&error))
}

/// The elements of a C-contiguous array, in Python's memory.
#[derive(Debug)]
pub struct Elements(PyUntypedBuffer);

impl Elements {
    pub fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::contiguous(array)?.ok_or_else(|| errors::value("the array is not C-contiguous"))
    }

    /// Returns the elements of an array; `None` if it is not C-contiguous. Fails for an array without dimensions, whose buffer has no
    /// shape.
    pub fn contiguous(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let buffer = PyUntypedBuffer::get(array)?;
        Ok(buffer.is_c_contiguous().then_some(Self(buffer)))
    }

    pub fn shape(&self) -> Vec<u64> {
        self.0.shape().iter().map(|extent| *extent as u64).collect()
    }
}

impl AsRef<[u8]> for Elements {
    fn as_ref(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, has this length, and stays until the view is released. As with NumPy, a thread that writes to
        // the array meanwhile changes what is read.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }
}

pub fn dtype(py: Python<'_>, name: &str) -> PyResult<Dtype> {
    name.parse().map_err(|error| errors::invalid_job(py, &error))
}
