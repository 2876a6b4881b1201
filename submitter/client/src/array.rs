//! An array: a dtype, a shape, and bytes of the matching length.

use gpufleet_blobs::BlobBytes;
use gpufleet_schema::{Buffer, Data, Dtype, Inline, task::elements};

use crate::Element;

/// An input or output of a job: elements in C order, as little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: BlobBytes,
}

/// Why bytes can't be an array, or an array can't be read as elements of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    #[error("{dtype}{} takes {wanted} bytes, but there are {given}", brackets(shape))]
    WrongLength { dtype: Dtype, shape: Vec<u64>, given: u64, wanted: u64 },
    #[error("{dtype}{} is larger than any memory", brackets(shape))]
    TooLarge { dtype: Dtype, shape: Vec<u64> },
    #[error("the array holds {held}, not {wanted}")]
    WrongDtype { held: Dtype, wanted: Dtype },
}

/// A shape in brackets: `[480, 640]`.
pub(crate) fn brackets(shape: &[u64]) -> String {
    format!("{shape:?}")
}

/// The length of an array in bytes; `None` if it overflows.
pub(crate) fn bytes(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    elements(shape)?.checked_mul(dtype.size() as u64)
}

impl Array {
    /// Creates an array from little-endian elements in C order, with the slowest dimension first in `shape`. The length of `bytes` must
    /// match the shape.
    pub fn new(dtype: Dtype, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Self, ArrayError> {
        Self::of_blob(dtype, shape, bytes.into())
    }

    pub(crate) fn of_blob(dtype: Dtype, shape: Vec<u64>, bytes: BlobBytes) -> Result<Self, ArrayError> {
        match self::bytes(dtype, &shape) {
            Some(wanted) if wanted == bytes.len() as u64 => Ok(Self { dtype, shape, bytes }),
            Some(wanted) => Err(ArrayError::WrongLength { dtype, shape, given: bytes.len() as u64, wanted }),
            None => Err(ArrayError::TooLarge { dtype, shape }),
        }
    }

    /// Creates a one-dimensional array.
    pub fn from_slice<T: Element>(elements: &[T]) -> Self {
        Self { dtype: T::DTYPE, shape: vec![elements.len() as u64], bytes: T::to_bytes(elements).into() }
    }

    /// Returns the elements in another shape, which must have as many of them.
    pub fn reshape(self, shape: Vec<u64>) -> Result<Self, ArrayError> {
        Self::of_blob(self.dtype, shape, self.bytes)
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the length of each dimension, slowest first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the elements as little-endian bytes in C order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the little-endian bytes in memory. An array that is mapped from the file of a blob is copied.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_vec()
    }

    /// Returns the bytes without a copy: in memory, or mapped from the file of a blob. Writes to a mapping do not change the file.
    pub fn into_blob_bytes(self) -> BlobBytes {
        self.bytes
    }

    /// Returns the elements in C order. A `T` that is not the type of the array's dtype is an error.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, ArrayError> {
        if self.dtype == T::DTYPE {
            Ok(T::from_bytes(&self.bytes))
        } else {
            Err(ArrayError::WrongDtype { held: self.dtype, wanted: T::DTYPE })
        }
    }

    /// The array as a buffer of a task.
    pub(crate) fn into_buffer(self, name: String) -> Buffer<'static> {
        let Self { dtype, shape, bytes } = self;
        Buffer::new(name, dtype, shape, Data::Inline(Inline::from(bytes.into_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_disagree_with_the_shape_are_refused_with_both_lengths() {
        let error = Array::new(Dtype::F32, vec![2, 3], vec![0; 20]).unwrap_err();
        assert_eq!(error.to_string(), "f32[2, 3] takes 24 bytes, but there are 20");
        assert!(matches!(Array::new(Dtype::F64, vec![u64::MAX, 2], vec![]), Err(ArrayError::TooLarge { .. })));
    }

    #[test]
    fn elements_are_returned_only_as_their_own_type() {
        let array = Array::from_slice(&[1.5_f32, 2.5]).reshape(vec![1, 2]).unwrap();
        assert_eq!(array.to_vec::<f32>().unwrap(), [1.5, 2.5]);
        assert_eq!(array.to_vec::<i32>().unwrap_err().to_string(), "the array holds f32, not i32");
    }
}
