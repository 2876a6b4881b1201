//! Tests of the states and faults that only a server has.

use std::time::{Duration, Instant};

use gpufleet_local_s3::Server;
use gpufleet_schema::BlobDigest;
use tempfile::TempDir;

use super::{
    array,
    proxy::{Fault, Proxy},
    stage::{BUCKET, Stage, location},
};
use crate::{Backend, BlobError, BlobLocation, BlobSource, BlobStore, objects::Objects, step::Steps};

const LARGE: usize = (17 << 20) + 1;
const SECRET: &str = "canary-of-a-secret";

struct Scene {
    _scratch: TempDir,
    server: Server,
    proxy: Proxy,
    store: BlobStore,
}

/// A store behind a proxy.
async fn scene() -> Scene {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(scratch.path()).unwrap();
    server.create_bucket(BUCKET).unwrap();
    let proxy = Proxy::start(server.address());
    let store = BlobStore::open(location(&server, &proxy.endpoint())).await.unwrap();
    Scene { _scratch: scratch, server, proxy, store }
}

fn of(store: &BlobStore) -> &Objects {
    let Backend::Objects(objects) = &store.backend else { panic!("{store:?}") };
    objects
}

/// The store with other limits of its steps.
fn with_stall(store: &BlobStore, stall: Duration) -> BlobStore {
    let mut objects = of(store).clone();
    objects.steps = Steps::with_stall(stall);
    BlobStore { backend: Backend::Objects(objects), ..store.clone() }
}

fn files(stage: &Stage) -> usize {
    let folder = stage.path(BlobDigest::of(b""));
    std::fs::read_dir(folder.parent().unwrap()).unwrap().count()
}

