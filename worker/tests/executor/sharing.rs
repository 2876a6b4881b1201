//! Tests of jobs whose kernels use a resident input in place.

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{Arg, BlobDigest, Block, Buffer, Data, Dtype, Failure, FailureCode, Launch, Task, Verdict};
use gpufleet_worker::executor::{Executor, ExecutorOptions, InputUse};

use crate::{
    blobs::{run_with, store, words},
    harness::{buffer, launch, options, ptx_task, staged, start, u32_arg, zeros},
};

const PTX: &str = include_str!("sharing.ptx");

/// Starts an executor whose device can't protect memory, like a GPU.
async fn start_unprotected() -> Executor {
    let mut options = options();
    options.environment.push(("GPUFLEET_EMULATOR_PROTECTION".to_owned(), "off".to_owned()));
    Executor::start(options).await.expect("the emulator is built beside the worker").0
}

fn input(name: &str, digest: BlobDigest, bytes: u64) -> Buffer<'static> {
    Buffer { share: true, ..Buffer::new(name, Dtype::U8, vec![bytes], Data::Blob(digest)) }
}

fn one_thread(entry: &str, args: Vec<Arg>) -> Launch {
    Launch { block: Block::Threads(vec![1]), ..launch(entry, 1, args) }
}

/// Returns a task that reports the address and the first word of an input of ten words.
fn tells(digest: BlobDigest, share: bool) -> Task<'static> {
    let mut task = ptx_task(PTX);
    task.buffers = vec![zeros("told", Dtype::U64, 2), Buffer { share, ..input("input", digest, 40) }];
    task.launches = vec![one_thread("tells", vec![buffer("told"), buffer("input")])];
    task.outputs = vec!["told".to_owned()];
    task
}

/// Returns a task that changes a byte of an input which it declares to only read.
fn flips(digest: BlobDigest, bytes: u64, at: u32) -> Task<'static> {
    let mut task = ptx_task(PTX);
    task.buffers = vec![input("input", digest, bytes)];
    task.launches = vec![one_thread("flips", vec![buffer("input"), u32_arg(at)])];
    task
}

/// Runs such a task, and returns the address and the first word of the input.
async fn told(executor: &Executor, store: &BlobStore, task: &Task<'_>) -> (u64, u64) {
    let outputs = run_with(executor, store, task).await.outcome.expect("the job only reads");
    let bytes = &staged(&outputs[0]).bytes;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (word(0), word(8))
}

async fn blame(executor: &Executor, store: &BlobStore, task: &Task<'_>) -> Failure {
    let failure = run_with(executor, store, task).await.outcome.expect_err("the job writes");
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::KernelFault), "{}", failure.message);
    executor.lost().await;
    failure
}

#[tokio::test]
async fn jobs_that_only_read_an_input_use_one_copy_of_it() {
    for executor in [start().await, start_unprotected().await] {
        let (_folder, store) = store().await;
        let digest = store.put(words(10)).await.unwrap();
        let (home, _) = told(&executor, &store, &tells(digest, true)).await;
        let cached = executor.memory().cached;
        for _ in 0..3 {
            assert_eq!(told(&executor, &store, &tells(digest, true)).await, (home, 0));
        }
        assert_eq!(executor.memory().cached, cached, "no job needs a buffer for the input");
        let (copy, _) = told(&executor, &store, &tells(digest, false)).await;
        assert_ne!(copy, home);
        assert_eq!(executor.memory().cached, cached + 40, "a job that may write needs one");
    }
}

#[tokio::test]
async fn a_job_copies_an_input_that_it_shares_in_one_buffer_and_not_in_another() {
    let (executor, (_folder, store)) = (start().await, store().await);
    let digest = store.put(words(10)).await.unwrap();
    let (home, _) = told(&executor, &store, &tells(digest, true)).await;
    let mut task = tells(digest, true);
    task.buffers.push(Buffer { share: false, ..input("mine", digest, 40) });
    let finished = run_with(&executor, &store, &task).await;
    assert_eq!(finished.inputs, InputUse { resident: 2, brought: 0 });
    let (copy, _) = told(&executor, &store, &task).await;
    assert_ne!(copy, home);
}

#[tokio::test]
async fn an_input_without_room_to_stay_goes_to_a_buffer_of_the_job() {
    let options = ExecutorOptions { resident_bytes_max: 0, ..options() };
    let executor = Executor::start(options).await.unwrap().0;
    let (_folder, store) = store().await;
    let digest = store.put(words(10)).await.unwrap();
    for _ in 0..2 {
        let finished = run_with(&executor, &store, &tells(digest, true)).await;
        assert_eq!(finished.inputs, InputUse { resident: 0, brought: 1 });
        finished.outcome.unwrap();
    }
    // The job changes only its own copy, so no fault is detected.
    run_with(&executor, &store, &flips(digest, 40, 0)).await.outcome.unwrap();
    assert_eq!(told(&executor, &store, &tells(digest, true)).await.1, 0);
}

#[tokio::test]
async fn a_kernel_that_writes_to_a_shared_input_is_stopped_with_its_line() {
    let (executor, (_folder, store)) = (start().await, store().await);
    let digest = store.put(words(10)).await.unwrap();
    told(&executor, &store, &tells(digest, true)).await;
    let failure = blame(&executor, &store, &flips(digest, 40, 39)).await;
    let report = failure.detail.unwrap();
    let line = 1 + PTX.lines().position(|line| line.contains("st.global.u8")).unwrap();
    assert!(report.contains("kernel `flips`") && report.contains(&format!("PTX line {line}")), "{report}");
    assert!(
        report.contains("39 bytes into the 40-byte allocation") && report.contains("which is read-only"),
        "{report}"
    );
    assert_eq!(told(&start().await, &store, &tells(digest, true)).await.1, 0);
}

#[tokio::test]
async fn a_write_to_a_shared_input_is_noticed_where_the_device_can_not_stop_it() {
    const LENGTHS: [u32; 6] = [1, 7, 8, 9, 40, 5003];
    let (_folder, store) = store().await;
    for bytes in LENGTHS {
        let digest = store.put(vec![7; bytes as usize]).await.unwrap();
        for at in [0, bytes - 1] {
            let executor = start_unprotected().await;
            let failure = blame(&executor, &store, &flips(digest, bytes.into(), at)).await;
            assert!(failure.message.contains("wrote to an input that its job shares"), "{}", failure.message);
        }
    }
}
