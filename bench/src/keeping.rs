//! `gpufleet-bench keeping`: measures what it costs to keep the outputs of tiny jobs in the ledger. Two producers take turns: the jobs of
//! one keep their outputs, those of the other do not. A turn ends when the ledger has the outcome of its last job, so that no turn pays for
//! the previous one.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use gpufleet::{Fleet, Job, ResultError, schema::JobId};
use gpufleet_local::{Cuda, LocalFleet};
use tokio::time::{sleep, timeout};

use crate::{
    ground, saxpy,
    stats::Spread,
    table::{spread, table},
};

/// The threshold: the maximum time of jobs that keep their outputs, as a multiple of the time of those that do not.
const RATIO_MAX: f64 = 1.3;
const KEPT: Duration = Duration::from_secs(3600);
const TURN_DEADLINE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each turn
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    /// Rounds of two turns, after one to warm up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The worker's device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// The time of a turn divided by its jobs: until the last reply, and until the ledger has the last outcome.
#[derive(Debug, Clone, Copy)]
struct Turn {
    answered_us: f64,
    recorded_us: f64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    println!(
        "{}\nworker on {:?}, {} jobs a turn; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.cuda,
        options.jobs,
        options.repeat
    );
    let builder = LocalFleet::builder().label("bench").workers(1).cuda(options.cuda.clone());
    let measured = ground::on_fleet(&services, builder, async |fleet| measure(options, fleet).await);
    let (plain, kept) = Box::pin(measured).await?;
    print(&plain, &kept);
    Ok(())
}

async fn measure(options: &Options, fleet: &LocalFleet) -> anyhow::Result<(Vec<Turn>, Vec<Turn>)> {
    let endpoints = fleet.endpoints();
    let client = Fleet::builder().ledger(&endpoints.database_url).connect(&endpoints.amqp_url).await?;
    let (mut plain, mut kept) = (Vec::new(), Vec::new());
    for round in 0..=options.repeat {
        eprintln!("round {round} of {} …", options.repeat);
        plain.push(turn(&client, options.jobs, |job| job).await?);
        kept.push(turn(&client, options.jobs, |job| job.keep(KEPT)).await?);
    }
    client.close().await;
    // The first round only warms up.
    Ok((plain.split_off(1), kept.split_off(1)))
}

async fn turn(client: &Fleet, jobs: u32, with: impl Fn(Job) -> Job) -> anyhow::Result<Turn> {
    let all: Vec<Job> = (0..jobs as usize).map(|number| with(saxpy::job(number, saxpy::FLOATS))).collect();
    let last = all.last().context("a turn has a job")?.id();
    let per_job = |started: Instant| started.elapsed().as_secs_f64() * 1e6 / f64::from(jobs);
    let work = async {
        let started = Instant::now();
        for (number, handle) in client.submit_many(all).await.into_iter().enumerate() {
            saxpy::check(number, saxpy::FLOATS, &handle?.await?.output::<f32>("y")?)?;
        }
        let answered_us = per_job(started);
        while !is_recorded(client, last).await? {
            sleep(POLL).await;
        }
        anyhow::Ok(Turn { answered_us, recorded_us: per_job(started) })
    };
    timeout(TURN_DEADLINE, work).await.context("a turn did not end in time")?
}

async fn is_recorded(client: &Fleet, job_id: JobId) -> anyhow::Result<bool> {
    match client.result(job_id).await {
        Ok(_) | Err(ResultError::NotKept { .. }) => Ok(true),
        Err(ResultError::UnknownJob { .. } | ResultError::NotEnded { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn print(plain: &[Turn], kept: &[Turn]) {
    let mut table = table(["µs for each job", "without", "with --keep", "ratio"]);
    let mut row = |name: &str, part: fn(&Turn) -> f64| {
        let figure = |turns: &[Turn]| Spread::of_rounds(turns.iter().map(part));
        let ratios = plain.iter().zip(kept).map(|(plain, kept)| part(kept) / part(plain));
        let ratio = Spread::of_rounds(ratios);
        table.add_row([name.to_owned(), spread(&figure(plain), 1), spread(&figure(kept), 1), spread(&ratio, 2)]);
        ratio.median
    };
    let answered = row("until the last reply", |turn| turn.answered_us);
    row("until the ledger has the last outcome", |turn| turn.recorded_us);
    println!("\n{table}\n");
    let verdict = if answered <= RATIO_MAX { "kept" } else { "missed" };
    println!("the bar of {RATIO_MAX} for the ratio until the last reply: {verdict}");
}
