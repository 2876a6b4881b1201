use std::{fs, path::PathBuf, thread, time::UNIX_EPOCH};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tempfile::TempDir;

use super::*;
use crate::source::Shared;

const BYTES: &[u8] = b"what is stored";

fn digest() -> BlobDigest {
    BlobDigest::of(BYTES)
}

/// A folder with an old blob, and the blob's path.
fn old_blob() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = path(folder.path(), digest());
    fs::write(&path, BYTES).unwrap();
    File::open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
    (folder, path)
}

fn write_with(folder: &TempDir, renew: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    write_renewing(folder.path(), digest(), &mut Shared(BYTES), &Progress::default(), renew)
}

fn refuse(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::PermissionDenied.into())
}

fn is_young(path: &Path) -> bool {
    fs::metadata(path).unwrap().modified().unwrap() > UNIX_EPOCH
}

/// Runs `work` on a thread without the privileges of root, which would ignore file permissions.
fn without_privileges<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let none = CapabilitySet::empty();
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
            work()
        });
        done.join().unwrap()
    })
}

fn make_unwritable(folder: &TempDir) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
}

#[test]
fn a_blob_that_is_pruned_during_the_check_is_written_again() {
    let (folder, path) = old_blob();
    write_with(&folder, |_| fs::remove_file(&path)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), BYTES);
    // Another writer's file under the name may have been removed in turn.
    write_with(&folder, |_| fs::remove_file(&path).and_then(|()| fs::write(&path, b"another"))).unwrap();
    assert_eq!(fs::read(&path).unwrap(), BYTES);
}

#[test]
fn a_blob_gets_its_new_age_before_it_is_verified() {
    let (folder, path) = old_blob();
    let progress = Progress::default();
    progress.give_up();
    write(folder.path(), digest(), &mut Shared(BYTES), &progress).unwrap_err();
    assert!(is_young(&path));
}

#[test]
fn a_blob_of_another_user_is_replaced_because_its_age_can_not_be_renewed() {
    let (folder, path) = old_blob();
    write_with(&folder, refuse).unwrap();
    assert!(is_young(&path));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_blob_that_can_not_be_replaced_is_used_if_it_is_intact() {
    let (folder, path) = old_blob();
    make_unwritable(&folder);
    without_privileges(|| write_with(&folder, refuse)).unwrap();
    assert!(!is_young(&path));
    fs::write(&path, b"what was stored").unwrap();
    let refused = without_privileges(|| write_with(&folder, refuse)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn an_abandoned_write_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let progress = Progress::default();
    progress.give_up();
    write(folder.path(), digest(), &mut Shared(BYTES), &progress).unwrap_err();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_without_write_permission_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    make_unwritable(&folder);
    let refused = without_privileges(|| probe(folder.path())).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
}
