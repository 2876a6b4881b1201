use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use clap::Parser;
use gpufleet::Array;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Files, and a store beside them. `@` stands for the folder.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("blobs")).unwrap();
    files::write(&path("x.npy"), &Array::from_slice(&[1.0_f32, 2.0])).unwrap();
    files::write(&path("photo.png"), &Array::from_slice(&[1_u8, 2, 3, 4]).reshape(vec![2, 2]).unwrap()).unwrap();
    fs::write(path("raw.bin"), [1, 2, 3, 4]).unwrap();
    folder
}

async fn run_line(folder: &Path, line: &str) -> Result<Exit, Complaint> {
    let line = line.replace('@', folder.to_str().unwrap());
    run(&Line::try_parse_from(std::iter::once("blobs").chain(line.split_whitespace())).unwrap().options).await
}

fn blobs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("blobs")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn stored(folder: &Path, files: &[&str]) -> (Vec<Stored>, Result<(), Complaint>) {
    let store = BlobStore::open(folder.join("blobs")).await.unwrap();
    let files: Vec<ArraySpec> = files.iter().map(|file| folder.join(file).to_str().unwrap().parse().unwrap()).collect();
    let (mut stored, outcome) = put_all(&store, &files).await;
    for stored in &mut stored {
        stored.file = stored.file.strip_prefix(folder).unwrap().to_owned();
    }
    (stored, outcome)
}

#[tokio::test]
async fn stored_arrays_are_listed_with_their_digests() {
    let folder = folder();
    let (stored, outcome) = stored(folder.path(), &["x.npy", "photo.png", "raw.bin:u8[4]"]).await;
    outcome.unwrap();
    insta::assert_snapshot!(table_of(&stored));
    insta::assert_snapshot!(serde_json::to_string_pretty(&stored).unwrap());
    json::check(json::BLOBS_PUT, &stored);
    assert_eq!(blobs(folder.path()).len(), 2, "the picture and the raw bytes are the same");
}

#[tokio::test]
async fn blobs_stored_before_a_failure_are_listed() {
    let folder = folder();
    let (stored, outcome) = stored(folder.path(), &["x.npy", "none.npy", "photo.png"]).await;
    assert_eq!(stored.len(), 1);
    let complaint = outcome.unwrap_err();
    assert_eq!(complaint.exit, Exit::BadInput);
    assert!(complaint.message.contains("none.npy"), "{}", complaint.message);
    let failed = run_line(folder.path(), "put --blobs @/blobs @/none.npy").await.unwrap_err();
    assert_eq!(failed.exit, Exit::BadInput);
}

#[tokio::test]
async fn blobs_that_were_last_stored_long_ago_are_pruned() {
    let folder = folder();
    assert_eq!(run_line(folder.path(), "put --blobs @/blobs @/x.npy @/photo.png").await.unwrap(), Exit::Success);
    let old = blobs(folder.path()).remove(0);
    let file = fs::File::open(folder.path().join("blobs").join(&old)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 3600)).unwrap();
    run_line(folder.path(), "prune --blobs @/blobs --older-than 9d").await.unwrap();
    assert_eq!(blobs(folder.path()).len(), 2);
    run_line(folder.path(), "prune --blobs @/blobs --older-than 7d").await.unwrap();
    let left = blobs(folder.path());
    assert!(left.len() == 1 && left[0] != old, "{left:?}");
}

#[tokio::test]
async fn a_folder_that_is_not_a_store_is_bad_input() {
    let folder = folder();
    for (line, why) in [
        ("put --blobs @/none @/x.npy", "@/none as a blob store: No such file or directory"),
        ("prune --blobs @/x.npy --older-than 7d", "@/x.npy as a blob store: it is not a folder"),
    ] {
        let complaint = run_line(folder.path(), line).await.unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        let message = complaint.message.replace(folder.path().to_str().unwrap(), "@");
        assert!(message.starts_with(&format!("failed to use {why}")), "{message}");
        assert!(complaint.hint.unwrap().contains("GPUFLEET_BLOBS"));
    }
}

#[tokio::test]
async fn a_blob_is_copied_to_a_new_file() {
    let folder = folder();
    run_line(folder.path(), "put --blobs @/blobs @/x.npy").await.unwrap();
    let digest = blobs(folder.path()).remove(0).replace('-', ":");
    for (out, same_as) in [("y.npy:f32[2]", "x.npy"), ("y.bin", "raw"), ("z.bin:u8[8]", "raw")] {
        run_line(folder.path(), &format!("get --blobs @/blobs {digest} --out @/{out}")).await.unwrap();
        let written = fs::read(folder.path().join(out.split(':').next().unwrap())).unwrap();
        match same_as {
            "raw" => assert_eq!(written, [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat()),
            file => assert_eq!(written, fs::read(folder.path().join(file)).unwrap()),
        }
    }
    for (line, exit, why) in [
        (format!("get --blobs @/blobs {digest} --out @/y.bin"), Exit::BadInput, "y.bin: it exists already"),
        (format!("get --blobs @/blobs {digest} --out @/n.npy"), Exit::BadInput, "needs a dtype and a shape"),
        (format!("get --blobs @/blobs {digest} --out @/n.npy:f32[3]"), Exit::BadInput, "8 bytes, expected 12"),
        (format!("get --blobs @/blobs {} --out @/n.bin", BlobDigest::of(b"none")), Exit::NotFound, "no blob blake3:"),
    ] {
        let complaint = run_line(folder.path(), &line).await.unwrap_err();
        assert_eq!(complaint.exit, exit, "{complaint:?}");
        assert!(complaint.message.contains(why), "{complaint:?}");
    }
    let parts = fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0, "failed copies leave no file");
}

#[tokio::test]
async fn without_a_ledger_blobs_are_deleted_only_on_request() {
    let folder = folder();
    run_line(folder.path(), "put --blobs @/blobs @/x.npy").await.unwrap();
    let digest = blobs(folder.path()).remove(0).replace('-', ":");
    for line in ["prune --blobs @/blobs".to_owned(), format!("rm --blobs @/blobs {digest}")] {
        let complaint = run_line(folder.path(), &line).await.unwrap_err();
        assert_eq!(complaint.exit, Exit::Usage);
        assert!(complaint.message.contains("without a ledger, the command can't know"), "{complaint:?}");
        assert_eq!(blobs(folder.path()).len(), 1);
    }
    run_line(folder.path(), &format!("rm --force --blobs @/blobs {digest}")).await.unwrap();
    assert!(blobs(folder.path()).is_empty());
    let again = run_line(folder.path(), &format!("rm --force --blobs @/blobs {digest}")).await.unwrap_err();
    assert_eq!(again.exit, Exit::NotFound);
}
