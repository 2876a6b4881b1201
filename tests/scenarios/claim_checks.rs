//! Arrays that are too large for a message are passed through a shared blob store in both directions, even if the store
//! fails for a while. (fault 42)

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gpufleet::{Array, Fleet, Job, StoredArray};
use gpufleet_ledger::JobDetail;
use gpufleet_schema::{AttemptState, Dtype, FailureCode, JobState, Verdict, bounds::BLOB_BYTES_MIN};
use gpufleet_tests::{Ground, Producer, TestWorker, WAIT, busy, kernels};
use tempfile::TempDir;

/// The number of floats in an array that is too large for a message.
const LARGE: u32 = 5 << 20;
/// The minimum number of floats in an array that goes through the store.
const ENOUGH: u32 = BLOB_BYTES_MIN as u32 / 4;

/// Creates a ground with a folder as its blob store.
async fn ground(label: &str) -> (Ground, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with_environment(label, &[("GPUFLEET_BLOBS", folder.path().to_str().unwrap())]).await;
    (ground, folder)
}

async fn client(ground: &Ground, folder: &TempDir) -> Producer {
    ground.client_with(Fleet::builder().blobs(folder.path())).await
}

async fn served(label: &str) -> (Ground, TempDir, TestWorker, Producer) {
    let (ground, folder) = ground(label).await;
    let (worker, fleet) = (ground.worker().await, client(&ground, &folder).await);
    (ground, folder, worker, fleet)
}

fn floats(count: u32) -> Vec<f32> {
    (0..count).map(|index| index as f32).collect()
}

fn assert_doubled(y: &[f32], count: u32) {
    assert_eq!(y.len(), count as usize);
    assert!(y.iter().zip(floats(count)).all(|(y, x)| *y == 2.0 * x));
}

