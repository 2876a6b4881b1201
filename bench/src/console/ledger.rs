//! A ledger with many jobs, and the requests that the pages of the console send.

use std::time::{Duration, SystemTime};

use gpufleet::schema::{DeviceSeen, Event, PoolName, PoolUse, UtilizationBy, WorkerName, WorkerSeen};
use gpufleet_ledger::{labels, migrate::migrate, recorder::Store};
use gpufleet_local::Postgres;

use crate::export;

/// The SQL that inserts the jobs. The ledger's tests measure the buffers of queries on the same jobs.
const JOBS: &str = include_str!("../../../ledger/tests/postgres/jobs_of_two_years.sql");
const ROLLUPS: &str = include_str!("../../../ledger/tests/postgres/rollups_of_jobs.sql");
/// The number of jobs whose stages are in every roll-up.
const SKETCHED_JOBS: u32 = 1000;
/// The number of waiting jobs.
const QUEUED_JOBS: u32 = 100;
/// The number of workers.
const WORKERS: u32 = 7;
/// The deadline for filling the ledger. Ten million jobs take some minutes.
const FILLED_WITHIN: Duration = Duration::from_secs(2 * 3600);
const BEAT_MS: i64 = 60_000;
/// The number of heartbeats: one each minute for two days.
const BEATS: i64 = 2 * 24 * 60;

/// Creates the database and fills it. Returns the id of a waiting job.
pub(super) async fn fill(postgres: &Postgres, database: &str, jobs: u32) -> anyhow::Result<String> {
    postgres.create_database(database).await?;
    let url = postgres.url(database);
    migrate(&url.parse()?).await?;
    labels::add(&url.parse()?, "team's").await?;
    eprintln!("insert {jobs} jobs …");
    postgres.psql_within(FILLED_WITHIN, database, &JOBS.replace("COUNT", &jobs.to_string())).await?;
    eprintln!("insert their roll-ups …");
    let sketch = sketch(postgres).await?;
    postgres.psql_within(FILLED_WITHIN, database, &ROLLUPS.replace("SKETCH", &sketch)).await?;
    eprintln!("insert heartbeats …");
    let days = "select ensure_samples_partition(current_date - day) from generate_series(-1, 3) as day";
    postgres.psql(database, days).await?;
    let mut store = Store::connect(url.parse()?).await?;
    let now = now_ms()?;
    for beat in (0..BEATS).rev() {
        let events: Vec<Event> = (0..WORKERS).map(|number| heartbeat(number, now - beat * BEAT_MS)).collect();
        store.record(&events).await?;
    }
    let queued: Vec<Event> = (0..QUEUED_JOBS).map(|number| export::events(number, now).0).collect();
    store.record(&queued).await?;
    postgres.psql_within(FILLED_WITHIN, database, "vacuum analyze").await?;
    let job = "select job_id from jobs where state = 'queued' order by id_at limit 1";
    Ok(postgres.psql(database, job).await?.trim().to_owned())
}

/// Returns the sketches of some jobs' stages, as a recorder writes them.
async fn sketch(postgres: &Postgres) -> anyhow::Result<String> {
    const DATABASE: &str = "sketch";
    postgres.create_database(DATABASE).await?;
    let url = postgres.url(DATABASE);
    migrate(&url.parse()?).await?;
    export::fill(&url, SKETCHED_JOBS).await?;
    Store::connect(url.parse()?).await?.upkeep().await?;
    let stages = "select encode(stages, 'hex') from rollups where grain = 'day' and dimension = '' limit 1";
    Ok(postgres.psql(DATABASE, stages).await?.trim().to_owned())
}

fn now_ms() -> anyhow::Result<i64> {
    Ok(i64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?)
}

fn heartbeat(number: u32, at_ms: i64) -> Event {
    let worker: WorkerName = format!("worker-{number}").parse().expect("the name is valid");
    let device = DeviceSeen {
        index: 0,
        uuid: format!("GPU-{number}"),
        name: "GPU".to_owned(),
        emulated: false,
        compute_capability: [9, 0],
        memory_bytes: 80 << 30,
        driver_version: 12080,
        out_of_service: None,
        jobs_running: Some(1),
        pools: vec![PoolUse {
            pool: PoolName::default(),
            jobs_running: 1,
            memory_bytes: 1 << 30,
            weight: Some(1),
            guaranteed_bytes: None,
        }],
        memory_used_bytes: Some(2 << 30),
        utilization_percent: Some(50),
        utilization_by: Some(UtilizationBy::Worker),
        temperature_celsius: Some(60),
        power_milliwatts: Some(350_000),
    };
    Event::WorkerSeen(WorkerSeen {
        worker,
        at_ms,
        host: "gpu-1".to_owned(),
        pid: 1000,
        revision: "r1".to_owned(),
        pools: vec![PoolName::default()],
        devices: vec![device],
        jobs_running: 1,
        leaving: false,
    })
}

/// Returns the requests of the pages, by name. The requests of a name differ, and are sent in turn.
pub(super) fn pages(job: &str) -> Vec<(&'static str, Vec<String>)> {
    let by = |template: &str, count: u32| (0..count).map(|n| template.replace('#', &n.to_string())).collect();
    let one = |path: &str| vec![path.to_owned()];
    vec![
        ("jobs", one("/v1/jobs?limit=100")),
        ("jobs of a kernel that failed", by("/v1/jobs?kernel=kernel-#&state=failed&limit=100", 5)),
        ("jobs of a user and worker", by("/v1/jobs?user=user-1&worker=worker-#&limit=100", 7)),
        ("jobs with a label", by("/v1/jobs?label=team's%3D#&limit=100", 5)),
        ("jobs with a name that none has", by("/v1/jobs?name=absent-#&limit=100", 9)),
        ("job", one(&format!("/v1/jobs/{job}"))),
        ("why a job waits", one(&format!("/v1/jobs/{job}/why"))),
        ("workers", one("/v1/workers")),
        ("samples of 48 hours", by("/v1/samples?worker=worker-#&device=0", 7)),
        ("pools", one("/v1/pools")),
        ("overview", one("/v1/overview")),
        ("overview, failed jobs", one("/v1/jobs?state=failed&state=dead&state=expired&limit=8")),
        ("overview, series of a day", one("/v1/statistics/series")),
        ("kernels", one("/v1/statistics?by=kernel")),
        ("usage by label", one("/v1/statistics?by=label:team's&limit=10000")),
        ("labels", one("/v1/labels")),
    ]
}