#[tokio::test]
async fn a_store_that_can_not_be_opened_says_why_and_shows_no_secret() {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(scratch.path()).unwrap();
    server.create_bucket(BUCKET).unwrap();
    let (id, endpoint) = (server.credentials().access_key_id.clone(), server.endpoint());
    let wrong_key: BlobLocation = format!("s3://{BUCKET}?endpoint={endpoint}").parse().unwrap();
    let wrong_key = wrong_key.with_credentials(id.clone(), SECRET);
    let missing: BlobLocation = format!("s3://no-such-bucket?endpoint={endpoint}").parse().unwrap();
    let missing = missing.with_credentials(id, server.credentials().secret_access_key.clone());
    for (location, problem) in [(wrong_key, "AWS_SECRET_ACCESS_KEY"), (missing, "the bucket does not exist")] {
        let error = BlobStore::open(location).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(matches!(error, BlobError::Unusable { .. }) && text.contains(problem), "{text}");
        for hidden in [SECRET, &server.credentials().secret_access_key, "<Code>", "Signature=", "sha256", "blake3"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

#[tokio::test]
async fn a_bucket_without_credentials_is_refused_before_any_request() {
    let error = BlobStore::open("s3://bucket?endpoint=http://127.0.0.1:1".parse::<BlobLocation>().unwrap()).await;
    let text = error.unwrap_err().to_string();
    assert!(
        text.ends_with("there are no credentials for it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_until_it_is_back() {
    let mut scene = scene().await;
    let digest = scene.store.put(array(1000)).await.unwrap();
    scene.server.stop();
    let direct = location(&scene.server, &scene.server.endpoint());
    let error = BlobStore::open(direct).await.unwrap_err();
    assert!(matches!(error, BlobError::Io { .. }) && error.to_string().contains("Connection refused"), "{error}");
    for error in [
        scene.store.put(array(2000)).await.unwrap_err(),
        scene.store.put(array(LARGE)).await.unwrap_err(),
        scene.store.check(digest, 1000).await.unwrap_err(),
        scene.store.read(digest, 1000).await.unwrap_err(),
        scene.store.list().await.unwrap_err(),
    ] {
        assert!(matches!(error, BlobError::Io { .. }), "{error}");
        assert!(!error.to_string().contains("http://127.0.0.1:") || error.to_string().contains("s3://"), "{error}");
    }
    scene.server.resume().unwrap();
    assert_eq!(scene.store.read(digest, 1000).await.unwrap(), array(1000));
}

#[tokio::test]
async fn an_overloaded_or_strange_server_is_reported_as_that() {
    let scene = scene().await;
    let digest = scene.store.put(array(1000)).await.unwrap();
    for (fault, problem) in [(Fault::Busy, "overloaded"), (Fault::Strange, "")] {
        scene.proxy.cause(fault);
        let error = scene.store.check(digest, 1000).await.unwrap_err();
        assert!(!matches!(error, BlobError::Missing { .. }), "{error}");
        assert!(error.to_string().contains(problem) && !error.to_string().contains('<'), "{error}");
    }
    scene.proxy.cause(Fault::None);
    let before = scene.server.received().len();
    if let Err(error) = scene.store.check(digest, 1000).await {
        panic!("{error}; meanwhile the server got {:?}", &scene.server.received()[before..]);
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_blocks_no_other_store() {
    let scene = scene().await;
    let digest = scene.store.put(array(1000)).await.unwrap();
    let large = scene.store.put(array(LARGE)).await.unwrap();
    scene.proxy.cause(Fault::Silent);
    let store = with_stall(&scene.store, Duration::from_millis(200));
    let checks = (0..40).map(|_| store.check(digest, 1000));
    for error in futures::future::join_all(checks).await {
        assert!(matches!(error, Err(BlobError::Timeout { step: "look up a blob", .. })), "{error:?}");
    }
    assert!(matches!(store.put(array(2000)).await, Err(BlobError::Timeout { .. })));
    let (read, listed) = tokio::join!(store.read_to(large, LARGE as u64, Vec::new()), store.list());
    assert!(matches!(read, Err(BlobError::Timeout { step: "read a blob", .. })));
    assert!(matches!(listed, Err(BlobError::Timeout { .. })));
    scene.proxy.cause(Fault::None);
    in_time(async || store.check(digest, 1000).await).await;
    assert!(in_time(async || store.read(large, LARGE as u64).await).await == array(LARGE));
}

/// The result of the first try that the server does not keep waiting, which a busy machine may make it do.
async fn in_time<T>(mut attempt: impl AsyncFnMut() -> Result<T, BlobError>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt().await {
            Err(BlobError::Timeout { .. }) if Instant::now() < deadline => {}
            ended => return ended.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_server_below_the_minimum_rate_is_given_up() {
    let scene = scene().await;
    let digest = scene.store.put(array(300_000)).await.unwrap();
    scene.proxy.cause(Fault::Slow);
    // Bytes arrive all the time, but would take six seconds. A blob of this length gets no more time than any step.
    let store = with_stall(&scene.store, Duration::from_secs(1));
    assert!(matches!(store.read_to(digest, 300_000, Vec::new()).await, Err(BlobError::Timeout { .. })));
}

#[tokio::test]
async fn a_large_blob_that_exists_is_renewed_without_being_sent_again() {
    let stage = Stage::s3().await;
    let digest = stage.store.put(array(LARGE)).await.unwrap();
    stage.make_old(digest, Duration::from_secs(1000));
    let server = stage.server.as_ref().unwrap();
    let before = server.received().len();
    stage.store.put(array(LARGE)).await.unwrap();
    let requests: Vec<_> = server.received().split_off(before);
    let puts = requests.iter().filter(|request| request.method == "PUT").count();
    assert_eq!((puts, requests.iter().filter(|request| request.method == "POST").count()), (1, 0), "{requests:?}");
    let stored_at = stage.store.list().await.unwrap()[0].stored_at;
    assert!(stored_at.elapsed().unwrap_or_default() < Duration::from_secs(500));
    // The mark is still there.
    stage.store.put(array(LARGE)).await.unwrap();
    assert_eq!(server.received().iter().filter(|request| request.target.contains("uploads")).count(), 1);
}

/// The requests of an operation, without their targets.
async fn requests<T>(server: &Server, operation: impl Future<Output = Result<T, BlobError>>) -> (T, Vec<String>) {
    let before = server.received().len();
    let done = operation.await.unwrap();
    (done, server.received().split_off(before).into_iter().map(|request| request.method.to_string()).collect())
}

#[tokio::test]
async fn a_blob_of_one_part_is_created_and_read_in_one_request_each() {
    let stage = Stage::s3().await;
    let server = stage.server.as_ref().unwrap();
    // The first blob of a process tries out what the server does with conditions.
    stage.store.put(array(10)).await.unwrap();
    for bytes in [1, 1 << 20, 8 << 20] {
        let (digest, sent) = requests(server, stage.store.put(array(bytes))).await;
        assert_eq!(sent, ["PUT"]);
        let (read, sent) = requests(server, stage.store.view(digest, bytes as u64)).await;
        assert!(read[..] == array(bytes)[..]);
        assert_eq!(sent, ["GET"]);
        let (_, sent) = requests(server, stage.store.read_to(digest, bytes as u64, Vec::new())).await;
        assert_eq!(sent, ["GET"]);
    }
    // One that exists is refused, sent, and looked for in case of a pruner.
    let (_, sent) = requests(server, stage.store.put(array(1 << 20))).await;
    assert_eq!(sent, ["PUT", "PUT", "HEAD", "HEAD"]);
}

#[tokio::test]
async fn a_new_large_blob_is_sent_once_and_not_copied_by_the_server() {
    let stage = Stage::s3().await;
    let server = stage.server.as_ref().unwrap();
    let (digest, sent) = requests(server, stage.store.put(array(LARGE))).await;
    assert_eq!(sent, ["HEAD", "POST", "PUT", "PUT", "PUT", "POST"]);
    let (_, sent) = requests(server, stage.store.read_to(digest, LARGE as u64, Vec::new())).await;
    assert_eq!(sent, ["GET", "GET", "GET"]);
}

#[tokio::test]
async fn a_failed_or_cancelled_upload_leaves_no_blob() {
    let scene = scene().await;
    // Shared memory that another process changes between the two readings.
    let changing = Changing(std::sync::atomic::AtomicUsize::new(0));
    let error = scene.store.put_shared(changing).await.unwrap_err();
    assert!(error.to_string().contains("changed while the store wrote them"), "{error}");
    // Cancelled while the last part is read.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel();
    let mut put = Box::pin(scene.store.put_from(Held { bytes: array(LARGE), passes: 0, tell, released }));
    tokio::select! {
        put = &mut put => panic!("stored without its last part: {:?}", put.map(|(digest, _)| digest)),
        reached = told.recv() => reached.unwrap(),
    }
    drop(put);
    release.send(()).unwrap();
    let digest = BlobDigest::of(&array(LARGE));
    assert!(matches!(scene.store.check(digest, LARGE as u64).await, Err(BlobError::Missing { .. })));
}

/// Bytes whose last part is not read before the test says so.
struct Held {
    bytes: Vec<u8>,
    passes: usize,
    tell: tokio::sync::mpsc::UnboundedSender<()>,
    released: std::sync::mpsc::Receiver<()>,
}

impl BlobSource for Held {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&mut self, into: &mut [u8], offset: u64) -> std::io::Result<()> {
        // The first pass names the blob, the second stores it.
        self.passes += usize::from(offset == 0);
        if self.passes == 2 && offset + into.len() as u64 == self.length() {
            self.tell.send(()).unwrap();
            self.released.recv().unwrap();
        }
        let start = offset as usize;
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }
}

struct Changing(std::sync::atomic::AtomicUsize);

impl AsRef<[u8]> for Changing {
    fn as_ref(&self) -> &[u8] {
        static BYTES: [[u8; 9 << 20]; 2] = [[0; 9 << 20], [1; 9 << 20]];
        let reads = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        &BYTES[usize::from(reads > 40)]
    }
}

#[tokio::test]
async fn pruning_reads_the_age_again_before_it_deletes() {
    let stage = Stage::s3().await;
    let digest = stage.store.put(array(10)).await.unwrap();
    assert_eq!(files(&stage), 2, "the blob and the probe object");
    // A pruner that died in the middle of a batch.
    stage.make_old(digest, Duration::from_secs(2000));
    let announcement = stage.path(digest).with_file_name(".pruning");
    std::fs::write(&announcement, b"").unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(200);
    std::fs::File::open(&announcement).unwrap().set_modified(long_ago).unwrap();
    let pruned = stage.store.prune(Duration::from_secs(1000), Default::default()).await.unwrap();
    assert_eq!((pruned.removed, pruned.left), (1, 0));
    assert!(!announcement.exists());
}

#[tokio::test]
async fn a_writer_of_an_old_blob_waits_for_the_pruner_and_stores_it_again() {
    let stage = Stage::s3().await;
    for length in [10, LARGE] {
        stored_again_after_pruning(&stage, length).await;
    }
}

#[tokio::test]
async fn a_writer_waits_for_the_pruner_even_if_the_server_ignores_conditions() {
    let stage = Stage::s3().await;
    stage.server.as_ref().unwrap().ignore_conditions();
    stored_again_after_pruning(&stage, 10).await;
}

/// Stores a blob that a pruner removes meanwhile.
async fn stored_again_after_pruning(stage: &Stage, length: usize) {
    let digest = stage.store.put(array(length)).await.unwrap();
    let announcement = stage.path(digest).with_file_name(".pruning");
    std::fs::write(&announcement, b"").unwrap();
    let server = stage.server.as_ref().unwrap();
    let before = server.received().len();
    let pruner = async {
        // The writer has given the blob its new age and waits.
        while !server.received()[before..].iter().any(|request| request.target.ends_with(".pruning")) {
            tokio::task::yield_now().await;
        }
        std::fs::remove_file(stage.path(digest)).unwrap();
        std::fs::remove_file(&announcement).unwrap();
    };
    let (put, ()) = tokio::join!(stage.store.put(array(length)), pruner);
    put.unwrap();
    stage.store.check(digest, length as u64).await.unwrap();
}

#[tokio::test]
async fn a_large_list_comes_in_pages() {
    let stage = Stage::s3().await;
    stage.store.put(array(10)).await.unwrap();
    let folder = stage.path(BlobDigest::of(b"")).parent().unwrap().to_owned();
    for number in 0..1500_u32 {
        std::fs::write(stage.path(BlobDigest::of(&number.to_le_bytes())), b"x").unwrap();
    }
    std::fs::write(folder.join("sha256-short"), b"").unwrap();
    assert_eq!(stage.store.list().await.unwrap().len(), 1501);
}
