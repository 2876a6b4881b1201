//! The user's files are unpacked before the command, and those that it wants back are packed after it.

use std::{fs, path::Path};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tar::EntryType;

use crate::harness::{Entry, FILE_BYTES_MAX, Work, file, is_root, link};

#[tokio::test(flavor = "multi_thread")]
async fn files_go_there_and_come_back_with_their_executable_bits() {
    let script = "#!/bin/sh\nmkdir -p out/deep && cp input.txt out/deep && ln -s deep/input.txt out/link && cp $0 out && echo no > other\n";
    let work = Work::new(&["./bin/run.sh"]).download(&["out/**", "input.txt"]);
    work.upload(&[
        Entry { kind: EntryType::Directory, name: "bin/", target: "", mode: 0o555, content: "" },
        file("bin/run.sh", 0o755, script),
        file("real.txt", 0o644, "data"),
        link("input.txt", "real.txt"),
    ]);
    let run = work.run().await;
    assert_eq!(run.exit_code(), Some(0), "{run:?}");
    assert_eq!(run.packed(), Ok(Some(fs::metadata(work.in_folder("files.tar")).unwrap().len())));
    let packed = work.packed();
    let names: Vec<_> = packed.keys().map(String::as_str).collect();
    assert_eq!(names, ["input.txt", "out/deep", "out/deep/input.txt", "out/link", "out/run.sh"]);
    assert_eq!(packed["out/deep/input.txt"], (0o644, "data".to_owned()));
    assert_eq!(packed["out/run.sh"].0, 0o755);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_reaches_outside_is_refused_by_the_name_of_the_entry() {
    let device = Entry { kind: EntryType::Char, name: "device", target: "", mode: 0o666, content: "" };
    let entries =
        [file("../x", 0o644, "x"), file("/x", 0o644, "x"), link("x", "/etc/passwd"), link("a/x", "../../y"), device];
    for entry in entries {
        let name = format!("{:?}", entry.name);
        let work = Work::sh("echo ran");
        work.upload(&[entry]);
        let run = work.run().await;
        assert!(run.refusal().contains(&name) && run.output.is_empty(), "{run:?}");
        assert!(!work.in_folder("x").exists() && !work.beside("y").exists() && !Path::new("/x").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_files_than_the_limit_are_refused_both_ways() {
    let work = Work::sh("true");
    let half = "x".repeat(FILE_BYTES_MAX as usize / 2);
    work.upload(&[file("a", 0o644, &half), file("b", 0o644, &half), file("c", 0o644, "x")]);
    let run = work.run().await;
    assert!(run.refusal().contains("upload less"), "{run:?}");
    let half = FILE_BYTES_MAX / 2;
    let work = Work::sh(&format!("head -c {half} /dev/zero > a; head -c {half} /dev/zero > b")).download(&["*"]);
    let run = work.run().await;
    assert_eq!(run.exit_code(), Some(0), "the program itself has succeeded");
    assert!(run.packed().unwrap_err().contains("download less"), "{run:?}");
    assert_eq!(fs::metadata(work.in_folder("files.tar")).unwrap().len(), 0, "the disk is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_program_has_a_limit() {
    let run = Work::sh(&format!("head -c {} /dev/zero > a; echo $?", FILE_BYTES_MAX + 1)).run().await;
    // 128 and SIGXFSZ.
    assert!(run.output.ends_with("153\n"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn globs_that_match_nothing_give_an_empty_archive() {
    let work = Work::sh("true").download(&["out/**"]);
    assert!(work.run().await.packed().unwrap().is_some());
    assert!(work.packed().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_can_not_be_read_is_an_error_with_its_name() {
    let run = Work::sh("echo x > secret; chmod 0 secret").download(&["*"]).run().await;
    let error = run.packed().unwrap_err();
    assert!(error.contains("\"secret\"") && error.contains("readable"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_the_outside_are_left_out_with_a_line_in_the_output() {
    let work = Work::sh("ln -s /etc/passwd x; ln -s ../y y; mkfifo z; echo kept > kept").download(&["*"]);
    let run = work.run().await;
    assert_eq!(work.packed().keys().collect::<Vec<_>>(), ["kept"], "{run:?}");
    for name in ["x", "y", "z"] {
        assert!(run.output.contains(&format!("gpufleet: left out the link {name:?}")) != (name == "z"), "{run:?}");
    }
    assert_eq!(fs::read_to_string(work.in_folder("log")).unwrap(), run.output);
}

/// A small disk, which only root can mount.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error_that_says_so() {
    // The packed copy does not fit beside the file.
    let work = Work::sh("head -c 600000 /dev/zero > a; echo done").download(&["*"]);
    if !is_root() {
        // Without a disk of its own, the test can fill no disk: the limit of the files ends the archive.
        let mut work = work;
        work.spec.file_bytes_max = 600_000;
        assert!(work.run().await.packed().unwrap_err().contains("more than 600000 bytes"));
        return;
    }
    mount(c"tmpfs", &work.spec.folder, c"tmpfs", MountFlags::empty(), c"size=1m,mode=0700").unwrap();
    let _disk = Disk(&work.spec.folder);
    let run = work.run().await;
    assert_eq!((run.exit_code(), run.output.as_str()), (Some(0), "done\n"));
    let error = run.packed().unwrap_err();
    assert!(error.contains("No space left on device") && error.contains("free space"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_for_which_the_disk_has_no_room_are_refused() {
    let mut work = Work::sh("echo ran");
    let content = "x".repeat(600_000);
    if !is_root() {
        // Only root can mount a small disk: the limit of the files refuses them.
        work.spec.file_bytes_max = 600_000;
        work.upload(&[file("small", 0o644, "x"), file("big", 0o644, &content)]);
        assert!(work.run().await.refusal().contains("more than 600000 bytes"));
        return;
    }
    mount(c"tmpfs", &work.spec.folder, c"tmpfs", MountFlags::empty(), c"size=1m,mode=0700").unwrap();
    let _disk = Disk(&work.spec.folder);
    work.upload(&[file("big", 0o644, &content)]);
    let run = work.run().await;
    assert!(run.refusal().contains("\"big\"") && run.refusal().contains("No space left on device"), "{run:?}");
}
