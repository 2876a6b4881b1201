//! Clients and workers that share only an S3 bucket pass large arrays through it, keep outputs in it, and lose no job
//! while its server is down. (fault 42)

use std::{fs, path::Path};

use gpufleet::{BlobLocation, Fleet, JobError};
use gpufleet_local_s3::Server;
use gpufleet_schema::{AttemptState, Dtype, Selection, bounds::BLOB_BYTES_MIN};
use gpufleet_tests::{Ended, Ground, Producer, Proxy, Silence, WAIT, busy, gpufleet_command, kernels, poll_until};
use tempfile::TempDir;
use tokio::time::timeout;

/// The number of floats in an array that is uploaded in several parts and is too large for a message.
const LARGE: u32 = 5 << 20;
/// The minimum number of floats in an array that goes through the store.
const ENOUGH: u32 = BLOB_BYTES_MIN as u32 / 4;
const BUCKET: &str = "arrays";

struct Scene {
    ground: Ground,
    server: Server,
    scratch: TempDir,
}

impl Scene {
    async fn new(label: &str) -> Self {
        let (scratch, server) = server();
        let store = store(&server);
        Self::with_store(label, scratch, server, &store).await
    }

    /// Creates a scene whose workers use this location of the store.
    async fn with_store(label: &str, scratch: TempDir, server: Server, store: &str) -> Self {
        let (key, cache) = (server.credentials(), scratch.path().join("cache"));
        let environment = [
            ("GPUFLEET_BLOBS", store),
            ("GPUFLEET_BLOB_CACHE", cache.to_str().unwrap()),
            ("AWS_ACCESS_KEY_ID", &key.access_key_id),
            ("AWS_SECRET_ACCESS_KEY", &key.secret_access_key),
        ];
        let ground = Ground::with_environment(label, &environment).await;
        Self { ground, server, scratch }
    }

