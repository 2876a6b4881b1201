//! `gpufleet-bench export`: measures `gpufleet export` of a ledger with many jobs, in each format: seconds, jobs per second, and the peak
//! of its memory.

use std::{path::Path, process::Stdio, sync::Arc};

use anyhow::ensure;
use gpufleet::schema::{AttemptFinished, AttemptState, Event, JobId, JobInfo, PoolName, Priority, Submitted, Timings};
use gpufleet_ledger::{migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir, programs as local_programs};
use tokio::process::Command;

use crate::{command_run::Run, programs};

/// The threshold for the command's memory.
const PEAK_BYTES_MAX: u64 = 200 << 20;
const DATABASE: &str = "bench";
const EVENTS_EACH: u32 = 2_000;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs in the ledger
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    jobs: u32,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    let state = StateDir::ephemeral()?;
    let measured = measure(options, &state).await;
    state.close().await?;
    measured
}

async fn measure(options: &Options, state: &Arc<StateDir>) -> anyhow::Result<()> {
    let postgres = Postgres::start(state).await?;
    postgres.create_database(DATABASE).await?;
    let url = postgres.url(DATABASE);
    migrate(&url.parse()?).await?;
    eprintln!("record {} jobs …", options.jobs);
    fill(&url, options.jobs).await?;
    postgres.psql(DATABASE, "analyze").await?;
    let folder = tempfile::tempdir()?;
    println!("| format | seconds | jobs/s | peak MiB |\n| --- | --- | --- | --- |");
    let mut peak_bytes = 0;
    for format in ["parquet", "csv", "jsonl"] {
        let run = export(&url, folder.path(), format).await?;
        let rate = f64::from(options.jobs) / run.seconds;
        println!("| {format} | {:.1} | {rate:.0} | {} |", run.seconds, run.peak_bytes >> 20);
        peak_bytes = peak_bytes.max(run.peak_bytes);
    }
    postgres.stop().await?;
    ensure!(
        peak_bytes <= PEAK_BYTES_MAX,
        "the peak of {} MiB is above the bar of {}",
        peak_bytes >> 20,
        PEAK_BYTES_MAX >> 20
    );
    Ok(())
}

pub(crate) async fn fill(url: &str, jobs: u32) -> anyhow::Result<()> {
    let mut store = Store::connect(url.parse()?).await?;
    let at_ms = i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?;
    for start in (0..jobs).step_by(EVENTS_EACH as usize) {
        let events: Vec<Event> = (start..jobs.min(start + EVENTS_EACH))
            .flat_map(|number| <[Event; 2]>::from(events(number, at_ms)))
            .collect();
        let rejected = store.record(&events).await?;
        ensure!(rejected.is_empty(), "the recorder rejected {} events", rejected.len());
    }
    Ok(())
}

/// Returns the events of a job's submission and end.
pub(crate) fn events(number: u32, at_ms: i64) -> (Event, Event) {
    let job = JobInfo {
        traceparent: None,
        job_id: JobId::new(),
        pool: PoolName::default(),
        priority: Priority::Normal,
        name: Some(format!("job {number}")),
        labels: [("run".to_owned(), (number / 1000).to_string())].into(),
        program: "catalog".to_owned(),
        kernel: "saxpy".to_owned(),
        input_bytes: 512,
        client: Some("client-1".to_owned()),
        submitted_ms: Some(at_ms),
        user_id: None,
        blobs: Vec::new(),
    };
    let job_id = job.job_id;
    let submitted = Event::Submitted(Submitted { job, at_ms });
    let finished = Event::AttemptFinished(AttemptFinished {
        job_id,
        attempt: 1,
        worker: "worker-1".parse().expect("the name is valid"),
        device: Some(0),
        ran_on: None,
        started_ms: Some(at_ms),
        at_ms,
        state: AttemptState::Succeeded,
        failure: None,
        retry_at_ms: None,
        output_bytes: 16,
        timings: Timings { launches_us: vec![5], total_us: 50, ..Timings::default() },
        job: None,
        charged_us: None,
        user_id: None,
        printf_output: None,
        kept: None,
    });
    (submitted, finished)
}

async fn export(url: &str, folder: &Path, format: &str) -> anyhow::Result<Run> {
    let mut command = Command::new(local_programs::ours(None, "gpufleet")?);
    command.args(["export", "--format", format, "--out", "jobs", "--database-url", url]);
    Run::to_end(command.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true).spawn()?).await
}
