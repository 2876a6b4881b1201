//! Arrays that cross between Python and Rust: read from Python's buffers, given to Python without a copy.

use std::{ffi::c_int, mem::ManuallyDrop, ptr::NonNull, slice};

use gpufleet::{Array, schema::Dtype};
use pyo3::{Bound, PyAny, PyErr, PyResult, Python, buffer::PyUntypedBuffer, ffi, pyclass, pymethods};

use crate::errors;

/// From this size on, other Python threads run while an array is copied.
const COPY_BYTES_DETACHED: usize = 256 << 10;

/// The bytes of an array that Rust allocated. Python writes to them in place.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Bytes {
    start: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// SAFETY: the memory belongs to this value alone, and Rust reads and writes it only in `Drop`.
unsafe impl Send for Bytes {}
// SAFETY: as above. Races between Python threads on one array are Python's, as for any numpy array.
unsafe impl Sync for Bytes {}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let start = NonNull::new(bytes.as_mut_ptr()).expect("a vector's pointer is not null");
        Self { start, length: bytes.len(), capacity: bytes.capacity() }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the parts are those of the vector in `from`, and no view is left: each holds a reference to this object.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, self.capacity) });
    }
}

#[pymethods]
impl Bytes {
    /// Gives Python a writable view.
    ///
    /// # Safety
    ///
    /// `view` must be valid for writes, as Python's buffer protocol says.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get();
        let length = bytes.length.try_into().expect("an allocation has at most isize::MAX bytes");
        // SAFETY: Python passes a view to fill. The memory lives as long as this object, to which the view holds a reference.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.start.as_ptr().cast(), length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __len__(&self) -> usize {
        self.length
    }
}

/// Copies a C-contiguous array of little-endian elements.
pub fn read(dtype: &str, shape: Vec<u64>, array: &Bound<'_, PyAny>) -> PyResult<Array> {
    let dtype = self::dtype(array.py(), dtype)?;
    let bytes = copy(array)?;
    Array::new(dtype, shape, bytes).map_err(|error| errors::value(&error))
}

pub fn dtype(py: Python<'_>, name: &str) -> PyResult<Dtype> {
    name.parse().map_err(|error| errors::invalid_job(py, &error))
}

fn copy(array: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = PyUntypedBuffer::get(array)?;
    if !buffer.is_c_contiguous() {
        return Err(errors::value("the array is not C-contiguous"));
    }
    let length = buffer.len_bytes();
    if length == 0 {
        return Ok(Vec::new());
    }
    let bytes = || {
        // SAFETY: the buffer is contiguous, has this length and stays until the view is released. As in numpy, a thread that
        // writes to the array meanwhile changes what is copied.
        unsafe { slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), length) }.to_vec()
    };
    if length < COPY_BYTES_DETACHED { Ok(bytes()) } else { Ok(array.py().detach(bytes)) }
}
