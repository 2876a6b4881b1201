//! Claim checks: a task names its large arrays by digest, and the arrays are in the blob store.

use std::sync::LazyLock;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_blobs::BlobStore;
use gpufleet_schema::{
    BlobDigest, Data, Inline, Invalid, LargeOutputs, Task, TooLarge,
    bounds::{BLOB_BYTES_MIN, MESSAGE_BYTES_MAX},
};

use crate::{ArrayFile, InvalidJob, SubmitError};

/// Number of arrays that are stored at once: one is hashed while the other is written to disk.
const STORED_AT_ONCE: usize = 2;

/// Placeholder for the digest of an array that is not stored yet.
pub(crate) static PENDING: LazyLock<BlobDigest> = LazyLock::new(|| BlobDigest::of(&[]));

/// An array to store.
enum Large {
    Bytes(Vec<u8>),
    File(ArrayFile),
}

/// Stores every large array, from memory or from its file, replaces it in the task by its digest, and asks for large outputs the same
/// way. Nothing is stored if the resulting task is invalid.
///
/// If the future is cancelled, some of the arrays may be in the store; nothing else has happened.
pub(crate) async fn check_in(
    task: &mut Task<'_>,
    files: Vec<(usize, ArrayFile)>,
    store: &BlobStore,
) -> Result<(), SubmitError> {
    task.large_outputs = LargeOutputs::Blob;
    let large = take_large(task).map_err(InvalidJob::from)?;
    if large.is_empty() && files.is_empty() {
        return Ok(());
    }
    let (files, small): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, file)| file.bytes() >= BLOB_BYTES_MIN);
    read_in(task, small)?;
    task.check().map_err(InvalidJob::from)?;
    let (job_id, buffers) = (task.job_id, &task.buffers);
    let large = large.into_iter().map(|(index, bytes)| (index, Large::Bytes(bytes)));
    let all = large.chain(files.into_iter().map(|(index, file)| (index, Large::File(file))));
    let stored = stream::iter(all).map(async |(index, array)| {
        let buffer = || buffers[index].name.clone();
        let stored = match array {
            Large::Bytes(bytes) => store.put(bytes).await,
            Large::File(file) => {
                let (file, range) =
                    file.parts().map_err(|source| SubmitError::File { job_id, buffer: buffer(), source })?;
                store.put_file(file, range).await
            }
        };
        match stored {
            Ok(digest) => Ok((index, digest)),
            Err(source) => Err(SubmitError::Blob { job_id, buffer: buffer(), source }),
        }
    });
    let stored: Vec<(usize, BlobDigest)> = stored.buffer_unordered(STORED_AT_ONCE).try_collect().await?;
    for (index, digest) in stored {
        task.buffers[index].data = Data::Blob(digest);
    }
    Ok(())
}

