//! `gpufleet blobs put` stores files of any size with little memory.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
};

use gpufleet_schema::bounds::BLOBS_BYTES_MAX;
use gpufleet_tests::{gpufleet_peak_memory, npy};

/// More than a job's outputs may have, and than the command reads into memory.
const BYTES: u64 = BLOBS_BYTES_MAX + (4 << 20);
const PEAK_BYTES_MAX: u64 = 300 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_more_than_a_gibibyte_is_stored_with_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    let start = npy("<f4", &format!("({},)", BYTES / 4), &[]);
    let (at, end) = (start.len() as u64, start.len() as u64 + BYTES);
    // A hole but for both ends, so that the file takes no space.
    let file = File::create(folder.path().join("x.npy")).unwrap();
    file.set_len(end).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.write_all_at(b"head", at).unwrap();
    file.write_all_at(b"tail", end - 4).unwrap();

    let arguments = ["blobs", "put", "--blobs", "blobs", "x.npy", "-o", "json"];
    let (ended, peak) = gpufleet_peak_memory(folder.path(), &arguments).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    println!("{BYTES} bytes stored with a peak of {peak} bytes");
    assert!(peak > 0 && peak < PEAK_BYTES_MAX, "{peak} bytes");
    let stored: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(stored[0]["bytes"], BYTES, "{stored}");

    let name = stored[0]["digest"].as_str().unwrap().replace(':', "-");
    let blob = File::open(blobs.join(name)).unwrap();
    assert_eq!(blob.metadata().unwrap().len(), BYTES);
    for (offset, expected) in [(0, b"head"), (BYTES - 4, b"tail")] {
        let mut bytes = [0; 4];
        blob.read_exact_at(&mut bytes, offset).unwrap();
        assert_eq!(&bytes, expected);
    }
}
