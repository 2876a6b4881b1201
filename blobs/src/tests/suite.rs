//! Tests of what every kind of store does.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use gpufleet_schema::{BlobDigest, bounds::BLOBS_BYTES_MAX};

use super::{array, stage::Stage};
use crate::{BlobError, BlobSource, Pruned};

/// More than two parts of an upload, and not a whole number of them.
const LARGE: usize = (17 << 20) + 1;
const DAY: Duration = Duration::from_secs(24 * 3600);

macro_rules! suite {
    ($($kind:ident)*: $tests:tt) => {
        $(mod $kind { suite!(@ $kind $tests); })*
    };
    (@ $kind:ident { $($test:ident)* }) => {
        $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Stage::$kind().await).await;
            }
        )*
    };
}

suite! { folder memory s3: {
    a_stored_blob_is_read_back_whole_by_its_digest
    an_existing_blob_is_kept_and_its_age_starts_again
    concurrent_writers_of_the_same_bytes_leave_one_blob
    a_missing_blob_or_one_of_another_length_is_named
    a_damaged_blob_is_detected_and_repaired_by_storing_it_again
    a_large_damaged_blob_is_repaired_too
    a_truncated_or_extended_blob_is_reported_as_damaged
    pruning_deletes_only_old_blobs_that_are_not_live
    a_blob_that_is_stored_during_pruning_survives
    blobs_are_listed_and_removed
    a_file_is_stored_and_written_to_another_file
    a_copy_of_a_damaged_blob_or_to_a_full_disk_fails
    bytes_that_change_are_never_stored_under_a_wrong_name
    bytes_that_are_far_away_are_stored_like_others
    the_write_check_succeeds
} }

async fn a_stored_blob_is_read_back_whole_by_its_digest(Stage { store, .. }: Stage) {
    // An empty one; one of several pieces of a file; exactly one part of an upload; and one of several.
    for length in [0, 700_001, 8 << 20, LARGE] {
        let bytes = array(length);
        let digest = store.put(bytes.clone()).await.unwrap();
        assert_eq!(digest, BlobDigest::of(&bytes));
        store.check(digest, length as u64).await.unwrap();
        assert!(store.read(digest, length as u64).await.unwrap() == bytes);
        assert!(*store.view(digest, length as u64).await.unwrap() == bytes);
    }
    assert_eq!(store.list().await.unwrap().len(), 4);
}

async fn an_existing_blob_is_kept_and_its_age_starts_again(stage: Stage) {
    for length in [1000, LARGE] {
        let digest = stage.store.put(array(length)).await.unwrap();
        stage.make_old(digest, Duration::from_secs(1000));
        let puts = (0..4).map(|_| stage.store.put(array(length)));
        assert!(join_all(puts).await.into_iter().all(|put| put.unwrap() == digest));
        let blobs = stage.store.list().await.unwrap();
        let stored_at = blobs.iter().find(|blob| blob.digest == digest).unwrap().stored_at;
        assert!(stored_at.elapsed().unwrap_or_default() < Duration::from_secs(500), "{stored_at:?}");
        stage.store.check(digest, length as u64).await.unwrap();
    }
    assert_eq!(stage.store.list().await.unwrap().len(), 2);
}