/// Reads files into the task, because they are small or the client has no store.
pub(crate) fn read_in(task: &mut Task<'_>, files: Vec<(usize, ArrayFile)>) -> Result<(), SubmitError> {
    let job_id = task.job_id;
    let bytes = files.iter().map(|(_, file)| file.bytes()).fold(task.inline_bytes(), u64::saturating_add);
    if bytes > MESSAGE_BYTES_MAX as u64 {
        return Err(SubmitError::TooLarge { job_id, problem: TooLarge::task(task, bytes) });
    }
    for (index, file) in files {
        let buffer = &mut task.buffers[index];
        let read = file.read();
        let read = read.map_err(|source| SubmitError::File { job_id, buffer: buffer.name.clone(), source })?;
        buffer.data = Data::Inline(read);
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
    use std::io::Write as _;

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
        check_in(&mut checked, Vec::new(), &store).await.unwrap();
        let large = BlobDigest::of(&vec![2_u8; LARGE]);
        assert_eq!(checked.buffers[1].data, Data::Blob(large));
        assert_eq!(checked.large_outputs, LargeOutputs::Blob);
        assert_eq!(names(&folder), [large.file_name()]);
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
        check_in(&mut checked, Vec::new(), &store).await.unwrap();
        assert_eq!(checked.buffers[0].data, Data::Blob(BlobDigest::of(&[2, 1, 0, 0].repeat(LARGE / 4))));
        checked.buffers[0].data = Data::Inline(Inline::from(vec![Number::Signed(-1); LARGE / 4]));
        let error = check_in(&mut checked, Vec::new(), &store).await.unwrap_err().to_string();
        assert!(error.starts_with("buffers.x.data: "), "{error}");
    }

    #[tokio::test]
    async fn a_job_with_too_many_bytes_of_blobs_stores_none_of_them() {
        let (folder, store) = store().await;
        let kept = StoredArray::new(BlobDigest::of(b""), Dtype::U8, vec![1]).unwrap();
        let mut checked = task(Job::source("code").input("x", &vec![1_u8; LARGE]).input_stored("kept", &kept));
        checked.buffers[1].shape = vec![1 << 40];
        let error = check_in(&mut checked, Vec::new(), &store).await.unwrap_err();
        assert!(matches!(error, SubmitError::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("exceed 1099511627776 bytes"), "{error}");
        assert_eq!(names(&folder), [""; 0]);
    }

    #[tokio::test]
    async fn the_error_of_a_deleted_store_names_the_job_and_the_buffer() {
        let (folder, store) = store().await;
        folder.close().unwrap();
        let mut checked = task(Job::source("code").input_array("x", Array::from_slice(&vec![1_u8; LARGE])));
        let error = check_in(&mut checked, Vec::new(), &store).await.unwrap_err();
        let told = format!("failed to store buffer \"x\" of job {}: failed to store a blob", checked.job_id);
        assert!(error.to_string().starts_with(&told), "{error}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with("failed to store a blob in the blob store"), "{source}");
        assert_eq!(error.retry_after(), None);
    }

    fn file(bytes: &[u8]) -> ArrayFile {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"header").unwrap();
        file.write_all(bytes).unwrap();
        ArrayFile::new(file, 6, Dtype::U8, vec![bytes.len() as u64]).unwrap()
    }

    /// A job with a small and a large file between other inputs.
    fn of_files() -> (Task<'static>, Vec<(usize, ArrayFile)>) {
        let job = Job::source("code")
            .input("a", &[1_u8])
            .input_file("small", file(&[2; 10]))
            .input("b", &[3_u8])
            .input_file("large", file(&[4; LARGE]));
        let mut job = job.entry("k").cover([1]);
        let files = job.take_files();
        (job.build().unwrap().task, files)
    }

    #[tokio::test]
    async fn a_large_file_is_stored_and_a_small_one_is_sent() {
        let (folder, store) = store().await;
        let (mut checked, files) = of_files();
        check_in(&mut checked, files, &store).await.unwrap();
        let large = BlobDigest::of(&vec![4; LARGE]);
        assert_eq!(names(&folder), [large.file_name()]);
        let data: Vec<_> = checked.buffers.iter().map(|buffer| buffer.data.clone()).collect();
        let inline = |bytes: Vec<u8>| Data::Inline(Inline::from(bytes));
        assert_eq!(data, [inline(vec![1]), inline(vec![2; 10]), inline(vec![3]), Data::Blob(large)]);
    }

    #[test]
    fn without_a_store_files_are_sent_up_to_the_size_of_a_message() {
        let (mut task, files) = of_files();
        read_in(&mut task, files).unwrap();
        assert_eq!(task.buffers[3].data, Data::Inline(Inline::from(vec![4; LARGE])));
        let (mut task, _) = of_files();
        let sparse = tempfile::tempfile().unwrap();
        let huge = ArrayFile::new(sparse, 0, Dtype::U8, vec![1 << 40]).unwrap();
        let error = read_in(&mut task, vec![(3, huge)]).unwrap_err();
        assert!(matches!(error, SubmitError::TooLarge { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_has_become_shorter_is_an_error_with_its_buffer() {
        let (_folder, store) = store().await;
        for length in [10, LARGE] {
            let short = ArrayFile::new(tempfile::tempfile().unwrap(), 0, Dtype::U8, vec![length as u64]).unwrap();
            let mut job = Job::source("code").input_file("x", short).entry("k").cover([1]);
            let files = job.take_files();
            let error = check_in(&mut job.build().unwrap().task, files, &store).await.unwrap_err();
            assert!(error.to_string().contains("buffer \"x\""), "{error}");
        }
    }
}
