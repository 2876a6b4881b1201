//! `gpufleet-bench inputs`: jobs that share one large input, which stays on the device, beside the same jobs on a worker that keeps no
//! input, as before there were resident inputs.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet::{
    Array, Job, StoredArray,
    schema::{Dtype, Timings},
};
use gpufleet_local::{Cuda, Lines, LocalFleet, Services};
use gpufleet_tests::kernels;
use tokio::time::timeout;

use crate::{
    machine,
    stats::Spread,
    table::{spread, table},
};

const JOB_DEADLINE: Duration = Duration::from_secs(120);
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
    /// Rounds, the two fleets taking turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The workers' device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// One round on one fleet.
struct Round {
    jobs_per_second: f64,
    /// Jobs that read the store.
    fetched: usize,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = machine::with_services().await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.repeat {
        eprintln!("round {} of {} …", round + 1, options.repeat);
        without.push(on_fleet(options, &services, options.jobs_without, &["--resident-inputs", "0"]).await?);
        with.push(on_fleet(options, &services, options.jobs, &[]).await?);
    }
    println!(
        "{}\nworker on {:?}, one input of {} MiB for all jobs, {} jobs in flight; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.cuda,
        options.mib,
        options.in_flight,
        options.repeat
    );
    print(options, &with, &without);
    Ok(())
}

async fn on_fleet(options: &Options, services: &Arc<Services>, jobs: u32, arguments: &[&str]) -> anyhow::Result<Round> {
    let folder = tempfile::tempdir()?;
    let fleet = LocalFleet::builder()
        .label("bench")
        .workers(1)
        .cuda(options.cuda.clone())
        .blobs(folder.path())
        .worker_args(arguments.iter().copied());
    let fleet = fleet.on(services).start_with(&Lines).await?;
    let measured = measure(options, &fleet, folder.path(), jobs).await;
    let stopped = fleet.stop().await;
    let measured = measured?;
    stopped.context("stop the fleet")?;
    Ok(measured)
}

async fn measure(options: &Options, fleet: &LocalFleet, blobs: &Path, jobs: u32) -> anyhow::Result<Round> {
    let client = gpufleet::Fleet::builder().blobs(blobs).connect(&fleet.endpoints().amqp_url).await?;
    let store = async |value: f32| {
        let values = vec![value; (options.mib as usize) << 18];
        client.store(Array::from_slice(&values)).await
    };
    // Another input of the same size, so that the module is loaded and the memory is mapped when the clock starts.
    one(&client, &store(1.0).await?, 2.0).await?;
    let input = store(21.0).await?;
    let started = Instant::now();
    let timings: Vec<Timings> = stream::iter(0..jobs)
        .map(|_| one(&client, &input, 42.0))
        .buffer_unordered(options.in_flight as usize)
        .try_collect()
        .await?;
    let took = started.elapsed();
    client.close().await;
    let fetched = timings.iter().filter(|timings| timings.fetch_us > 0).count();
    Ok(Round { jobs_per_second: f64::from(jobs) / took.as_secs_f64(), fetched })
}

/// Doubles the first element of the input, so that the way of the input to the kernel is what is measured.
async fn one(client: &gpufleet::Fleet, input: &StoredArray, expected: f32) -> anyhow::Result<Timings> {
    let job = Job::ptx(kernels::DOUBLES)
        .input_stored("x", input)
        .zeros("y", Dtype::F32, [1])
        .entry("doubles")
        .cover([1])
        .arg_buffer("x")
        .arg_buffer("y")
        .arg(1_u32)
        .output("y");
    let answer = async { anyhow::Ok(client.submit(job).await?.await?) };
    let result = timeout(JOB_DEADLINE, answer).await.context("a job was not answered in time")??;
    let found: Vec<f32> = result.output("y")?;
    ensure!(found == [expected], "the answer is {found:?} in place of {expected}");
    Ok(result.timings)
}

fn print(options: &Options, with: &[Round], without: &[Round]) {
    let rate = |rounds: &[Round]| spread(&spread_of(rounds.iter().map(|round| round.jobs_per_second)), 1);
    let fetched = |rounds: &[Round]| spread(&spread_of(rounds.iter().map(|round| round.fetched as f64)), 0);
    let mut table = table(["worker", "jobs", "jobs/s", "jobs that read the store"]);
    table.add_row(["resident inputs".to_owned(), options.jobs.to_string(), rate(with), fetched(with)]);
    table.add_row(["none".to_owned(), options.jobs_without.to_string(), rate(without), fetched(without)]);
    let ratios = with.iter().zip(without).map(|(with, without)| with.jobs_per_second / without.jobs_per_second);
    println!("\n{table}\n\nresident / none: {}", spread(&spread_of(ratios), 1));
}

fn spread_of(figures: impl IntoIterator<Item = f64>) -> Spread {
    Spread::of(figures).expect("there is a round")
}
