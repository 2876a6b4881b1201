//! Tests of jobs whose outputs go from the device to a blob store, because they are too large to be staged.

use std::{fs, os::unix::fs::FileExt as _, path::Path, time::Duration};

use gpufleet_blobs::{BlobLocation, BlobStore};
use gpufleet_schema::{
    Arg, BlobDigest, Buffer, Data, Dtype, Failure, FailureCode, LargeOutputs, OutputData, Task, Verdict,
};
use gpufleet_worker::{
    executor::{Executor, ExecutorJob, FinishedOutput, LostCause, RunError},
    ipc::slab::CHUNK_BYTES_MAX,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use crate::{
    blobs::{run_with, store, words},
    harness::{add_one, buffer, fail, job, launch, poll_until, ptx_task, start, succeed, u32_arg, u32s, zeros},
};

/// Size of a large output, in bytes: so large that the store takes some time to write it.
const LARGE_BYTES: u64 = 384 << 20;

/// Returns a task with two outputs: `bytes` bytes, which are zeros and end in ten words, and the words themselves.
fn ends_in_words(bytes: u64) -> Task<'static> {
    let mut task = ptx_task(include_str!("memory.ptx"));
    let given = Buffer { data: Data::Inline(words(10).into()), ..zeros("words", Dtype::U32, 10) };
    task.buffers = vec![zeros("large", Dtype::U8, bytes), given];
    let to = Arg::BufferAt { name: "large".to_owned(), offset: bytes - 40 };
    task.launches = vec![launch("copies", 1, vec![to, buffer("words"), u32_arg(10)])];
    task.outputs = vec!["large".to_owned(), "words".to_owned()];
    task.large_outputs = LargeOutputs::Blob;
    task
}

/// Returns the blob of a stored output, and its length in bytes.
fn stored(output: &FinishedOutput) -> (BlobDigest, u64) {
    match output {
        FinishedOutput::Stored(output, bytes) => match output.data {
            OutputData::Blob(digest) => (digest, *bytes),
            OutputData::Inline(_) => panic!("it has bytes"),
        },
        FinishedOutput::Staged(output) => panic!("it is staged: {output:?}"),
    }
}

/// Runs a job, and calls `disturb` once the store has begun to write its output.
async fn disturbed(
    executor: &Executor,
    store: &BlobStore,
    folder: &Path,
    cancel: &CancellationToken,
    disturb: impl FnOnce(),
) -> Result<Result<Vec<FinishedOutput>, Failure>, RunError> {
    let task = ends_in_words(LARGE_BYTES);
    let job = ExecutorJob { blobs: Some(store), cancel, ..job(&task) };
    let disturbing = async {
        poll_until("the store writes", || has_parts(folder)).await;
        disturb();
    };
    let (ended, ()) = tokio::join!(executor.run(job), disturbing);
    ended.map(|finished| finished.outcome)
}

fn has_parts(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut files| {
        files.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with(".part-")))
    })
}

fn signal(executor: &Executor, signal: Signal) {
    let pid = Pid::from_raw(executor.pid().cast_signed()).expect("a process has a number");
    kill_process(pid, signal).expect("the executor is our child");
}

async fn works_on(executor: &Executor) {
    assert_eq!(u32s(&succeed(executor, &add_one(10, 1)).await[0]), [1; 10]);
}

#[tokio::test]
async fn an_output_passes_through_little_host_memory_whatever_its_length() {
    const HUGE_BYTES: u64 = (5 << 28) + 4;
    const { assert!(HUGE_BYTES > CHUNK_BYTES_MAX, "no job has as much staging memory") };
    let (executor, (_folder, store)) = (start().await, store().await);
    let finished = run_with(&executor, &store, &ends_in_words(HUGE_BYTES)).await;
    let storing = finished.storing;
    let outputs = finished.outcome.unwrap();
    let (digest, bytes) = stored(&outputs[0]);
    assert_eq!((bytes, u32s(&outputs[1])), (HUGE_BYTES, (0..10).collect()));
    let copy = store.read_to(digest, HUGE_BYTES, tempfile::tempfile().unwrap()).await.unwrap();
    let mut end = [0; 40];
    copy.read_exact_at(&mut end, HUGE_BYTES - 40).unwrap();
    assert_eq!(end, *words(10));
    assert!(storing > Duration::ZERO);
    works_on(&executor).await;
}

