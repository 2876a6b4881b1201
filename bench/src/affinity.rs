//! `gpufleet-bench affinity`: jobs over several large inputs that do not all fit on one device, on a fleet of several workers, with and without
//! affinity slots. Each round has fleets of its own, and both see the same jobs in the same order.

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
use gpufleet_tests::{Chance, kernels};
use tokio::time::timeout;

use crate::{
    machine,
    stats::Spread,
    table::{spread, table},
};

const JOB_DEADLINE: Duration = Duration::from_secs(300);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each round
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// Jobs in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,
    /// Workers of the fleet
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
    /// Inputs, one of which each job uses
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=200))]
    inputs: u8,
    /// Inputs that stay on a device
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=200))]
    resident: u8,
    /// Size of an input in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    mib: u32,
    /// Rounds, the two fleets taking turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The workers' device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// One round on one fleet.
struct Round {
    seconds: f64,
    /// The share of jobs whose input was on the device.
    resident: f64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = machine::with_services().await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.repeat {
        eprintln!("round {} of {} …", round + 1, options.repeat);
        without.push(on_fleet(options, &services, false, round).await?);
        with.push(on_fleet(options, &services, true, round).await?);
    }
    println!(
        "{}\n{} workers on {:?}, each with room for {} of {} inputs of {} MiB, {} jobs, {} in flight; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.workers,
        options.cuda,
        options.resident,
        options.inputs,
        options.mib,
        options.jobs,
        options.in_flight,
        options.repeat
    );
    print(&with, &without);
    Ok(())
}

async fn on_fleet(options: &Options, services: &Arc<Services>, affinity: bool, round: u32) -> anyhow::Result<Round> {
    let folder = tempfile::tempdir()?;
    let pool = if affinity { "hot:affinity" } else { "hot" };
    let room = format!("{}MiB", u32::from(options.resident) * options.mib);
    let fleet = LocalFleet::builder()
        .label("bench")
        .workers(options.workers)
        .cuda(options.cuda.clone())
        .blobs(folder.path())
        .worker_args(["--pool", pool, "--resident-inputs", room.as_str()]);
    let fleet = fleet.on(services).start_with(&Lines).await?;
    let measured = measure(options, &fleet, folder.path(), affinity, round).await;
    let stopped = fleet.stop().await;
    let measured = measured?;
    stopped.context("stop the fleet")?;
    Ok(measured)
}

async fn measure(
    options: &Options,
    fleet: &LocalFleet,
    blobs: &Path,
    affinity: bool,
    round: u32,
) -> anyhow::Result<Round> {
    let builder = gpufleet::Fleet::builder().blobs(blobs).affinity(affinity);
    let client = builder.connect(&fleet.endpoints().amqp_url).await?;
    let mut inputs = Vec::new();
    for first in 0..options.inputs {
        let values = vec![f32::from(first); (options.mib as usize) << 18];
        inputs.push(client.store(Array::from_slice(&values)).await?);
    }
    let mut chance = Chance::of_seed(round.into());
    let choices: Vec<u8> = (0..options.jobs).map(|_| chance.between(0, u64::from(options.inputs) - 1) as u8).collect();
    // As in a fleet that has run for a while: each input is on some device when the clock starts.
    for choice in 0..options.inputs {
        one(&client, &inputs[usize::from(choice)], 2.0 * f32::from(choice)).await?;
    }
    let started = Instant::now();
    let timings: Vec<Timings> = stream::iter(choices)
        .map(|choice| one(&client, &inputs[usize::from(choice)], 2.0 * f32::from(choice)))
        .buffer_unordered(options.in_flight as usize)
        .try_collect()
        .await?;
    let seconds = started.elapsed().as_secs_f64();
    client.close().await;
    let resident = timings.iter().filter(|timings| timings.fetch_us == 0).count();
    Ok(Round { seconds, resident: resident as f64 / f64::from(options.jobs) })
}

/// Doubles the first element of the input, so that the way of the input to the kernel is what is measured.
async fn one(client: &gpufleet::Fleet, input: &StoredArray, expected: f32) -> anyhow::Result<Timings> {
    let job = Job::ptx(kernels::DOUBLES)
        .pool("hot".parse()?)
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

fn print(with: &[Round], without: &[Round]) {
    let seconds = |rounds: &[Round]| spread(&spread_of(rounds.iter().map(|round| round.seconds)), 1);
    let resident = |rounds: &[Round]| spread(&spread_of(rounds.iter().map(|round| 100.0 * round.resident)), 0);
    let mut table = table(["fleet", "seconds", "% of jobs whose input was resident"]);
    table.add_row(["affinity".to_owned(), seconds(with), resident(with)]);
    table.add_row(["none".to_owned(), seconds(without), resident(without)]);
    let ratios = with.iter().zip(without).map(|(with, without)| with.seconds / without.seconds);
    println!("\n{table}\n\ntime with affinity / without: {}", spread(&spread_of(ratios), 2));
}

fn spread_of(figures: impl IntoIterator<Item = f64>) -> Spread {
    Spread::of(figures).expect("there is a round")
}
