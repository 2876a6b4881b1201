//! `gpufleet-bench inputs`: jobs over one large input that stays on the device, with and without a copy for each job, next to equal jobs on
//! a worker that keeps no inputs.

use std::{path::Path, sync::Arc, time::Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet::{
    Job, StoredArray,
    schema::{PoolName, Timings},
};
use gpufleet_local::{Cuda, LocalFleet, Services};

use crate::{
    ground,
    shared_input::{self, doubling, store},
    stats::Spread,
    table::{spread, table},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// Jobs of each round without resident inputs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs_without: u32,
    /// Jobs in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    in_flight: u32,
    /// Size of the input in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    mib: u32,
    /// Rounds, in which the ways take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The workers' device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// How the jobs get their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each job reads it from the store.
    Brought,
    /// Each job copies it on the device.
    Resident,
    /// All jobs use the one copy on the device.
    Shared,
}

const WAYS: [Way; 3] = [Way::Brought, Way::Resident, Way::Shared];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Brought => "from the store",
            Self::Resident => "resident",
            Self::Shared => "resident and shared",
        }
    }

    fn worker_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Brought => &["--resident-inputs", "0"],
            Self::Resident | Self::Shared => &[],
        }
    }

    fn jobs(self, options: &Options) -> u32 {
        match self {
            Self::Brought => options.jobs_without,
            Self::Resident | Self::Shared => options.jobs,
        }
    }

    fn job(self, input: &StoredArray) -> Job {
        let job = doubling(input, PoolName::default());
        if self == Self::Shared { job.share("x") } else { job }
    }
}

/// The result of one round on one fleet.
struct Round {
    jobs_per_second: f64,
    /// The number of jobs that read the store.
    fetched: usize,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    let mut rounds = Vec::new();
    for round in 0..options.repeat {
        eprintln!("round {} of {} …", round + 1, options.repeat);
        let mut ways = Vec::with_capacity(WAYS.len());
        for way in WAYS {
            ways.push(on_fleet(options, &services, way).await?);
        }
        rounds.push(ways);
    }
    println!(
        "{}\nworker on {:?}, one input of {} MiB for all jobs, {} jobs in flight; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.cuda,
        options.mib,
        options.in_flight,
        options.repeat
    );
    print(options, &rounds);
    Ok(())
}

async fn on_fleet(options: &Options, services: &Arc<Services>, way: Way) -> anyhow::Result<Round> {
    let folder = tempfile::tempdir()?;
    let builder = LocalFleet::builder()
        .label("bench")
        .workers(1)
        .cuda(options.cuda.clone())
        .blobs(folder.path())
        .worker_args(way.worker_arguments().iter().copied());
    ground::on_fleet(services, builder, async |fleet| measure(options, fleet, folder.path(), way).await).await
}

async fn measure(options: &Options, fleet: &LocalFleet, blobs: &Path, way: Way) -> anyhow::Result<Round> {
    const VALUE: f32 = 21.0;
    let client = gpufleet::Fleet::builder().blobs(blobs).connect(&fleet.endpoints().amqp_url).await?;
    // Runs a job over another input of equal size, so that the module is loaded and the memory is mapped when the clock starts.
    let other = store(&client, options.mib, 1.0).await?;
    shared_input::run(&client, way.job(&other), 1.0).await?;
    let input = store(&client, options.mib, VALUE).await?;
    let started = Instant::now();
    let jobs = way.jobs(options);
    let timings: Vec<Timings> = stream::iter(0..jobs)
        .map(|_| shared_input::run(&client, way.job(&input), VALUE))
        .buffer_unordered(options.in_flight as usize)
        .try_collect()
        .await?;
    let took = started.elapsed();
    client.close().await;
    let fetched = timings.iter().filter(|timings| timings.fetch_us > 0).count();
    Ok(Round { jobs_per_second: f64::from(jobs) / took.as_secs_f64(), fetched })
}

fn print(options: &Options, rounds: &[Vec<Round>]) {
    let mut table = table(["inputs", "jobs", "jobs/s", "to without", "jobs that read the store"]);
    for (index, way) in WAYS.iter().enumerate() {
        let over = |of: &dyn Fn(&[Round]) -> f64| Spread::of_rounds(rounds.iter().map(|ways| of(ways)));
        table.add_row([
            way.name().to_owned(),
            way.jobs(options).to_string(),
            spread(&over(&|ways| ways[index].jobs_per_second), 1),
            spread(&over(&|ways| ways[index].jobs_per_second / ways[0].jobs_per_second), 1),
            spread(&over(&|ways| ways[index].fetched as f64), 0),
        ]);
    }
    println!("\n{table}");
}
