use std::{fs, path::Path, time::SystemTime};

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

#[test]
fn deleted_and_kept_blobs_are_counted() {
    let pruned = Pruned { removed: 1, removed_bytes: 1 << 20, left: 0, left_bytes: 0 };
    assert_eq!(describe(&pruned), "1 blob (1.00 MiB) deleted, 0 blobs (0 B) left\n");
}