async fn concurrent_writers_of_the_same_bytes_leave_one_blob(Stage { store, .. }: Stage) {
    let puts = (0..32).map(|_| store.put(array(300_000)));
    let digests: Vec<_> = join_all(puts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(store.list().await.unwrap().len(), 1);
    assert_eq!(store.read(digests[0], 300_000).await.unwrap(), array(300_000));
}

async fn a_missing_blob_or_one_of_another_length_is_named(Stage { store, .. }: Stage) {
    let digest = BlobDigest::of(b"never stored");
    let error = store.read(digest, 12).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to find {digest} in the blob store {}", store.location()));
    assert!(matches!(store.check(digest, 12).await, Err(BlobError::Missing { .. })));
    assert!(matches!(store.read_to(digest, 12, Vec::new()).await, Err(BlobError::Missing { .. })));
    let digest = store.put(array(1000)).await.unwrap();
    let error = store.read(digest, 1001).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to read {digest}: the blob has 1000 bytes, expected 1001"));
    // The store reserves no memory for a claimed length.
    assert!(matches!(store.read(digest, BLOBS_BYTES_MAX).await, Err(BlobError::Length { found: 1000, .. })));
    assert!(matches!(store.view(digest, 1001).await, Err(BlobError::Length { found: 1000, .. })));
    assert!(matches!(store.view(digest, BLOBS_BYTES_MAX + 1).await, Err(BlobError::TooLarge { .. })));
    assert!(matches!(store.read(digest, 3).await, Err(BlobError::Length { found: 1000, wanted: 3, .. })));
}

async fn a_damaged_blob_is_detected_and_repaired_by_storing_it_again(stage: Stage) {
    for length in [300_000, 3_000_000] {
        let digest = stage.store.put(array(length)).await.unwrap();
        let mut damaged = array(length);
        damaged[length - 1] ^= 1;
        stage.overwrite(digest, &damaged).await;
        assert!(matches!(stage.store.read(digest, length as u64).await, Err(BlobError::Damaged { .. })));
        assert!(matches!(stage.store.view(digest, length as u64).await, Err(BlobError::Damaged { .. })));
        stage.store.put(array(length)).await.unwrap();
        assert_eq!(stage.store.read(digest, length as u64).await.unwrap(), array(length));
    }
}

async fn a_large_damaged_blob_is_repaired_too(stage: Stage) {
    let digest = stage.store.put(array(LARGE)).await.unwrap();
    let mut damaged = array(LARGE);
    damaged[LARGE / 2] ^= 1;
    stage.overwrite(digest, &damaged).await;
    assert!(matches!(stage.store.read(digest, LARGE as u64).await, Err(BlobError::Damaged { .. })));
    stage.store.put(array(LARGE)).await.unwrap();
    assert!(stage.store.read(digest, LARGE as u64).await.unwrap() == array(LARGE));
}

async fn a_truncated_or_extended_blob_is_reported_as_damaged(stage: Stage) {
    let store = &stage.store;
    let digest = store.put(array(300_000)).await.unwrap();
    for length in [0, 5, 300_001] {
        stage.overwrite(digest, &array(length)).await;
        let checked = store.check(digest, 300_000).await.unwrap_err();
        assert!(checked.to_string().ends_with("does not match the digest; store the array again to repair it"));
        assert!(matches!(checked, BlobError::Damaged { .. }), "{checked}");
        assert!(matches!(store.read(digest, 300_000).await, Err(BlobError::Damaged { .. })));
    }
    store.put(array(300_000)).await.unwrap();
    store.check(digest, 300_000).await.unwrap();
}

async fn pruning_deletes_only_old_blobs_that_are_not_live(stage: Stage) {
    let store = &stage.store;
    let (old, new) = (store.put(array(10)).await.unwrap(), store.put(array(20)).await.unwrap());
    stage.make_old(old, 8 * DAY);
    let pruned = store.prune(7 * DAY, Arc::new(HashSet::from([old]))).await.unwrap();
    assert_eq!(pruned, Pruned { removed: 0, removed_bytes: 0, left: 2, left_bytes: 30 });
    let pruned = store.prune(Duration::ZERO, Arc::new(HashSet::from([new]))).await.unwrap();
    assert_eq!(pruned, Pruned { removed: 1, removed_bytes: 10, left: 1, left_bytes: 20 });
    assert!(matches!(store.check(old, 10).await, Err(BlobError::Missing { .. })));
    store.check(new, 20).await.unwrap();
}

async fn a_blob_that_is_stored_during_pruning_survives(stage: Stage) {
    // Long enough to be removed while it is checked or copied.
    for (length, rounds) in [(1_000_000, 10), (LARGE, 3)] {
        for _ in 0..rounds {
            let digest = stage.store.put(array(length)).await.unwrap();
            stage.make_old(digest, Duration::from_secs(2000));
            let puts = join_all((0..3).map(|_| stage.store.put(array(length))));
            let prunes = join_all((0..2).map(|_| stage.store.prune(Duration::from_secs(1000), Arc::default())));
            let (puts, prunes) = tokio::join!(puts, prunes);
            assert!(puts.into_iter().all(|put| put.unwrap() == digest));
            assert!(prunes.iter().all(Result::is_ok), "{prunes:?}");
            stage.store.check(digest, length as u64).await.unwrap();
        }
    }
}

async fn blobs_are_listed_and_removed(Stage { store, .. }: Stage) {
    assert_eq!(store.list().await.unwrap(), []);
    let digest = store.put(array(1000)).await.unwrap();
    let blobs = store.list().await.unwrap();
    assert_eq!(blobs.iter().map(|blob| (blob.digest, blob.bytes)).collect::<Vec<_>>(), [(digest, 1000)]);
    assert!(store.remove(digest).await.unwrap());
    assert!(!store.remove(digest).await.unwrap());
    assert_eq!(store.list().await.unwrap(), []);
}

async fn a_file_is_stored_and_written_to_another_file(Stage { store, .. }: Stage) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("with a header");
    let mut bytes = b"header".to_vec();
    bytes.extend(array(LARGE));
    std::fs::write(&path, &bytes).unwrap();
    let end = bytes.len() as u64;
    let digest = store.put_file(File::open(&path).unwrap(), 6..end).await.unwrap();
    assert_eq!(digest, BlobDigest::of(&bytes[6..]));
    let into = File::create(scratch.path().join("copy")).unwrap();
    store.read_to(digest, LARGE as u64, into).await.unwrap();
    let mut copy = Vec::new();
    File::open(scratch.path().join("copy")).unwrap().read_to_end(&mut copy).unwrap();
    assert!(copy == bytes[6..]);
    let error = store.put_file(File::open(&path).unwrap(), 6..end + 1).await.unwrap_err();
    assert!(error.to_string().contains("read the file to store"), "{error}");
    assert_eq!(store.list().await.unwrap().len(), 1);
}

