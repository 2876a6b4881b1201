use std::{
    fs::File,
    io::Cursor,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use gpufleet_local_s3::Server;
use rustix::process::{Resource, Rlimit};
use tempfile::TempDir;

use super::*;
use crate::{BlobError, BlobLocation, BlobStore};

/// A store on a server, and a cache for it.
struct Scene {
    scratch: TempDir,
    server: Server,
    store: BlobStore,
    counts: Arc<[AtomicUsize; 3]>,
}

const BLOB: usize = 300_000;

fn array(seed: u8) -> Vec<u8> {
    (0..BLOB).map(|index| (index % 241) as u8 ^ seed).collect()
}

impl Scene {
    async fn new(bytes_max: u64) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let objects = scratch.path().join("objects");
        fs::create_dir(&objects).unwrap();
        let server = Server::start(&objects).unwrap();
        server.create_bucket("blobs").unwrap();
        let counts = Arc::default();
        let store = Self::open(&server, &scratch, bytes_max, &counts).await;
        Self { scratch, server, store, counts }
    }

    async fn open(server: &Server, scratch: &TempDir, bytes_max: u64, counts: &Arc<[AtomicUsize; 3]>) -> BlobStore {
        let location: BlobLocation = format!("s3://blobs?endpoint={}", server.endpoint()).parse().unwrap();
        let credentials = server.credentials();
        let location = location.with_credentials(&credentials.access_key_id, &credentials.secret_access_key);
        let counts = Arc::clone(counts);
        let count = move |used| {
            counts[used as usize].fetch_add(1, Ordering::Relaxed);
        };
        let cache = BlobCache::open(&scratch.path().join("cache"), bytes_max, count).unwrap();
        BlobStore::open(location).await.unwrap().with_cache(cache)
    }

    fn cached(&self) -> usize {
        fs::read_dir(self.scratch.path().join("cache")).unwrap().count()
    }

    fn path(&self, digest: BlobDigest) -> PathBuf {
        file::path(&self.scratch.path().join("cache"), digest)
    }

    /// Requests for the content of blobs.
    fn reads(&self) -> usize {
        self.server
            .received()
            .iter()
            .filter(|request| request.method == "GET" && request.target.contains("blake3-"))
            .count()
    }

    /// Hits, misses and failures.
    fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.counts[index].load(Ordering::Relaxed))
    }

    async fn reads_back(&self, digest: BlobDigest, seed: u8) {
        assert!(read(&self.store, digest, BLOB).await.unwrap() == array(seed));
    }
}

async fn read(store: &BlobStore, digest: BlobDigest, bytes: usize) -> Result<Vec<u8>, BlobError> {
    store.read_into(digest, bytes as u64, Cursor::new(Vec::new())).await.map(Cursor::into_inner)
}

#[tokio::test]
async fn the_second_reader_of_a_host_sends_no_request() {
    let scene = Scene::new(1 << 30).await;
    let digest = scene.store.put(array(1)).await.unwrap();
    scene.reads_back(digest, 1).await;
    let before = scene.server.received().len();
    scene.reads_back(digest, 1).await;
    // Another worker of the host.
    let other = Scene::open(&scene.server, &scene.scratch, 1 << 30, &scene.counts).await;
    let opened = scene.server.received().len();
    assert!(read(&other, digest, BLOB).await.unwrap() == array(1));
    assert_eq!((opened - before, scene.server.received().len() - opened), (1, 0));
    assert_eq!((scene.counts(), scene.cached()), ([2, 1, 0], 1));
}

#[tokio::test]
async fn jobs_that_need_a_blob_at_once_read_it_once() {
    let scene = Scene::new(1 << 30).await;
    let digest = scene.store.put(array(1)).await.unwrap();
    join_all((0..16).map(|_| scene.reads_back(digest, 1))).await;
    assert_eq!((scene.reads(), scene.counts(), scene.cached()), (1, [15, 1, 0], 1));
}

#[tokio::test]
async fn a_damaged_or_truncated_file_is_read_again_from_the_store() {
    let scene = Scene::new(1 << 30).await;
    let digest = scene.store.put(array(1)).await.unwrap();
    scene.reads_back(digest, 1).await;
    for damaged in [array(2), array(1)[1..].to_vec(), Vec::new()] {
        fs::write(scene.path(digest), &damaged).unwrap();
        scene.reads_back(digest, 1).await;
        scene.reads_back(digest, 1).await;
        assert_eq!(fs::read(scene.path(digest)).unwrap(), array(1));
    }
}

