use std::{fs::File, path::PathBuf, time::UNIX_EPOCH};

use tempfile::TempDir;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn limit() -> Limit {
    Limit { now: SystemTime::now(), kept: HOUR }
}

fn blob(modified: SystemTime) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sha256-blob");
    fs::write(&path, b"blob").unwrap();
    File::open(&path).unwrap().set_modified(modified).unwrap();
    (folder, path)
}

fn count(folder: &TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn a_blob_renewed_since_its_age_was_read_keeps_its_name() {
    let (folder, path) = blob(SystemTime::now());
    assert!(!removed_if_old(folder.path(), &path, limit()).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"blob");
    assert_eq!(count(&folder), 1);
}

#[test]
fn an_old_blob_is_removed_and_a_missing_one_counts_as_removed() {
    let (folder, path) = blob(UNIX_EPOCH);
    assert!(removed_if_old(folder.path(), &path, limit()).unwrap());
    assert_eq!(count(&folder), 0);
    assert!(removed_if_old(folder.path(), &path, limit()).unwrap());
}

#[test]
fn a_restored_blob_does_not_replace_one_stored_in_the_meantime() {
    let (folder, path) = blob(SystemTime::now());
    let part = part::name(folder.path());
    fs::write(&part, b"older").unwrap();
    put_back(&part, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"blob");
    assert_eq!(count(&folder), 1);
}

#[test]
fn abandoned_pruning_removes_nothing_more() {
    let (folder, _) = blob(UNIX_EPOCH);
    let progress = Progress::default();
    progress.give_up();
    prune(folder.path(), HOUR, &HashSet::new(), &progress).unwrap_err();
    assert_eq!(count(&folder), 1);
}

#[test]
fn ages_are_measured_by_the_clock_of_the_store() {
    let none = HashSet::new();
    let hours_away = |hours| SystemTime::now() - hours * HOUR;
    // The store's clock is two hours behind this machine's: the blob is new there.
    let (folder, path) = blob(hours_away(2));
    let pruned = prune_at(hours_away(2), folder.path(), HOUR, &none, &Progress::default()).unwrap();
    assert_eq!((pruned.removed, pruned.left), (0, 1));
    // By its clock of an hour later the blob is old, although a clock that is two hours behind would call it new.
    let pruned = prune_at(hours_away(1), folder.path(), HOUR, &none, &Progress::default()).unwrap();
    assert_eq!((pruned.removed, pruned.left), (1, 0));
    assert!(!path.exists());
}