fn blobs(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Returns the file of the only blob in a store.
fn only_blob(folder: &TempDir) -> PathBuf {
    let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.pop().unwrap()
}

fn states(detail: &JobDetail) -> Vec<AttemptState> {
    detail.attempts.iter().map(|attempt| attempt.state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_larger_than_a_message_travels_by_claim_check_both_ways() {
    let (ground, folder, _worker, fleet) = served("claim-check").await;
    let mut handle = fleet.submit(kernels::doubles(&floats(LARGE))).await.unwrap();
    let result = handle.wait(WAIT).await.unwrap();
    assert_doubled(&result.output("y").unwrap(), LARGE);
    assert_eq!(blobs(folder.path()), 2, "one input and one output");
    assert!(result.timings.fetch_us > 0);
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.input_bytes, Some(u64::from(LARGE) * 4));
    let attempt = detail.attempts.last().unwrap();
    assert_eq!(attempt.output_bytes, Some(u64::from(LARGE) * 4));
    assert_eq!(attempt.timings.as_ref().unwrap().fetch_us, result.timings.fetch_us);
    // Equal arrays take no more space the second time. Small arrays are sent in the message.
    let again = fleet.submit(kernels::doubles(&floats(LARGE))).await.unwrap().wait(WAIT).await.unwrap();
    assert_doubled(&again.output("y").unwrap(), LARGE);
    let small = fleet.submit(kernels::doubles(&floats(ENOUGH - 1))).await.unwrap().wait(WAIT).await.unwrap();
    assert_doubled(&small.output("y").unwrap(), ENOUGH - 1);
    assert_eq!(blobs(folder.path()), 2);
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_of_a_list_returns_its_own_large_output() {
    const JOBS: usize = 24;
    let (ground, folder, _worker, fleet) = served("claim-check-list").await;
    let weights = fleet.store(Array::from_slice(&floats(ENOUGH))).await.unwrap();
    let job = |index: usize| {
        Job::catalog("saxpy")
            .scalar("a", index as f32)
            .input_stored("x", &weights)
            .input_stored("y", &weights)
            .output("y")
    };
    for (index, handle) in fleet.submit_many((0..JOBS).map(job)).await.into_iter().enumerate() {
        let y: Vec<f32> = handle.unwrap().wait(WAIT).await.unwrap().output("y").unwrap();
        let scale = index as f32 + 1.0;
        assert!(y.iter().zip(floats(ENOUGH)).all(|(y, x)| (y - scale * x).abs() <= x * 1e-3), "job {index}");
    }
    assert_eq!(blobs(folder.path()), JOBS, "one input for all jobs, and one output for each but the first");
    ground.check_history(JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_missing_blob_is_retried_and_runs_once_the_blob_is_there() {
    let (ground, folder, worker, fleet) = served("late-blob").await;
    // The worker must not take the job before the blob is deleted.
    worker.process().pause();
    let mut handle = fleet.submit(kernels::doubles(&floats(ENOUGH))).await.unwrap();
    let blob = only_blob(&folder);
    let elsewhere = folder.path().with_extension("away");
    fs::rename(&blob, &elsewhere).unwrap();
    worker.process().resume();
    ground.poll_attempts("one lost attempt", handle.id(), |detail| states(detail).contains(&AttemptState::Lost)).await;
    fs::rename(&elsewhere, &blob).unwrap();
    assert_doubled(&handle.wait(WAIT).await.unwrap().output("y").unwrap(), ENOUGH);
    let detail = ground.final_job(handle.id()).await;
    let lost = &detail.attempts[0];
    let failure = lost.failure.as_ref().unwrap();
    assert_eq!((&*failure.verdict, &*failure.code), ("infrastructure", "blob_missing"));
    assert!(failure.message.contains("blake3:") && lost.retry_at.is_some(), "{lost:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_blob_stays_missing_is_dead_lettered_and_can_be_replayed() {
    let (ground, folder, _worker, fleet) = served("lost-blob").await;
    let array = Array::from_slice(&floats(ENOUGH));
    let stored = fleet.store(array.clone()).await.unwrap();
    // Another process overwrites the blob.
    fs::write(only_blob(&folder), vec![1; BLOB_BYTES_MIN as usize]).unwrap();
    let job = Job::catalog("saxpy").scalar("a", 1.0).input_stored("x", &stored).input_stored("y", &stored);
    let mut handle = fleet.submit(job).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.code, FailureCode::BlobMissing);
    assert!(failure.message.contains("does not match the digest"), "{}", failure.message);
    let home = tempfile::tempdir().unwrap();
    let shown = ground.gpufleet(home.path(), &["dead", "show", &handle.id().to_string()]).await;
    assert!(shown.stdout.contains("gave up after several attempts"), "{}{}", shown.stdout, shown.stderr);

    fleet.store(array).await.unwrap();
    let again = ground.gpufleet(home.path(), &["retry", &handle.id().to_string()]).await.ok();
    let new = again.stdout.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(ground.final_job(new).await.job.state, JobState::Succeeded);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_that_does_not_fit_its_blob_fails_the_job_at_once() {
    let (ground, _folder, _worker, fleet) = served("other-length").await;
    let stored = fleet.store(Array::from_slice(&floats(ENOUGH))).await.unwrap();
    let larger = StoredArray::new(stored.digest(), Dtype::F32, vec![u64::from(ENOUGH) + 1]).unwrap();
    let job = Job::catalog("saxpy").scalar("a", 1.0).input_stored("x", &larger).input_stored("y", &larger);
    let mut handle = fleet.submit(job).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::InvalidTask));
    assert!(failure.message.contains("the blob has 1048576 bytes, expected 1048580"), "{}", failure.message);
    assert_eq!(states(&ground.final_job(handle.id()).await), [AttemptState::Failed]);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_store_forwards_jobs_with_blobs_and_they_fail_if_no_worker_has_one() {
    const JOBS: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::shared("no-store").await;
    let fleet = client(&ground, &folder).await;
    let _without = ground.worker().await;
    let mut handle = fleet.submit(kernels::doubles(&floats(ENOUGH))).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::BlobUnavailable));
    assert!(failure.message.contains("no worker of the pool has both a blob store"), "{}", failure.message);

    let with = ground.worker_with(&["--blobs", folder.path().to_str().unwrap()]).await;
    for handle in fleet.submit_many((0..JOBS).map(|_| kernels::doubles(&floats(ENOUGH)))).await {
        let mut handle = handle.unwrap();
        let result = handle.wait(WAIT).await.unwrap();
        assert_doubled(&result.output("y").unwrap(), ENOUGH);
        assert_eq!(result.ran_on.unwrap().worker.as_str(), with.name());
        assert_eq!(
            states(&ground.final_job(handle.id()).await),
            [AttemptState::Succeeded],
            "forwarding costs no attempt"
        );
    }
    ground.check_history(JOBS + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_missing_blob_keeps_its_queue_limit() {
    let (ground, folder, _worker, fleet) = served("late-blob-limit").await;
    let stored = fleet.store(Array::from_slice(&floats(ENOUGH))).await.unwrap();
    fs::remove_file(only_blob(&folder)).unwrap();
    let job = Job::catalog("saxpy").scalar("a", 1.0).input_stored("x", &stored).input_stored("y", &stored);
    let mut handle = fleet.submit(job.queue_limit(Duration::from_secs(3))).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, FailureCode::QueueLimit);
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.state, JobState::Expired);
    assert!(detail.attempts.iter().all(|attempt| attempt.started_at.is_none()), "{detail:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_can_not_be_stored_is_computed_again_later() {
    let (ground, folder, _worker, fleet) = served("store-away").await;
    let elsewhere = folder.path().with_extension("away");
    fs::rename(folder.path(), &elsewhere).unwrap();
    let job = busy::for_millis(1).zeros("large", Dtype::U8, [BLOB_BYTES_MIN]).output("large");
    let mut handle = fleet.submit(job).await.unwrap();
    ground.poll_attempts("not stored", handle.id(), |detail| states(detail).contains(&AttemptState::Lost)).await;
    fs::rename(&elsewhere, folder.path()).unwrap();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.array("large").unwrap().bytes(), vec![0; BLOB_BYTES_MIN as usize]);
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.attempts[0].failure.as_ref().unwrap().code, "blob_unavailable");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_its_blob_can_be_cancelled() {
    let (ground, folder, _worker, fleet) = served("cancelled-blob").await;
    let stored = fleet.store(Array::from_slice(&floats(ENOUGH))).await.unwrap();
    fs::remove_file(only_blob(&folder)).unwrap();
    let job = Job::catalog("saxpy").scalar("a", 1.0).input_stored("x", &stored).input_stored("y", &stored);
    let mut handle = fleet.submit(job).await.unwrap();
    ground.poll_attempts("one lost attempt", handle.id(), |detail| states(detail).contains(&AttemptState::Lost)).await;
    let home = tempfile::tempdir().unwrap();
    ground.gpufleet(home.path(), &["cancel", &handle.id().to_string()]).await.ok();
    let error = handle.wait(WAIT).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, FailureCode::Cancelled);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_missing_store_says_so_and_does_not_start() {
    let ground = Ground::shared("no-such-store").await;
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let worker = ground.start_worker(&["--blobs", missing.to_str().unwrap()]);
    assert_eq!(worker.ended().await, Some(2));
    let log = fs::read_to_string(worker.process().log()).unwrap();
    assert!(log.contains(missing.to_str().unwrap()) && log.contains("check the store given with --blobs"), "{log}");
}

/// Writes a NumPy file of zeros.
fn write_npy(path: &Path, count: u32) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let padded = (bytes.len() + 2 + header.len() + 1).next_multiple_of(64) - bytes.len() - 2;
    bytes.extend((padded as u16).to_le_bytes());
    bytes.extend(format!("{header:width$}\n", width = padded - 1).into_bytes());
    bytes.resize(bytes.len() + count as usize * 4, 0);
    fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_store_is_refused_with_advice_and_one_with_a_store_succeeds() {
    let (ground, folder) = ground("claim-check-command").await;
    let _worker = ground.worker().await;
    let home = tempfile::tempdir().unwrap();
    write_npy(&home.path().join("x.npy"), LARGE);
    let submit = ["submit", "saxpy", "--arg", "a=2.0", "--in", "x=x.npy", "--inout", "y=x.npy", "--out", "y=y.npy"];
    let refused = ground.gpufleet(home.path(), &submit).await;
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    for part in ["16.0 MiB", "claim check", "--blobs STORE", "GPUFLEET_BLOBS"] {
        assert!(refused.stderr.contains(part), "{part:?} is missing: {}", refused.stderr);
    }
    let store = folder.path().to_str().unwrap();
    ground.gpufleet(home.path(), &[&submit[..], &["--blobs", store]].concat()).await.ok();
    let (x, y) = (fs::read(home.path().join("x.npy")).unwrap(), fs::read(home.path().join("y.npy")).unwrap());
    assert_eq!(x.len(), y.len());
    assert_eq!(blobs(folder.path()), 1, "x, y and the result are the same zeros");
    ground.check_history(1).await;
}
