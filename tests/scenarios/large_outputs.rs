//! An output of more than a gibibyte takes little memory in the worker and in the commands that write it to a file.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use gpufleet_schema::bounds::BLOBS_BYTES_MAX;
use gpufleet_tests::{Ground, gpufleet_peak_memory, memory_bytes};

/// The size of the output: more than a program reads into memory at once.
const BYTES: u64 = BLOBS_BYTES_MAX + (256 << 20);
const PEAK_BYTES_MAX: u64 = 300 << 20;
/// A kernel that stores 7 at an address.
const MARKS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry marks(.param .u64 to)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [to];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
	ret;
}
";

#[tokio::test(flavor = "multi_thread")]
async fn an_output_of_more_than_a_gibibyte_is_returned_and_fetched_with_little_memory() {
    let (blobs, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = blobs.path().to_str().unwrap();
    let ground = Ground::with_environment("large-outputs", &[("GPUFLEET_BLOBS", store)]).await;
    let worker = ground.worker().await;
    let folder = work.path();
    fs::write(folder.join("k.ptx"), MARKS).unwrap();
    let words = BYTES / 4;
    let (out, last) = (format!("y=y.bin:u32[{words}]"), format!("y@{}", words - 1));
    let kernel = ["--ptx", "k.ptx", "--entry", "marks", "--args", &last, "--grid", "1", "--block", "1"];
    let endpoints = ground.endpoints();
    let environment = [
        ("GPUFLEET_AMQP_URL", endpoints.amqp_url.as_str()),
        ("GPUFLEET_DATABASE_URL", endpoints.database_url.as_str()),
        ("GPUFLEET_BLOBS", store),
    ];
    let submit = [&["submit", "-o", "json", "--out", &out], &kernel[..]].concat();
    let (submitted, peak) = gpufleet_peak_memory(folder, &environment, &submit).await;
    assert_eq!(submitted.code, 0, "{submitted:?}");
    println!("{BYTES} bytes returned with a peak of {peak} bytes");
    assert!(peak > 0 && peak < PEAK_BYTES_MAX, "{peak} bytes");
    check_output(&folder.join("y.bin"));
    let peak = memory_bytes(worker.pid(), "VmHWM").unwrap();
    println!("{BYTES} bytes stored by the worker with a peak of {peak} bytes");
    assert!(peak < PEAK_BYTES_MAX, "{peak} bytes");

    let report: serde_json::Value = serde_json::from_str(&submitted.stdout).unwrap();
    let id = report["job_id"].as_str().unwrap();
    ground.gpufleet(folder, &["wait", id]).await.ok();
    let (fetched, peak) = gpufleet_peak_memory(folder, &environment, &["fetch", id, "--out", "y=again.bin"]).await;
    assert_eq!(fetched.code, 0, "{fetched:?}");
    println!("{BYTES} bytes fetched with a peak of {peak} bytes");
    assert!(peak > 0 && peak < PEAK_BYTES_MAX, "{peak} bytes");
    check_output(&folder.join("again.bin"));
    ground.check_history(1).await;
}

/// Checks the length of the file, and the mark at its end.
fn check_output(path: &Path) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), BYTES);
    let mut end = [0; 8];
    file.read_exact_at(&mut end, BYTES - 8).unwrap();
    assert_eq!(end, [0, 0, 0, 0, 7, 0, 0, 0]);
}
