//! Unused blobs are deleted while jobs come and go, and no job loses a blob that it needs.

use std::{
    fs::{self, File},
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use gpufleet::{Array, Fleet, Job};
use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{Ledger, prune_blobs};
use gpufleet_local::programs;
use gpufleet_schema::{BlobDigest, Dtype, bounds::BLOB_BYTES_MIN};
use gpufleet_tests::{Ground, WAIT, poll_until};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// The minimum age of deleted blobs. It is far less than the two days of real pruning, and more than an event takes.
const AGE: Duration = Duration::from_secs(15);
/// The minimum number of floats in an array that goes through the store.
const COUNT: u64 = BLOB_BYTES_MIN / 4;

async fn ground(label: &str) -> (Ground, TempDir, BlobStore) {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with_environment(label, &[("GPUFLEET_BLOBS", folder.path().to_str().unwrap())]).await;
    let store = BlobStore::open(folder.path()).await.unwrap();
    (ground, folder, store)
}

/// Returns a job that computes y = 2x for an array of its own.
fn job(number: u32) -> Job {
    let x = vec![number as f32; COUNT as usize];
    Job::catalog("saxpy").scalar("a", 2.0).input("x", &x).zeros("y", Dtype::F32, [COUNT]).keep(WAIT * 60)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_loses_a_blob_to_a_pruning_loop() {
    let (ground, folder, store) = ground("pruning").await;
    let worker = ground.worker().await;
    let fleet = ground.client_with(Fleet::builder().blobs(folder.path())).await;
    let unused = fleet.store(Array::from_slice(&[0.0_f32])).await.unwrap().digest();
    let stop = CancellationToken::new();
    let looping = tokio::spawn({
        let ledger = Ledger::connect(ground.endpoints().database_url.parse().unwrap()).await.unwrap();
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let mut rounds = 0_u32;
            while !stop.is_cancelled() {
                // The recorder notes its progress a second after its start.
                rounds += u32::from(prune_blobs(&ledger, &store, AGE).await.is_ok());
                tokio::task::yield_now().await;
            }
            rounds
        }
    });
    // These jobs wait in the queue for longer than an unused blob is kept.
    worker.process().pause();
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(fleet.submit(job(number)).await.unwrap());
    }
    let has = |digest: BlobDigest| folder.path().join(digest.file_name()).exists();
    poll_until("the unused blob is gone", async || !has(unused)).await;
    let since = Instant::now();
    poll_until("the inputs are old", async || since.elapsed() > AGE).await;
    worker.process().resume();
    for (number, mut handle) in (0_u8..).zip(waiting) {
        let y: Vec<f32> = handle.wait(WAIT).await.unwrap().output("y").unwrap();
        assert!(y.iter().all(|y| *y == 2.0 * f32::from(number)));
    }
    // The arrays are stored again, which makes the blobs young.
    for number in 0..4 {
        fleet.submit(job(number)).await.unwrap().wait(WAIT).await.unwrap();
    }
    stop.cancel();
    assert!(looping.await.unwrap() > 1);
    ground.check_history(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorder_and_the_command_delete_what_no_job_uses() {
    let (ground, folder, store) = ground("pruning-service").await;
    let _worker = ground.worker().await;
    let put_old = async |bytes: &[u8]| {
        let digest = store.put(bytes.to_vec()).await.unwrap();
        let file = folder.path().join(digest.file_name());
        File::open(&file).unwrap().set_modified(SystemTime::now() - Duration::from_secs(72 * 3600)).unwrap();
        file
    };
    let (blobs, url) = (folder.path().to_str().unwrap(), &ground.endpoints().database_url);
    let fleet = ground.client_with(Fleet::builder().blobs(folder.path())).await;
    let id = fleet.submit(job(1)).await.unwrap().id();
    ground.final_job(id).await;
    let old = put_old(b"first").await;
    let mut recorder = Command::new(programs::ours(None, "gpufleet-ledger").unwrap())
        .args(["record", "--prune-blobs", blobs, "--every", "1s"])
        .envs([("GPUFLEET_AMQP_URL", &ground.endpoints().amqp_url), ("GPUFLEET_DATABASE_URL", url)])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    poll_until("the recorder deletes the old blob", async || !old.exists()).await;
    recorder.kill().await.unwrap();
    let work = tempfile::tempdir().unwrap();
    let run =
        async |line: &[&str]| ground.gpufleet(work.path(), &[&["blobs"], line, &["--blobs", blobs]].concat()).await;
    let old = put_old(b"second").await;
    let pruned = run(&["prune", "--database-url", url]).await;
    assert_eq!((pruned.code, old.exists()), (0, false), "{pruned:?}");
    assert!(pruned.stdout.starts_with("1 blob (6 B) deleted, 2 blobs ("), "{pruned:?}");
    // The kept output uses the blob.
    let listed = run(&["ls"]).await;
    assert!(listed.stdout.contains(&format!("{id}/y until 20")), "{listed:?}");
    let output = ground.final_job(id).await.outputs[0].digest.unwrap().to_string();
    let refused = run(&["rm", &output]).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains(&format!("{output} is in use: job {id}/y until")), "{refused:?}");
    run(&["get", &output, "--out", "y.bin"]).await.ok();
    assert_eq!(BlobDigest::of(&fs::read(work.path().join("y.bin")).unwrap()).to_string(), output);
    assert_eq!(run(&["rm", "--force", &output]).await.code, 0);
    let gone = ground.gpufleet(work.path(), &["fetch", &id.to_string(), "--out", "y=y.npy", "--blobs", blobs]).await;
    assert_eq!(gone.code, 3, "{gone:?}");
    assert!(gone.stderr.contains(&output), "{gone:?}");
}
