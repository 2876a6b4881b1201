//! Arrays in the blob store, which are named by the digest of their contents.

use gpufleet_blobs::{BlobError, BlobStore};
use gpufleet_schema::{BlobDigest, Buffer, Data, Dtype};

use crate::{Array, ArrayError, array};

/// An array in the blob store. Jobs that use it by [`Job::input_stored`](crate::Job::input_stored) carry only its
/// digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredArray {
    digest: BlobDigest,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: u64,
}

/// Why an array could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("failed to use the blob store: this client has none; name one with FleetBuilder::blobs")]
    NoStore,
    #[error("{0}")]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Array(#[from] ArrayError),
}

impl StoredArray {
    /// Names an array that another program has stored, such as `gpufleet blobs put`. This does not access the store: if
    /// the array is missing, the job that uses it fails.
    pub fn new(digest: BlobDigest, dtype: Dtype, shape: Vec<u64>) -> Result<Self, ArrayError> {
        match array::bytes(dtype, &shape) {
            Some(bytes) => Ok(Self { digest, dtype, shape, bytes }),
            None => Err(ArrayError::TooLarge { dtype, shape }),
        }
    }

    pub fn digest(&self) -> BlobDigest {
        self.digest
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
        self.bytes
    }

    pub(crate) async fn put(array: Array, store: &BlobStore) -> Result<Self, StoreError> {
        let bytes = array.bytes().len() as u64;
        let (dtype, shape) = (array.dtype(), array.shape().to_vec());
        Ok(Self { digest: store.put(array.into_bytes()).await?, dtype, shape, bytes })
    }

    /// Stores an array without copying its elements.
    pub(crate) async fn put_shared<B>(
        dtype: Dtype,
        shape: Vec<u64>,
        elements: B,
        store: &BlobStore,
    ) -> Result<Self, StoreError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let given = elements.as_ref().len() as u64;
        match array::bytes(dtype, &shape) {
            Some(bytes) if bytes == given => {
                Ok(Self { digest: store.put_shared(elements).await?, dtype, shape, bytes })
            }
            Some(wanted) => Err(ArrayError::WrongLength { dtype, shape, given, wanted }.into()),
            None => Err(ArrayError::TooLarge { dtype, shape }.into()),
        }
    }

    /// Reads the array. A blob of another length is an error.
    pub(crate) async fn read(self, store: BlobStore) -> Result<Array, BlobError> {
        let bytes = store.view(self.digest, self.bytes).await?;
        Ok(Array::of_blob(self.dtype, self.shape, bytes).expect("a blob is read at the length that the shape says"))
    }

    /// The array as a buffer of a task.
    pub(crate) fn to_buffer(&self, name: String) -> Buffer<'static> {
        Buffer::new(name, self.dtype, self.shape.clone(), Data::Blob(self.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_array_is_stored_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).await.unwrap();
        let array = Array::from_slice(&[1.5_f32, 2.5]).reshape(vec![2, 1]).unwrap();
        let stored = StoredArray::put(array.clone(), &store).await.unwrap();
        assert_eq!(stored, StoredArray::put(array.clone(), &store).await.unwrap());
        assert_eq!((stored.dtype(), stored.shape(), stored.bytes()), (Dtype::F32, &[2, 1][..], 8));
        assert_eq!(stored.digest(), BlobDigest::of(array.bytes()));
        assert_eq!(stored.clone().read(store.clone()).await.unwrap(), array);
        let other = StoredArray::new(stored.digest(), Dtype::F32, vec![3]).unwrap();
        assert!(matches!(other.read(store).await, Err(BlobError::Length { found: 8, wanted: 12, .. })));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_length_that_overflows_is_refused() {
        let digest = BlobDigest::of(b"");
        let error = StoredArray::new(digest, Dtype::F64, vec![u64::MAX, 2]).unwrap_err();
        assert!(matches!(error, ArrayError::TooLarge { .. }), "{error}");
    }
}