#[tokio::test]
async fn outputs_leave_side_by_side_and_keep_their_order() {
    const BYTES: u64 = 13 << 20;
    let (executor, (_folder, folder)) = (start().await, store().await);
    let mut task = ends_in_words(BYTES);
    for number in 0..6_u32 {
        let name = format!("filled-{number}");
        let data = Data::Fill(number.into());
        task.buffers.push(Buffer { data, ..zeros(&name, Dtype::U32, BYTES / 4) });
        task.outputs.insert(0, name);
    }
    // Objects are read in larger pieces than files.
    for store in [folder, BlobStore::open(BlobLocation::memory()).await.unwrap()] {
        let outputs = run_with(&executor, &store, &task).await.outcome.unwrap();
        for (output, number) in outputs.iter().zip((0..6_u32).rev()) {
            let (digest, bytes) = stored(output);
            assert_eq!((digest, bytes), (BlobDigest::of(&number.to_le_bytes().repeat(BYTES as usize / 4)), BYTES));
            store.check(digest, bytes).await.unwrap();
        }
        assert_eq!((stored(&outputs[6]).1, u32s(&outputs[7])), (BYTES, (0..10).collect()));
    }
}

#[tokio::test]
async fn an_output_may_be_the_input_of_the_next_job() {
    const WORDS: u64 = 17 << 20;
    let (executor, (_folder, store)) = (start().await, store().await);
    let mut task = add_one(WORDS as u32, 1);
    task.large_outputs = LargeOutputs::Blob;
    for count in 1..=2_u32 {
        let outputs = run_with(&executor, &store, &task).await.outcome.unwrap();
        let (digest, _) = stored(&outputs[0]);
        assert_eq!(digest, BlobDigest::of(&count.to_le_bytes().repeat(WORDS as usize)));
        task.buffers[0].data = Data::Blob(digest);
    }
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_its_output_leaves_is_released_and_leaves_nothing() {
    let (executor, (folder, store)) = (start().await, store().await);
    let cancel = CancellationToken::new();
    let ended = disturbed(&executor, &store, folder.path(), &cancel, || cancel.cancel()).await;
    assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
    works_on(&executor).await;
    poll_until("the part is removed", || !has_parts(folder.path())).await;
    assert_eq!(store.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_store_that_fails_while_an_output_leaves_is_no_fault_of_the_job() {
    let (executor, (folder, store)) = (start().await, store().await);
    let remove = || fs::remove_dir_all(folder.path()).unwrap();
    let failure = disturbed(&executor, &store, folder.path(), &CancellationToken::new(), remove).await;
    let failure = failure.unwrap().unwrap_err();
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::BlobUnavailable));
    works_on(&executor).await;
    fs::create_dir(folder.path()).unwrap();
    run_with(&executor, &store, &ends_in_words(LARGE_BYTES)).await.outcome.unwrap();
    let failure = fail(&executor, &ends_in_words(LARGE_BYTES)).await;
    assert_eq!(failure.code, FailureCode::BlobUnavailable, "a job without a store");
}

#[tokio::test]
async fn an_executor_that_dies_while_an_output_leaves_costs_the_job_nothing() {
    let (executor, (folder, store)) = (start().await, store().await);
    let die = || signal(&executor, Signal::KILL);
    let ended = disturbed(&executor, &store, folder.path(), &CancellationToken::new(), die).await;
    match ended {
        Err(RunError::Lost { cause, was_running, .. }) => {
            assert!(cause == LostCause::Neighbour || !was_running, "{cause:?}");
        }
        other => panic!("{other:?}"),
    }
    poll_until("the part is removed", || !has_parts(folder.path())).await;
    assert_eq!(store.list().await.unwrap(), []);
}

#[tokio::test]
async fn the_time_in_which_an_output_leaves_does_not_count() {
    const TIME_LIMIT: Duration = Duration::from_secs(3);
    let (executor, (folder, store)) = (start().await, store().await);
    let task = ends_in_words(LARGE_BYTES);
    let job = ExecutorJob { blobs: Some(&store), time_limit: TIME_LIMIT, ..job(&task) };
    let pause = async {
        poll_until("the store writes", || has_parts(folder.path())).await;
        signal(&executor, Signal::STOP);
        tokio::time::sleep(TIME_LIMIT + Duration::from_secs(1)).await;
        signal(&executor, Signal::CONT);
    };
    let (ended, ()) = tokio::join!(executor.run(job), pause);
    let finished = ended.unwrap();
    finished.outcome.unwrap();
    assert!(finished.storing > TIME_LIMIT);
    assert!(Duration::from_micros(finished.timings.total_us) < TIME_LIMIT);
}