#[tokio::test]
async fn the_least_recently_used_blobs_are_evicted() {
    let scene = Scene::new(2 * BLOB as u64).await;
    let mut digests = Vec::new();
    for seed in 0..3 {
        let digest = scene.store.put(array(seed)).await.unwrap();
        scene.reads_back(digest, seed).await;
        // The time of a file has the resolution of the kernel's clock.
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(100 - u64::from(seed));
        if scene.path(digest).exists() {
            File::open(scene.path(digest)).unwrap().set_modified(long_ago).unwrap();
        }
        digests.push(digest);
        if seed == 1 {
            // Used again, the first is no longer the oldest.
            scene.reads_back(digests[0], 0).await;
        }
    }
    let cached: Vec<_> = digests.iter().map(|digest| scene.path(*digest).exists()).collect();
    assert_eq!(cached, [true, false, true]);
    scene.reads_back(digests[1], 1).await;
}

#[tokio::test]
async fn a_cache_that_can_not_be_written_is_passed_by() {
    let scene = Scene::new(1 << 30).await;
    let digest = scene.store.put(array(1)).await.unwrap();
    fs::remove_dir(scene.scratch.path().join("cache")).unwrap();
    scene.reads_back(digest, 1).await;
    assert_eq!(scene.counts(), [0, 0, 1]);
    // A cache that is too small is passed by too.
    let small = Scene::new(BLOB as u64 - 1).await;
    let digest = small.store.put(array(1)).await.unwrap();
    small.reads_back(digest, 1).await;
    assert_eq!((small.counts(), small.cached()), ([0, 1, 0], 0));
}

/// A limit on the size of files stands for a full disk: a write fails in the middle. It is a limit of a process, so the test runs itself
/// as a child.
#[tokio::test]
async fn a_cache_on_a_full_disk_is_passed_by_until_there_is_room() {
    const CHILD: &str = "GPUFLEET_TEST_FULL_DISK";
    const TEST: &str = "blobs::cache::tests::a_cache_on_a_full_disk_is_passed_by_until_there_is_room";
    if std::env::var_os(CHILD).is_none() {
        let own = std::env::current_exe().unwrap();
        // Beyond the limit the kernel sends a signal, and if that is ignored, the write fails.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(own).args(["--exact", TEST, "--nocapture"]);
        let output = command.env(CHILD, "1").output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let scene = Scene::new(1 << 30).await;
    let digest = scene.store.put(array(1)).await.unwrap();
    let unlimited = rustix::process::getrlimit(Resource::Fsize);
    let limit = |bytes| rustix::process::setrlimit(Resource::Fsize, Rlimit { current: bytes, ..unlimited }).unwrap();
    limit(Some(BLOB as u64 / 3));
    scene.reads_back(digest, 1).await;
    assert_eq!((scene.counts(), scene.cached()), ([0, 0, 1], 0));
    limit(unlimited.current);
    scene.reads_back(digest, 1).await;
    assert_eq!((scene.counts(), scene.cached()), ([0, 1, 1], 1));
}

#[tokio::test]
async fn a_failed_read_leaves_nothing_in_the_cache() {
    let mut scene = Scene::new(1 << 30).await;
    let missing = BlobDigest::of(b"never stored");
    assert!(matches!(read(&scene.store, missing, 12).await, Err(BlobError::Missing { .. })));
    let digest = scene.store.put(array(1)).await.unwrap();
    let error = read(&scene.store, digest, 3).await.unwrap_err();
    assert!(matches!(error, BlobError::Length { found: 300_000, wanted: 3, .. }), "{error}");
    scene.server.stop();
    assert!(matches!(read(&scene.store, digest, BLOB).await, Err(BlobError::Io { .. })));
    assert_eq!(scene.cached(), 0);
    // A cached blob needs no server.
    scene.server.resume().unwrap();
    scene.reads_back(digest, 1).await;
    scene.server.stop();
    scene.store.check(digest, BLOB as u64).await.unwrap();
    scene.reads_back(digest, 1).await;
}

#[test]
fn a_folder_that_other_users_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("a/cache");
    BlobCache::open(&folder, 1, |_| {}).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let error = BlobCache::open(&folder, 1, |_| {}).unwrap_err().to_string();
    assert!(error.contains("mode 755") && error.contains("chmod 700"), "{error}");
    let file = scratch.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(BlobCache::open(&file, 1, |_| {}).is_err());
}
