//! Tests of the states and faults that only a folder has.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    sync::mpsc,
    time::SystemTime,
};

use futures::poll;
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

use super::{array, suite::Remote};
use crate::{
    folder::Folder,
    step::{self, Kind, Progress},
    *,
};

async fn store() -> (TempDir, BlobStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = BlobStore::open(folder.path()).await.unwrap();
    (folder, store)
}

fn in_folder(store: &BlobStore) -> &Folder {
    let Backend::Folder(folder) = &store.backend else { panic!("{store:?}") };
    folder
}

fn names(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn make_old(path: &Path, age: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

async fn prune(store: &BlobStore, unused_for: Duration) -> Result<Pruned, BlobError> {
    store.prune(unused_for, Arc::default()).await
}

fn mkfifo(path: &Path) {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
}

#[tokio::test]
async fn a_file_beyond_the_maximum_is_not_read_to_judge_it() {
    let (folder, store) = store().await;
    let digest = store.put(array(300_000)).await.unwrap();
    let longer = File::options().append(true).open(file::path(folder.path(), digest)).unwrap();
    longer.set_len(BLOBS_BYTES_MAX + 1).unwrap();
    let error = store.check(digest, 300_000).await.unwrap_err();
    assert!(matches!(error, BlobError::Length { found, .. } if found == BLOBS_BYTES_MAX + 1), "{error}");
    store.put(array(300_000)).await.unwrap();
    store.check(digest, 300_000).await.unwrap();
}

#[tokio::test]
async fn a_large_blob_is_mapped_and_writing_to_it_changes_no_file() {
    let (_folder, store) = store().await;
    let digest = store.put(array(3_000_000)).await.unwrap();
    let mut bytes = store.view(digest, 3_000_000).await.unwrap();
    assert!(matches!(bytes, BlobBytes::Mapped(_)));
    bytes[0] ^= 1;
    assert_ne!(bytes.clone().into_vec(), array(3_000_000));
    assert_eq!(store.read(digest, 3_000_000).await.unwrap(), array(3_000_000));
    assert!(store.remove(digest).await.unwrap());
    assert_eq!(bytes[1..], array(3_000_000)[1..], "the pages outlive the name of the file");
}

#[tokio::test]
async fn a_blob_that_others_can_change_is_read_into_memory() {
    let (folder, store) = store().await;
    let digest = store.put(array(3_000_000)).await.unwrap();
    let path = file::path(folder.path(), digest);
    fs::set_permissions(path, fs::Permissions::from_mode(0o664)).unwrap();
    assert!(matches!(store.view(digest, 3_000_000).await, Ok(BlobBytes::Owned(bytes)) if bytes == array(3_000_000)));
}

#[tokio::test]
async fn a_blob_beyond_the_maximum_is_not_read() {
    let (folder, store) = store().await;
    let digest = BlobDigest::of(b"never stored");
    // A sparse file: it takes no space on the disk, but would in memory.
    File::create(file::path(folder.path(), digest)).unwrap().set_len(BLOBS_BYTES_MAX + 1).unwrap();
    for wanted in [BLOBS_BYTES_MAX + 1, u64::MAX] {
        let error = store.read(digest, wanted).await.unwrap_err();
        assert!(matches!(error, BlobError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_link_or_pipe_under_a_blobs_name_is_neither_followed_nor_waited_for() {
    let (folder, store) = store().await;
    let secret = folder.path().join("secret");
    fs::write(&secret, b"secret").unwrap();
    let linked = BlobDigest::of(b"linked");
    symlink(&secret, file::path(folder.path(), linked)).unwrap();
    assert!(matches!(store.read(linked, 6).await, Err(BlobError::Io { .. })));
    let piped = BlobDigest::of(b"piped");
    mkfifo(&file::path(folder.path(), piped));
    let error = store.read(piped, 6).await.unwrap_err();
    assert!(
        matches!(&error, BlobError::Io { source, .. } if source.to_string().contains("is not a regular file")),
        "{error}"
    );
    for (digest, bytes) in [(linked, &b"linked"[..]), (piped, b"piped")] {
        assert_eq!(store.put(bytes).await.unwrap(), digest);
        assert_eq!(store.read(digest, bytes.len() as u64).await.unwrap(), bytes);
    }
    assert_eq!(fs::read(secret).unwrap(), b"secret");
}

#[tokio::test]
async fn a_path_that_is_not_a_folder_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = BlobStore::open(&missing).await.unwrap_err().to_string();
    assert!(error.contains(missing.to_str().unwrap()) && error.contains("No such file"), "{error}");
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(BlobStore::open(&file).await.unwrap_err().to_string().ends_with("it is not a folder"));
}

#[tokio::test]
async fn a_failed_write_is_an_error_and_leaves_no_partial_file() {
    let (folder, store) = store().await;
    fs::remove_dir(folder.path()).unwrap();
    assert!(matches!(store.put(array(10)).await, Err(BlobError::Io { step: "store a blob", .. })));
    fs::create_dir(folder.path()).unwrap();
    // A folder under the blob's name, which no file can replace.
    let digest = BlobDigest::of(&array(10));
    fs::create_dir(file::path(folder.path(), digest)).unwrap();
    assert!(store.put(array(10)).await.is_err());
    assert_eq!(names(&folder).len(), 1);
}

#[tokio::test]
async fn pruning_deletes_only_old_blobs() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let (folder, store) = store().await;
    let (old, new) = (store.put(array(10)).await.unwrap(), store.put(array(20)).await.unwrap());
    make_old(&file::path(folder.path(), old), 8 * DAY);
    let part = |name: &str, age| {
        let path = folder.path().join(name);
        fs::write(&path, b"part").unwrap();
        make_old(&path, age);
    };
    part(".part-abandoned", 2 * DAY);
    part(".part-being-written", Duration::ZERO);
    part("a person's own", 100 * DAY);
    let pruned = prune(&store, 7 * DAY).await.unwrap();
    assert_eq!(pruned, Pruned { removed: 2, removed_bytes: 14, left: 2, left_bytes: 24 });
    assert!(matches!(store.check(old, 10).await, Err(BlobError::Missing { .. })));
    store.check(new, 20).await.unwrap();
    assert_eq!(names(&folder).len(), 3);
}

#[tokio::test]
async fn pruning_leaves_files_that_are_not_blobs() {
    let (folder, store) = store().await;
    for name in ["sha256-folder", ".part-folder"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    mkfifo(&folder.path().join("sha256-pipe"));
    let target = folder.path().join("a person's own");
    fs::write(&target, b"own").unwrap();
    symlink(&target, folder.path().join("sha256-link")).unwrap();
    store.put(array(10)).await.unwrap();
    let pruned = prune(&store, Duration::ZERO).await.unwrap();
    assert_eq!((pruned.removed, pruned.left), (2, 0));
    let mut left = names(&folder);
    left.sort();
    assert_eq!(left, [".part-folder", "a person's own", "sha256-folder", "sha256-pipe"]);
}

#[tokio::test]
async fn the_write_check_leaves_no_file() {
    let (folder, store) = store().await;
    store.probe().await.unwrap();
    assert!(names(&folder).is_empty());
    fs::remove_dir(folder.path()).unwrap();
    let error = store.probe().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "failed to write a file in the blob store {}: No such file or directory (os error 2)",
            folder.path().display()
        )
    );
}

#[tokio::test]
async fn a_hanging_store_times_out_with_the_name_of_its_folder() {
    let (folder, store) = store().await;
    let (release, released) = mpsc::channel::<()>();
    // With paused time, waits end at once when all tasks are idle.
    tokio::time::pause();
    let hang = move |_: &Path, _: &Progress| released.recv().or(Ok(()));
    let error = store.stopped("wait")(in_folder(&store).step(Kind::Look, hang).await.unwrap_err());
    assert_eq!(
        error.to_string(),
        format!("failed to wait in the blob store {}: not finished within 30 s", folder.path().display())
    );
    drop(release);
}

#[tokio::test]
async fn an_existence_check_does_not_wait_for_transfers() {
    let (_folder, store) = store().await;
    let digest = store.put(array(10)).await.unwrap();
    let (releases, mut hanging): (Vec<_>, Vec<_>) = (0..step::AT_ONCE)
        .map(|_| {
            let (release, released) = mpsc::channel::<()>();
            let hang = move |_: &Path, _: &Progress| released.recv().or(Ok(()));
            (release, Box::pin(in_folder(&store).step(Kind::Transfer { bytes: 0 }, hang)))
        })
        .unzip();
    for step in &mut hanging {
        assert!(poll!(step).is_pending());
    }
    assert!(poll!(Box::pin(store.put(array(20)))).is_pending());
    tokio::time::timeout(step::STALL, store.check(digest, 10)).await.unwrap().unwrap();
    drop(releases);
}

#[tokio::test]
async fn an_abandoned_read_ends() {
    let (folder, store) = store().await;
    let digest = store.put(array(10)).await.unwrap();
    let progress = Progress::default();
    progress.give_up();
    file::copy(folder.path(), digest, 10, &mut Vec::new(), &progress).unwrap_err();
    // The store does not read a blob of another length either.
    file::copy(folder.path(), digest, 9, &mut Vec::new(), &progress).unwrap_err();
}

#[tokio::test]
async fn a_blob_in_a_missing_folder_is_not_reported_as_missing() {
    let (folder, store) = store().await;
    let digest = store.put(array(10)).await.unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    assert!(matches!(store.check(digest, 10).await, Err(BlobError::Io { step: "look up a blob", .. })));
    fs::create_dir(folder.path()).unwrap();
    assert!(matches!(store.check(digest, 10).await, Err(BlobError::Missing { .. })));
}

#[tokio::test]
async fn blobs_are_listed_and_removed_one_by_one() {
    let (folder, store) = store().await;
    assert_eq!(store.list().await.unwrap(), []);
    let digest = store.put(array(1000)).await.unwrap();
    let path = file::path(folder.path(), digest);
    for name in ["sha256-short", ".part-being-written", "a person's own"] {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    fs::create_dir(file::path(folder.path(), BlobDigest::of(b"a folder"))).unwrap();
    let stored_at = path.metadata().unwrap().modified().unwrap();
    assert_eq!(store.list().await.unwrap(), [BlobEntry { digest, bytes: 1000, stored_at }]);
    assert!(store.remove(digest).await.unwrap());
    assert!(!store.remove(digest).await.unwrap());
    assert_eq!(store.list().await.unwrap(), []);
    fs::remove_dir_all(folder.path()).unwrap();
    assert!(matches!(store.remove(digest).await, Err(BlobError::Io { step: "remove a blob", .. })));
    assert!(matches!(store.list().await, Err(BlobError::Io { step: "list the blobs", .. })));
}

#[tokio::test]
async fn a_large_array_on_a_device_is_read_once_and_leaves_nothing_if_that_fails() {
    const BYTES: usize = 5 << 20;
    let (folder, store) = store().await;
    let (_, source) = store.put_from(Remote::new(array(BYTES))).await.unwrap();
    assert_eq!(source.read, BYTES);
    let lost = Remote { fails_at: Some(BYTES - 1), ..Remote::new(vec![7; BYTES]) };
    assert!(store.put_from(lost).await.is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
