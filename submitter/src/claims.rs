//! Claim checks: a task names its large arrays by digest, and the arrays are in the blob store.

use std::sync::LazyLock;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_schema::{BlobDigest, Data, Inline, Invalid, LargeOutputs, Task, bounds::BLOB_BYTES_MIN};
use gpufleet_transport::BlobStore;

use crate::{InvalidJob, SubmitError};

/// Arrays that are stored at once: one is hashed while the other is written to disk.
const STORED_AT_ONCE: usize = 2;

/// The digest of an array that is not stored yet.
static PENDING: LazyLock<BlobDigest> = LazyLock::new(|| BlobDigest::of(&[]));

/// Stores every large array, replaces it in the task by its digest, and asks for large outputs the same way. Nothing is
/// stored if the resulting task is invalid.
///
/// If the future is cancelled, some of the arrays may be in the store; nothing else has happened.
pub(crate) async fn check_in(task: &mut Task<'_>, store: &BlobStore) -> Result<(), SubmitError> {
    task.large_outputs = LargeOutputs::Blob;
    let large = take_large(task).map_err(InvalidJob::from)?;
    task.check().map_err(InvalidJob::from)?;
    let (job_id, buffers) = (task.job_id, &task.buffers);
    let stored = stream::iter(large).map(async |(index, bytes)| match store.put(bytes).await {
        Ok(digest) => Ok((index, digest)),
        Err(source) => Err(SubmitError::Blob { job_id, buffer: buffers[index].name.clone(), source }),
    });
    let stored: Vec<(usize, BlobDigest)> = stored.buffer_unordered(STORED_AT_ONCE).try_collect().await?;
    for (index, digest) in stored {
        task.buffers[index].data = Data::Blob(digest);
    }
    Ok(())
}

/// Takes the bytes of the large arrays out of the task, each with the index of its buffer.
fn take_large(task: &mut Task<'_>) -> Result<Vec<(usize, Vec<u8>)>, Invalid> {
    let mut large = Vec::new();
    for (index, buffer) in task.buffers.iter_mut().enumerate() {
        if buffer.inline_bytes() < BLOB_BYTES_MIN {
            continue;
        }
        let bytes = match std::mem::replace(&mut buffer.data, Data::Blob(*PENDING)) {
            Data::Inline(Inline::Bytes(bytes)) => bytes.into_owned(),
            Data::Inline(numbers) => numbers
                .resolve(buffer.dtype)
                .map_err(|problem| Invalid {
                    field: format!("buffers.{}.data", buffer.name),
                    problem: problem.to_string(),
                })?
                .into_owned(),
            Data::Zeros | Data::Fill(_) | Data::Blob(_) | Data::Output(_) => {
                unreachable!("only inline data has inline bytes")
            }
        };
        large.push((index, bytes));
    }
    Ok(large)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Dtype, Number};

    use super::*;
    use crate::{Array, Job, StoredArray};

    const LARGE: usize = BLOB_BYTES_MIN as usize;

    fn task(job: Job) -> Task<'static> {
        job.entry("k").cover([1]).build().unwrap().task
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    async fn store() -> (tempfile::TempDir, BlobStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).await.unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn large_arrays_are_stored_and_small_ones_stay_in_the_task() {
        let (folder, store) = store().await;
        let kept = StoredArray::new(BlobDigest::of(b"elsewhere"), Dtype::U8, vec![LARGE as u64]).unwrap();
        let before = task(
            Job::source("code")
                .input("small", &vec![1_u8; LARGE - 1])
                .input("large", &vec![2_u8; LARGE])
                .input_stored("kept", &kept)
                .zeros("zeros", Dtype::U8, [2 * LARGE as u64]),
        );
        let mut checked = before.clone();
        check_in(&mut checked, &store).await.unwrap();
        let large = BlobDigest::of(&vec![2_u8; LARGE]);
        assert_eq!(checked.buffers[1].data, Data::Blob(large));
        assert_eq!(checked.large_outputs, LargeOutputs::Blob);
        assert_eq!(names(&folder), [format!("sha256-{}", large.hex())]);
        assert_eq!(store.read(large, LARGE as u64).await.unwrap(), vec![2; LARGE]);
        let bytes = |task: &Task<'_>| task.inline_bytes() + task.blob_bytes();
        assert_eq!(bytes(&checked), bytes(&before));
        // Nothing else has changed.
        checked.buffers[1].data = before.buffers[1].data.clone();
        assert_eq!(Task { large_outputs: LargeOutputs::Inline, ..checked }, before);
    }

    #[tokio::test]
    async fn a_list_of_numbers_is_measured_and_stored_as_its_bytes() {
        let (_folder, store) = store().await;
        let mut checked = task(Job::source("code").zeros("x", Dtype::U32, [LARGE as u64 / 4]));
        checked.buffers[0].data = Data::Inline(Inline::from(vec![Number::Signed(258); LARGE / 4]));
        check_in(&mut checked, &store).await.unwrap();
        assert_eq!(checked.buffers[0].data, Data::Blob(BlobDigest::of(&[2, 1, 0, 0].repeat(LARGE / 4))));
        checked.buffers[0].data = Data::Inline(Inline::from(vec![Number::Signed(-1); LARGE / 4]));
        let error = check_in(&mut checked, &store).await.unwrap_err().to_string();
        assert!(error.starts_with("buffers.x.data: "), "{error}");
    }

    #[tokio::test]
    async fn a_job_with_too_many_bytes_of_blobs_stores_none_of_them() {
        let (folder, store) = store().await;
        let kept = StoredArray::new(BlobDigest::of(b""), Dtype::U8, vec![1]).unwrap();
        let mut checked = task(Job::source("code").input("x", &vec![1_u8; LARGE]).input_stored("kept", &kept));
        checked.buffers[1].shape = vec![1 << 40];
        let error = check_in(&mut checked, &store).await.unwrap_err();
        assert!(matches!(error, SubmitError::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("exceed 1099511627776 bytes"), "{error}");
        assert_eq!(names(&folder), [""; 0]);
    }

    #[tokio::test]
    async fn the_error_of_a_deleted_store_names_the_job_and_the_buffer() {
        let (folder, store) = store().await;
        folder.close().unwrap();
        let mut checked = task(Job::source("code").input_array("x", Array::from_slice(&vec![1_u8; LARGE])));
        let error = check_in(&mut checked, &store).await.unwrap_err();
        let told = format!("store buffer \"x\" of job {}: failed to store a blob", checked.job_id);
        assert!(error.to_string().starts_with(&told), "{error}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with("store a blob in the blob store"), "{source}");
        assert_eq!(error.retry_after(), None);
    }
}
