//! Jobs with inputs in a blob store.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::Path,
};

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{Arg, BlobDigest, BlobHasher, Buffer, Data, Dtype, FailureCode, Task, Verdict};
use gpufleet_worker::{
    executor::{Executor, ExecutorJob, ExecutorOptions, Finished, InputUse},
    ipc::slab::CHUNK_BYTES_MAX,
};

use crate::harness::{add_one, buffer, fail, job, launch, options, ptx_task, start, u32_arg, u32s, zeros};

pub(crate) async fn store() -> (tempfile::TempDir, BlobStore) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let store = BlobStore::open(folder.path()).await.expect("the folder is there");
    (folder, store)
}

pub(crate) fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(u32::to_le_bytes).collect()
}

/// Returns a task that adds one to each of ten words in a blob store.
fn add_one_to(digest: BlobDigest) -> Task<'static> {
    let mut task = add_one(10, 1);
    task.buffers[0].data = Data::Blob(digest);
    task
}

pub(crate) async fn run_with(executor: &Executor, store: &BlobStore, task: &Task<'_>) -> Finished {
    let job = ExecutorJob { blobs: Some(store), ..job(task) };
    executor.run(job).await.expect("the executor lives")
}

#[tokio::test]
async fn a_blob_is_an_input_like_any_other_and_the_time_of_fetching_it_is_told() {
    let (executor, (_folder, store)) = (start().await, store().await);
    let task = add_one_to(store.put(words(10)).await.unwrap());
    let finished = run_with(&executor, &store, &task).await;
    assert_eq!(u32s(&finished.outcome.unwrap()[0]), (1..=10).collect::<Vec<_>>());
    assert!(finished.timings.fetch_us > 0);
    let finished = run_with(&executor, &store, &add_one(10, 1)).await;
    assert_eq!(finished.timings.fetch_us, 0);
    assert_eq!(u32s(&finished.outcome.unwrap()[0]), [1; 10]);
}

#[tokio::test]
async fn what_the_store_does_not_give_is_told_and_the_executor_works_on() {
    let (executor, (folder, store)) = (start().await, store().await);
    let digest = store.put(words(10)).await.unwrap();
    let task = add_one_to(digest);
    let path = folder.path().join(digest.file_name());

    let longer = add_one_to(store.put(words(11)).await.unwrap());
    let failure = run_with(&executor, &store, &longer).await.outcome.unwrap_err();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::InvalidTask));
    assert!(failure.message.contains("the blob has 44 bytes, expected 40"), "{}", failure.message);

    fs::write(&path, [0; 40]).unwrap();
    let failure = run_with(&executor, &store, &task).await.outcome.unwrap_err();
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::BlobMissing));
    assert!(failure.message.contains("does not match the digest"), "{}", failure.message);

    fs::remove_file(&path).unwrap();
    let failure = run_with(&executor, &store, &task).await.outcome.unwrap_err();
    assert_eq!(failure.code, FailureCode::BlobMissing);
    assert!(failure.message.contains(&digest.to_string()), "{}", failure.message);

    let failure = fail(&executor, &task).await;
    assert!(failure.message.contains("this worker has no blob store"), "{}", failure.message);

    store.put(words(10)).await.unwrap();
    assert_eq!(u32s(&run_with(&executor, &store, &task).await.outcome.unwrap()[0])[9], 10);
}

#[tokio::test]
async fn an_input_stays_on_the_device_and_no_job_changes_it_for_the_next() {
    let (executor, (folder, store)) = (start().await, store().await);
    let digest = store.put(words(10)).await.unwrap();
    let first = run_with(&executor, &store, &add_one_to(digest)).await;
    assert_eq!(first.inputs, InputUse { resident: 0, brought: 1 });
    fs::remove_dir_all(folder.path()).unwrap();
    for _ in 0..3 {
        let next = run_with(&executor, &store, &add_one_to(digest)).await;
        assert_eq!((next.inputs, next.timings.fetch_us), (InputUse { resident: 1, brought: 0 }, 0));
        assert_eq!(u32s(&next.outcome.unwrap()[0]), (1..=10).collect::<Vec<_>>());
    }
    fs::create_dir(folder.path()).unwrap();
}