async fn a_copy_of_a_damaged_blob_or_to_a_full_disk_fails(stage: Stage) {
    let store = &stage.store;
    let digest = store.put(array(300_000)).await.unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = store.read_to(digest, 300_000, full).await.unwrap_err();
    assert!(matches!(error, BlobError::Output { .. }), "{error}");
    assert!(matches!(store.read_to(digest, 3, Vec::new()).await, Err(BlobError::Length { found: 300_000, .. })));
    stage.overwrite(digest, &vec![1; 300_000]).await;
    assert!(matches!(store.read_to(digest, 300_000, Vec::new()).await, Err(BlobError::Damaged { .. })));
}

/// Memory that another process changes all the time.
struct Changing {
    states: [Vec<u8>; 2],
    reads: AtomicUsize,
}

impl AsRef<[u8]> for Changing {
    fn as_ref(&self) -> &[u8] {
        // Three in a row are alike, so that no pass over the bytes meets the states in the order of another one.
        &self.states[self.reads.fetch_add(1, Ordering::Relaxed) / 3 % 2]
    }
}

async fn bytes_that_change_are_never_stored_under_a_wrong_name(Stage { store, .. }: Stage) {
    for length in [300_000, LARGE] {
        let changing = Changing { states: [array(length), vec![7; length]], reads: AtomicUsize::new(0) };
        match store.put_shared(changing).await {
            // A small blob is what it was when it was read.
            Ok(digest) => drop(store.read(digest, length as u64).await.unwrap()),
            Err(error) => assert!(error.to_string().contains("changed while the store wrote them"), "{error}"),
        }
        for blob in store.list().await.unwrap() {
            store.read(blob.digest, blob.bytes).await.unwrap();
        }
    }
}

/// Bytes on a device.
pub(super) struct Remote {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that are read before the device is lost.
    pub(super) fails_at: Option<usize>,
    pub(super) read: usize,
}

impl Remote {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, fails_at: None, read: 0 }
    }
}

impl BlobSource for Remote {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read += into.len();
        if self.fails_at.is_some_and(|at| self.read > at) {
            return Err(io::Error::other("the device is lost"));
        }
        into.copy_from_slice(&self.bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

async fn bytes_that_are_far_away_are_stored_like_others(stage: Stage) {
    let store = &stage.store;
    for length in [1000, LARGE] {
        let digest = BlobDigest::of(&array(length));
        for _ in 0..2 {
            let (stored, _) = store.put_from(Remote::new(array(length))).await.unwrap();
            assert_eq!(stored, digest);
            stage.make_old(digest, Duration::from_secs(1000));
        }
        store.put_from(Remote::new(array(length))).await.unwrap();
        assert!(store.read(digest, length as u64).await.unwrap() == array(length));
        let blobs = store.list().await.unwrap();
        let stored_at = blobs.iter().find(|blob| blob.digest == digest).unwrap().stored_at;
        assert!(stored_at.elapsed().unwrap_or_default() < Duration::from_secs(500), "{stored_at:?}");
    }
    let lost = Remote { fails_at: Some(LARGE - 1), ..Remote::new(vec![7; LARGE]) };
    let error = store.put_from(lost).await.err().unwrap();
    assert!(error.to_string().contains("the device is lost"), "{error}");
    assert_eq!(store.list().await.unwrap().len(), 2);
}

async fn the_write_check_succeeds(Stage { store, .. }: Stage) {
    store.probe().await.unwrap();
    assert_eq!(store.list().await.unwrap(), []);
}
