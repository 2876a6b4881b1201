//! The commands read and write files of any size with little memory.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use gpufleet_schema::bounds::BLOBS_BYTES_MAX;
use gpufleet_tests::{Ground, gpufleet_peak_memory, kernels, npy};

/// The size of the file: more than the commands read into memory.
const STORED_BYTES: u64 = BLOBS_BYTES_MAX + (4 << 20);
const SUBMITTED_BYTES: u64 = 512 << 20;
const PEAK_BYTES_MAX: u64 = 150 << 20;

/// Writes an array of this many bytes. Except at both ends it is a hole, so the file takes no space.
fn write_array(path: &Path, bytes: u64) {
    let start = npy("<f4", &format!("({},)", bytes / 4), &[]);
    let (at, end) = (start.len() as u64, start.len() as u64 + bytes);
    let file = File::create(path).unwrap();
    file.set_len(end).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.write_all_at(b"head", at).unwrap();
    file.write_all_at(b"tail", end - 4).unwrap();
}

/// Checks that the array of [`write_array`] begins at `start` in a file.
fn check_array(path: &Path, start: u64, bytes: u64) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), start + bytes);
    for (offset, expected) in [(0, b"head"), (bytes - 4, b"tail")] {
        let mut found = [0; 4];
        file.read_exact_at(&mut found, start + offset).unwrap();
        assert_eq!(&found, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_more_than_a_gibibyte_is_stored_with_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    write_array(&folder.path().join("x.npy"), STORED_BYTES);
    let arguments = ["blobs", "put", "--blobs", "blobs", "x.npy", "-o", "json"];
    let (ended, peak) = gpufleet_peak_memory(folder.path(), &[], &arguments).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    println!("{STORED_BYTES} bytes stored with a peak of {peak} bytes");
    assert!(peak > 0 && peak < PEAK_BYTES_MAX, "{peak} bytes");
    let stored: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(stored[0]["bytes"], STORED_BYTES, "{stored}");
    let name = stored[0]["digest"].as_str().unwrap().replace(':', "-");
    check_array(&blobs.join(name), 0, STORED_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_input_is_submitted_and_returned_with_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    write_array(&folder.path().join("x.npy"), SUBMITTED_BYTES);
    fs::write(folder.path().join("doubles.ptx"), kernels::DOUBLES).unwrap();
    let store = blobs.to_str().unwrap();
    let ground = Ground::with_environment("submit-large", &[("GPUFLEET_BLOBS", store)]).await;
    let _worker = ground.worker().await;
    let amqp_url = &ground.endpoints().amqp_url;
    let environment = [("GPUFLEET_AMQP_URL", amqp_url.as_str()), ("GPUFLEET_BLOBS", store)];
    // The kernel reads one number, and the array is returned unchanged.
    let submit = "submit --ptx doubles.ptx --entry doubles --cover 1 --args x,y,n:u32=1 --in x=x.npy --zeros y=f32[1] --out x=back.npy";
    let words: Vec<&str> = submit.split(' ').collect();
    let (ended, peak) = gpufleet_peak_memory(folder.path(), &environment, &words).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    println!("{SUBMITTED_BYTES} bytes submitted and returned with a peak of {peak} bytes");
    assert!(peak > 0 && peak < PEAK_BYTES_MAX, "{peak} bytes");
    let start = fs::metadata(folder.path().join("x.npy")).unwrap().len() - SUBMITTED_BYTES;
    check_array(&folder.path().join("back.npy"), start, SUBMITTED_BYTES);
    ground.check_history(1).await;
}
