//! `gpufleet stats`, `usage`, `report`, `pools` and `history --watch` on jobs that really ran. The statistics count each job once, and the
//! device time of the replies to the microsecond.

use std::path::Path;

use gpufleet_tests::{Ground, WAIT, busy, kernels, signal};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

async fn rows(ground: &Ground, folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let printed = ground.gpufleet(folder, &[arguments, &["-o", "json"]].concat()).await.json();
    printed["rows"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_and_usage_have_the_times_of_the_replies() {
    let ground = Ground::shared("statistics").await;
    let _worker = ground.worker_with(&["--pool", "team-a:weight=3", "--pool", "team-b"]).await;
    let fleet = ground.client().await;
    let mut device_us = [0, 0];
    for index in 0..6 {
        let pool = index % 2;
        let job = busy::for_millis(5).pool(["team-a", "team-b"][pool].parse().unwrap());
        device_us[pool] += fleet.submit(job).await.unwrap().wait(WAIT).await.unwrap().timings.total_us;
    }
    let mut failed = fleet.submit(kernels::writes_beyond_its_buffer().pool("team-a".parse().unwrap())).await.unwrap();
    failed.wait(WAIT).await.unwrap_err();
    ground.final_job(failed.id()).await;
    ground.check_history(7).await;

    let folder = tempfile::tempdir().unwrap();
    let pools = rows(&ground, folder.path(), &["usage", "--by", "pool"]).await;
    let of = |pool: &str| pools.iter().find(|row| row["value"] == pool).unwrap();
    assert_eq!((of("team-b")["jobs"].as_u64(), of("team-b")["device_us"].as_u64()), (Some(3), Some(device_us[1])));
    assert!(of("team-a")["device_us"].as_u64() >= Some(device_us[0]), "{pools:?}");

    let kernels = rows(&ground, folder.path(), &["stats", "--by", "kernel", "--since", "30d"]).await;
    let of = |kernel: &str| kernels.iter().find(|row| row["value"] == kernel).unwrap();
    assert_eq!((of("waits")["succeeded"].as_u64(), of("wild_write")["failed"].as_u64()), (Some(6), Some(1)));
    assert_eq!(of("wild_write")["verdict_user"], 1);
    // The kernel polls the device's clock for five milliseconds.
    assert!(of("waits")["kernel"]["p50_us"].as_u64() >= Some(4_900), "{kernels:?}");
    let table = ground.gpufleet(folder.path(), &["stats", "--pool", "team-b"]).await;
    assert!(table.stdout.contains("RUN P95") && table.stderr.contains("jobs that ended since"), "{table:?}");
    let unknown = ground.gpufleet(folder.path(), &["stats", "--by", "colour"]).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("label:KEY"), "{unknown:?}");

    let pools = ground.gpufleet(folder.path(), &["pools", "-o", "json"]).await.json();
    let due: Vec<(&str, Option<f64>)> = pools
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| (pool["pool"].as_str().unwrap(), pool["due_percent"].as_f64()))
        .collect();
    assert_eq!(due, [("default", Some(20.0)), ("team-a", Some(60.0)), ("team-b", Some(20.0))]);
    assert!(pools.as_array().unwrap().iter().all(|pool| pool["consumers"] == 1 && pool["messages"] == 0), "{pools}");

    let report = ground.gpufleet(folder.path(), &["report", &failed.id().to_string()]).await;
    assert!(report.stdout.contains("failed") && report.stdout.contains("emulated device"), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_history_shows_new_jobs_until_it_is_interrupted() {
    let (ground, _worker, fleet) = Ground::served("watch").await;
    let folder = tempfile::tempdir().unwrap();
    let database = ground.endpoints().database_url.clone();
    let mut watching = ground.start_gpufleet(folder.path(), &["history", "--watch", "--database-url", &database]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut shows = async |text: &str| {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return;
            }
        }
        panic!("it ended before it showed {text}");
    };
    tokio::time::timeout(WAIT, shows("STATE")).await.unwrap();
    for _ in 0..2 {
        let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
        handle.wait(WAIT).await.unwrap();
        tokio::time::timeout(WAIT, shows(&handle.id().to_string())).await.unwrap();
    }
    signal(watching.id().unwrap(), libc::SIGINT);
    let ended = tokio::time::timeout(WAIT, watching.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
    ground.check_history(2).await;
}