#[tokio::test]
async fn one_input_in_two_buffers_of_a_job_is_kept_once() {
    let (executor, (_folder, store)) = (start().await, store().await);
    run_with(&executor, &store, &add_one(10, 1)).await;
    let module_and_buffer = executor.memory().cached;
    let mut task = add_one_to(store.put(words(10)).await.unwrap());
    task.buffers.push(Buffer { data: task.buffers[0].data.clone(), ..zeros("same", Dtype::U32, 10) });
    task.outputs.push("same".to_owned());
    for inputs in [InputUse { resident: 1, brought: 1 }, InputUse { resident: 2, brought: 0 }] {
        let finished = run_with(&executor, &store, &task).await;
        assert_eq!(finished.inputs, inputs);
        let outputs = finished.outcome.unwrap();
        assert_eq!((u32s(&outputs[0])[9], u32s(&outputs[1])[9]), (10, 9));
        drop(outputs);
    }
    assert_eq!(executor.memory().cached, module_and_buffer + 2 * 40, "another buffer, and the input once");
}

#[tokio::test]
async fn a_job_finds_its_input_again_however_often_memory_is_given_back() {
    let (executor, (_folder, store)) = (start().await, store().await);
    let task = add_one_to(store.put(words(10)).await.unwrap());
    let mut brought = 0;
    for _ in 0..100 {
        let finished = run_with(&executor, &store, &task).await;
        assert_eq!(u32s(&finished.outcome.unwrap()[0]), (1..=10).collect::<Vec<_>>());
        brought += finished.inputs.brought;
        // The next job may be sent before the executor has reported the eviction.
        executor.give_back();
    }
    assert!(brought > 1, "memory was given back");
}

#[tokio::test]
async fn the_memory_of_a_job_comes_before_that_of_its_resident_input() {
    // There is room for the job with its input in a buffer, but not for the input twice.
    let limited = ExecutorOptions { memory_bytes_max: Some(3 * 40), ..options() };
    let executor = Executor::start(limited).await.unwrap().0;
    let (_folder, store) = store().await;
    let mut task = add_one_to(store.put(words(10)).await.unwrap());
    run_with(&executor, &store, &task).await.outcome.unwrap();
    task.buffers.push(zeros("more", Dtype::U8, 80));
    for _ in 0..2 {
        let finished = run_with(&executor, &store, &task).await;
        assert_eq!(u32s(&finished.outcome.unwrap()[0])[9], 10);
    }
}

#[tokio::test]
async fn an_input_passes_through_little_host_memory_whatever_its_length() {
    const HUGE_BYTES: u64 = (5 << 28) + 4;
    const { assert!(HUGE_BYTES > CHUNK_BYTES_MAX, "no job has as much staging memory") };
    let options = ExecutorOptions { resident_bytes_max: 0, ..options() };
    let executor = Executor::start(options).await.unwrap().0;
    let (folder, store) = store().await;
    let digest = sparse_blob(folder.path(), HUGE_BYTES - 40, &words(10));
    let mut task = ptx_task(include_str!("memory.ptx"));
    task.buffers =
        vec![Buffer { data: Data::Blob(digest), ..zeros("huge", Dtype::U8, HUGE_BYTES) }, zeros("end", Dtype::U32, 10)];
    let from = Arg::BufferAt { name: "huge".to_owned(), offset: HUGE_BYTES - 40 };
    task.launches = vec![launch("copies", 1, vec![buffer("end"), from, u32_arg(10)])];
    task.outputs = vec!["end".to_owned()];
    let finished = run_with(&executor, &store, &task).await;
    assert_eq!(u32s(&finished.outcome.unwrap()[0]), (0..10).collect::<Vec<_>>());
}

/// Creates a blob of zeros that ends in `end`. It takes no space on the disk.
fn sparse_blob(folder: &Path, zeros: u64, end: &[u8]) -> BlobDigest {
    let path = folder.join("blob");
    File::create(&path).and_then(|file| file.write_all_at(end, zeros)).expect("the folder takes a file");
    let mut hasher = BlobHasher::new();
    let mut piece = vec![0; 1 << 20];
    let mut file = File::open(&path).expect("it was just written");
    loop {
        match file.read(&mut piece).expect("it was just written") {
            0 => break,
            length => hasher.update(&piece[..length]),
        }
    }
    let digest = hasher.finish();
    fs::rename(path, folder.join(digest.file_name())).expect("the folder takes a name");
    digest
}
