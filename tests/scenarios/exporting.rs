//! An export holds only a few pages in memory, however many jobs there are, and leaves no file when it is interrupted.

use std::fs;

use gpufleet_ledger::{HistoryFilter, recorder::Store};
use gpufleet_schema::{Event, JobId, JobInfo, Submitted};
use gpufleet_tests::{Ended, Ground, gpufleet_peak_memory, poll_until, signal};

/// The number of jobs in the smaller export. By then, the allocator has as much memory as it ever needs for pages.
const FEW: usize = 15 * HistoryFilter::LIMIT_MAX as usize;
const MANY: usize = 3 * FEW;
/// The maximum growth of the memory in the larger export. If all additional jobs were in memory, they would take
/// several times as much.
const GROWTH_MAX: u64 = 12 << 20;

fn submitted(at_ms: i64) -> Event {
    let job = JobInfo {
        name: Some("a name of some length, as people give".to_owned()),
        labels: (0..6).map(|number| (format!("label-{number}"), "x".repeat(60))).collect(),
        input_bytes: 512,
        client: Some("client-1".to_owned()),
        submitted_ms: Some(at_ms),
        ..JobInfo::new(JobId::new(), "saxpy")
    };
    Event::Submitted(Submitted { job, at_ms })
}

async fn fill(ground: &Ground, jobs: usize) {
    let mut store = Store::connect(ground.endpoints().database_url.parse().unwrap()).await.unwrap();
    let at_ms = chrono::Utc::now().timestamp_millis();
    for batch in (0..jobs).collect::<Vec<_>>().chunks(2_000) {
        let events: Vec<Event> = batch.iter().map(|_| submitted(at_ms)).collect();
        assert_eq!(store.record(&events).await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_an_export_does_not_grow_with_the_number_of_jobs() {
    let ground = Ground::shared("export").await;
    let folder = tempfile::tempdir().unwrap();
    let export = async |jobs: usize| {
        let environment = [("GPUFLEET_DATABASE_URL", ground.endpoints().database_url.as_str())];
        let arguments = ["export", "--out", "jobs.jsonl"];
        let (ended, peak): (Ended, u64) = gpufleet_peak_memory(folder.path(), &environment, &arguments).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stderr.contains(&format!("exported {jobs} jobs")), "{ended:?}");
        assert_eq!(fs::read_to_string(folder.path().join("jobs.jsonl")).unwrap().lines().count(), jobs);
        peak
    };
    fill(&ground, FEW).await;
    let few = export(FEW).await;
    fill(&ground, MANY - FEW).await;
    let many = export(MANY).await;
    assert!(many < few + GROWTH_MAX, "{few} bytes for {FEW} jobs, {many} for {MANY}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_export_leaves_the_former_file_and_no_other() {
    let ground = Ground::breakable("export-interrupted").await;
    fill(&ground, 10).await;
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    fs::write(folder.path().join("jobs.csv"), "former").unwrap();
    // The export waits for the database until it is interrupted.
    ground.services().postgres().pause();
    let database = ground.endpoints().database_url.clone();
    let child = ground.start_gpufleet(folder.path(), &["export", "--out", "jobs.csv", "--database-url", &database]);
    poll_until("the export has begun its file", async || names().len() == 2).await;
    signal(child.id().unwrap(), libc::SIGINT);
    let ended = child.wait_with_output().await.unwrap();
    ground.services().postgres().resume();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(names().len(), 1);
    assert_eq!(fs::read_to_string(folder.path().join("jobs.csv")).unwrap(), "former");
}
