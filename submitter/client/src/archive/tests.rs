use std::{
    fs,
    io::Cursor,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use tar::{EntryType, Header};

use super::*;

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn packed(folder: &Path) -> Vec<u8> {
    Selection::of(&[folder.join(".")]).unwrap().write(Vec::new()).unwrap()
}

/// The names in a folder, those of folders with a slash.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let is_folder = path.symlink_metadata().unwrap().is_dir();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
            names.push(format!("{name}{}", if is_folder { "/" } else { "" }));
            open.extend(is_folder.then_some(path));
        }
    }
    names.sort();
    names
}

/// An archive with one entry, whatever its name.
fn archive_of(name: &str, kind: EntryType, target: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, std::io::empty()).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn a_folder_comes_back_as_it_was() {
    let from = tempfile::tempdir().unwrap();
    write(from.path(), "train.py", "print(1)\n");
    write(from.path(), "data/deep/x.bin", &"x".repeat(100_000));
    write(from.path(), &format!("{}/long", "name".repeat(40)), "long names\n");
    fs::create_dir(from.path().join("empty")).unwrap();
    fs::set_permissions(from.path().join("train.py"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("deep/x.bin", from.path().join("data/link")).unwrap();
    let archive = packed(from.path());
    assert_eq!(archive, packed(from.path()), "the same files give the same bytes");

    let to = tempfile::tempdir().unwrap();
    let folder = to.path().join("new/folder");
    let unpacked = unpack(&mut Cursor::new(&archive), &folder, false).unwrap();
    assert_eq!(names(&folder), names(from.path()));
    assert_eq!(unpacked.written.len(), 4);
    assert_eq!(fs::read_to_string(folder.join("data/link")).unwrap().len(), 100_000);
    assert_eq!(fs::metadata(folder.join("train.py")).unwrap().permissions().mode() & 0o111, 0o111);
    let modified = |folder: &Path| fs::metadata(folder.join("train.py")).unwrap().modified().unwrap();
    let age = modified(from.path()).duration_since(modified(&folder)).unwrap();
    assert!(age.as_secs() == 0, "whole seconds are kept: {age:?}");

    let again = unpack(&mut Cursor::new(&archive), &folder, false).unwrap();
    assert_eq!((again.written.len(), again.unchanged.len()), (0, 3), "what is there already is no conflict");
}

#[test]
fn ignored_files_and_the_history_are_left_out() {
    let from = tempfile::tempdir().unwrap();
    for name in ["train.py", "data/x.bin", "data/keep.bin", "runs/1/log", ".git/HEAD", ".env", "sub/.git/HEAD"] {
        write(from.path(), name, "x");
    }
    write(from.path(), IGNORE_FILE, "# large\nruns/\n*.bin\n!keep.bin\n");
    let to = tempfile::tempdir().unwrap();
    unpack(&mut Cursor::new(packed(from.path())), to.path(), false).unwrap();
    assert_eq!(names(to.path()), [".env", IGNORE_FILE, "data/", "data/keep.bin", "sub/", "train.py"]);
}

#[test]
fn a_relative_path_keeps_its_name_and_another_one_its_last_part() {
    let from = tempfile::tempdir().unwrap();
    write(from.path(), "a/x", "x");
    write(from.path(), "b/x", "y");
    let select = |paths: &[&str]| Selection::of(&paths.iter().map(|path| from.path().join(path)).collect::<Vec<_>>());
    let to = tempfile::tempdir().unwrap();
    let archive = select(&["a", "b/x"]).unwrap().write(Vec::new()).unwrap();
    unpack(&mut Cursor::new(archive), to.path(), false).unwrap();
    assert_eq!(names(to.path()), ["a/", "a/x", "x"]);
    let error = select(&["a/x", "b/x"]).unwrap_err();
    assert!(error.to_string().ends_with("would both be x for the program"), "{error}");
    assert_eq!(select(&["a/x", "a/x"]).unwrap().files(), 1, "a path may be given twice");
    let missing = select(&["no"]).unwrap_err();
    assert!(matches!(&missing, ArchiveError::Read { path, .. } if path.ends_with("no")), "{missing:?}");
}

#[test]
fn a_link_to_the_outside_is_not_packed() {
    let from = tempfile::tempdir().unwrap();
    fs::create_dir(from.path().join("bin")).unwrap();
    symlink("/usr/bin/python3", from.path().join("bin/python")).unwrap();
    let error = Selection::of(&[from.path().join(".")]).unwrap_err();
    assert!(matches!(&error, ArchiveError::LinkOutside { path, .. } if path.ends_with("bin/python")), "{error:?}");
    write(from.path(), IGNORE_FILE, "/bin\n");
    Selection::of(&[from.path().join(".")]).unwrap();
}

#[test]
fn too_many_bytes_are_refused_with_the_largest_files() {
    let from = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a", 1), ("b", BYTES_MAX), ("c", 2 << 20), ("d", 3 << 20)] {
        fs::File::create(from.path().join(name)).unwrap().set_len(bytes).unwrap();
    }
    let error = Selection::of(&[from.path().join(".")]).unwrap_err().to_string();
    assert!(error.contains("at most 1.00 GiB can be sent") && error.contains("/d (3.00 MiB), "), "{error}");
    assert!(error.ends_with("/c (2.00 MiB)"), "{error}");
}

#[test]
fn a_file_that_changes_is_refused() {
    let from = tempfile::tempdir().unwrap();
    write(from.path(), "x", "before");
    let selection = Selection::of(&[from.path().join("x")]).unwrap();
    write(from.path(), "x", "longer than before");
    let error = selection.write(Vec::new()).unwrap_err();
    assert!(matches!(&error, ArchiveError::Changed { path } if path.ends_with("x")), "{error:?}");
    write(from.path(), "x", "");
    assert!(matches!(selection.write(Vec::new()), Err(ArchiveError::Changed { .. })), "it is shorter now");
}

#[test]
fn what_leaves_the_folder_is_refused_and_nothing_is_written() {
    for (name, kind, target) in [
        ("../x", EntryType::Regular, ""),
        ("a/../../x", EntryType::Regular, ""),
        ("/etc/x", EntryType::Regular, ""),
        ("x", EntryType::Symlink, "/etc/passwd"),
        ("a/x", EntryType::Symlink, "../../x"),
        ("x", EntryType::Link, "y"),
        ("x", EntryType::Char, ""),
        ("x", EntryType::Fifo, ""),
    ] {
        let to = tempfile::tempdir().unwrap();
        let folder = to.path().join("folder");
        let error = unpack(&mut Cursor::new(archive_of(name, kind, target)), &folder, true).unwrap_err();
        assert!(matches!(error, ArchiveError::Refused { .. }), "{name} {kind:?}: {error:?}");
        assert_eq!(names(to.path()), Vec::<String>::new());
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let (from, to, elsewhere) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(from.path(), "out/x", "new");
    write(elsewhere.path(), "target", "old");
    symlink(elsewhere.path(), to.path().join("out")).unwrap();
    let mut archive = Cursor::new(packed(from.path()));
    assert_eq!(in_the_way(&mut archive, to.path()).unwrap(), [Path::new("out")]);
    assert!(matches!(unpack(&mut archive, to.path(), true), Err(ArchiveError::Write { .. })));
    fs::remove_file(to.path().join("out")).unwrap();
    fs::create_dir(to.path().join("out")).unwrap();
    symlink(elsewhere.path().join("target"), to.path().join("out/x")).unwrap();
    unpack(&mut archive, to.path(), true).unwrap();
    assert_eq!(fs::read_to_string(to.path().join("out/x")).unwrap(), "new");
    assert_eq!(names(elsewhere.path()), ["target"]);
    assert_eq!(fs::read_to_string(elsewhere.path().join("target")).unwrap(), "old");
}

#[test]
fn existing_files_are_replaced_only_on_request() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(from.path(), "a", "new");
    write(from.path(), "b", "new");
    write(to.path(), "b", "old");
    let mut archive = Cursor::new(packed(from.path()));
    let error = unpack(&mut archive, to.path(), false).unwrap_err();
    assert!(error.to_string().starts_with("b is already in "), "{error}");
    assert_eq!(names(to.path()), ["b"], "nothing was written");
    let unpacked = unpack(&mut archive, to.path(), true).unwrap();
    assert_eq!((unpacked.written.len(), unpacked.bytes), (2, 6));
    assert_eq!(fs::read_to_string(to.path().join("b")).unwrap(), "new");
}

#[test]
fn a_damaged_archive_is_an_error() {
    let from = tempfile::tempdir().unwrap();
    write(from.path(), "a", &"x".repeat(10_000));
    let archive = packed(from.path());
    let to = tempfile::tempdir().unwrap();
    assert!(unpack(&mut Cursor::new(&archive[..2_000]), to.path(), false).is_err());
    assert!(unpack(&mut Cursor::new(&[7; 2_048]), to.path(), false).is_err());
}