    async fn client(&self) -> Producer {
        let key = self.server.credentials();
        let location: BlobLocation = store(&self.server).parse().unwrap();
        let location = location.with_credentials(&key.access_key_id, &key.secret_access_key);
        self.ground.client_with(Fleet::builder().blobs(location)).await
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs a command with this secret key.
    async fn run_with(&self, secret: &str, arguments: &[&str]) -> Ended {
        let endpoints = self.ground.endpoints();
        let store = store(&self.server);
        let environment = [
            ("GPUFLEET_AMQP_URL", endpoints.amqp_url.as_str()),
            ("GPUFLEET_DATABASE_URL", endpoints.database_url.as_str()),
            ("GPUFLEET_BLOBS", &store),
            ("AWS_ACCESS_KEY_ID", &self.server.credentials().access_key_id),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ];
        gpufleet_command(self.folder(), &environment, arguments).await
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(&self.server.credentials().secret_access_key, arguments).await.ok()
    }

    /// Returns the number of requests for the content of arrays.
    fn reads(&self) -> usize {
        let received = self.server.received();
        received.iter().filter(|request| request.method == "GET" && request.target.contains("blake3-")).count()
    }
}

/// Starts a server with a bucket in a folder.
fn server() -> (TempDir, Server) {
    let scratch = tempfile::tempdir().unwrap();
    let objects = scratch.path().join("objects");
    fs::create_dir(&objects).unwrap();
    let server = Server::start(&objects).unwrap();
    server.create_bucket(BUCKET).unwrap();
    (scratch, server)
}

fn store(server: &Server) -> String {
    store_at(&server.endpoint())
}

fn store_at(endpoint: &str) -> String {
    format!("s3://{BUCKET}/some/prefix?endpoint={endpoint}")
}

fn floats(count: u32) -> Vec<f32> {
    (0..count).map(|index| index as f32).collect()
}

fn assert_doubled(y: &[f32], count: u32) {
    assert_eq!(y.len(), count as usize);
    assert!(y.iter().zip(floats(count)).all(|(y, x)| *y == 2.0 * x));
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_travel_through_a_bucket_and_each_host_reads_them_once() {
    let scene = Scene::new("s3").await;
    let worker = scene.ground.worker().await;
    let fleet = scene.client().await;
    let mut handle = fleet.submit(kernels::doubles(&floats(LARGE))).await.unwrap();
    assert_doubled(&handle.wait(WAIT).await.unwrap().output("y").unwrap(), LARGE);
    // Another worker on the same host finds the input in the cache.
    worker.process().kill9().await.unwrap();
    let _worker = scene.ground.worker().await;
    let before = scene.reads();
    let mut handle = fleet.submit(kernels::doubles(&floats(LARGE))).await.unwrap();
    assert_doubled(&handle.wait(WAIT).await.unwrap().output("y").unwrap(), LARGE);
    let own = (LARGE as usize * 4).div_ceil(8 << 20);
    assert_eq!(scene.reads() - before, own, "only the client has read anything, its output");
    scene.ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_server_that_is_away() {
    let mut scene = Scene::new("s3-away").await;
    let worker = scene.ground.worker().await;
    let fleet = scene.client().await;
    worker.process().pause();
    let mut handle = fleet.submit(kernels::doubles(&floats(ENOUGH))).await.unwrap();
    scene.server.stop();
    worker.process().resume();
    let is_lost =
        |detail: &gpufleet_ledger::JobDetail| detail.attempts.iter().any(|attempt| attempt.state == AttemptState::Lost);
    scene.ground.poll_attempts("one lost attempt", handle.id(), is_lost).await;
    scene.server.resume().unwrap();
    assert_doubled(&handle.wait(WAIT).await.unwrap().output("y").unwrap(), ENOUGH);
    let detail = scene.ground.final_job(handle.id()).await;
    let failure = detail.attempts[0].failure.as_ref().unwrap();
    assert_eq!((&*failure.verdict, &*failure.code), ("infrastructure", "blob_unavailable"));
    let secret = &scene.server.credentials().secret_access_key;
    assert!(failure.message.contains("Connection refused") && !failure.message.contains(secret), "{failure:?}");
    scene.ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_waits_for_a_silent_server_delays_no_job_and_can_be_cancelled() {
    /// The size of the output: more than is staged.
    const BYTES: u64 = 96 << 20;
    let (scratch, server) = server();
    let proxy = Proxy::http(server.address()).await;
    let scene = Scene::with_store("s3-silent", scratch, server, &store_at(proxy.url())).await;
    let worker = scene.ground.worker().await;
    let fleet = scene.client().await;
    fleet.submit(busy::for_millis(1)).await.unwrap().wait(WAIT).await.unwrap();
    let executors = worker.executors();
    proxy.silence(Silence::All);
    let large = || busy::for_millis(0).zeros("large", Dtype::U8, [BYTES]).output("large");
    let mut unwanted = fleet.submit(large()).await.unwrap();
    // Waits until the output is being moved. A job that is cancelled earlier ends with its executor.
    timeout(WAIT, proxy.holds_back()).await.expect("the output is on its way");
    fleet.submit(busy::for_millis(1)).await.unwrap().wait(WAIT).await.unwrap();
    fleet.cancel(Selection { jobs: vec![unwanted.id()], ..Selection::default() }, None).await.unwrap();
    match unwanted.wait(WAIT).await.unwrap_err() {
        JobError::Failed(failed) => assert_eq!(failed.state, AttemptState::Cancelled),
        other => panic!("{other}"),
    }
    worker.assert_keeps(&executors);
    proxy.clear();
    let mut wanted = fleet.submit(large()).await.unwrap();
    let outputs = wanted.wait(WAIT).await.unwrap().outputs;
    assert!(outputs.iter().any(|(name, array)| name == "large" && array.bytes().len() as u64 == BYTES));
    scene.ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_keep_fetch_and_prune_outputs_in_a_bucket() {
    let scene = Scene::new("s3-commands").await;
    let _worker = scene.ground.worker().await;
    let bytes: Vec<u8> = floats(ENOUGH).into_iter().flat_map(f32::to_le_bytes).collect();
    fs::write(scene.folder().join("x.bin"), &bytes).unwrap();
    let (input, zeros) = (format!("x=x.bin:f32[{ENOUGH}]"), format!("y=f32[{ENOUGH}]"));
    let submit = ["submit", "saxpy", "--arg", "a=1", "--in", &input, "--zeros", &zeros, "--detach", "--keep", "1h"];
    let refused = scene.run_with("another", &submit).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("403") && refused.stderr.contains("check AWS_ACCESS_KEY_ID"), "{refused:?}");
    assert!(!refused.stderr.contains("<Code>"), "{refused:?}");
    let id = scene.run(&submit).await.stdout.trim().to_owned();
    scene.run(&["wait", &id, "--timeout", "60s"]).await;
    scene.run(&["fetch", &id, "--out", "y=y.npy"]).await;
    assert!(fs::read(scene.folder().join("y.npy")).unwrap().ends_with(&bytes));
    fs::write(scene.folder().join("small.bin"), [7; 8]).unwrap();
    let put = scene.run(&["blobs", "put", "small.bin:u8[8]"]).await;
    assert!(put.stdout.contains("blake3:"), "{put:?}");
    let kept = scene.run(&["blobs", "prune", "--older-than", "1h"]).await;
    assert!(kept.stdout.starts_with("0 blobs (0 B) deleted, 2 blobs"), "{kept:?}");
    // The server's clock counts whole seconds. The ledger knows the kept output.
    let prune = ["blobs", "prune", "--older-than", "1ms"];
    let left = async || scene.run(&prune).await.stdout;
    poll_until("the kept output alone is left", async || left().await.ends_with("1 blob (1.00 MiB) left\n")).await;
    assert_eq!(scene.run_with("another", &prune).await.code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_wrong_key_or_bucket_says_so_and_does_not_start() {
    let scene = Scene::new("s3-refused").await;
    let key = [("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret")];
    let missing = format!("s3://no-such-bucket?endpoint={}", scene.server.endpoint());
    let signed = format!("s3://id:canary-of-a-secret@{BUCKET}");
    for (arguments, environment, problem) in [
        (vec![], &key[..], "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        (vec!["--blobs", &missing], &[], "the bucket does not exist"),
        (vec!["--blobs", &signed], &[], "credentials in its URL"),
    ] {
        let worker = scene.ground.start_worker_in(&arguments, environment);
        assert_eq!(worker.ended().await, Some(2), "{problem}");
        let log = fs::read_to_string(worker.process().log()).unwrap();
        assert!(log.contains(problem) && !log.contains("canary-of-a-secret"), "{log}");
    }
}
