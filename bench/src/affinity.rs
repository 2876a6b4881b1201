//! `gpufleet-bench affinity`: jobs over several large inputs that do not all fit on one device, on a fleet of several workers, with and
//! without affinity slots. Each round has new fleets, and both fleets get the same jobs in the same order.

use std::{path::Path, sync::Arc, time::Instant};

use fastrand::Rng;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet::schema::{PoolName, Timings};
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

/// The result of one round on one fleet.
struct Round {
    seconds: f64,
    /// The share of jobs whose input was already on the device.
    resident: f64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
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
    let builder = LocalFleet::builder()
        .label("bench")
        .workers(options.workers)
        .cuda(options.cuda.clone())
        .blobs(folder.path())
        .worker_args(["--pool", pool, "--resident-inputs", room.as_str()]);
    ground::on_fleet(services, builder, async |fleet| measure(options, fleet, folder.path(), affinity, round).await)
        .await
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
    let pool: PoolName = "hot".parse()?;
    let mut inputs = Vec::new();
    for value in (0..options.inputs).map(f32::from) {
        inputs.push((store(&client, options.mib, value).await?, value));
    }
    let mut chance = Rng::with_seed(round.into());
    let chosen: Vec<_> = (0..options.jobs).filter_map(|_| chance.choice(&inputs)).collect();
    // Warms the fleet up, so that each input is on some device when the clock starts.
    for (input, value) in &inputs {
        shared_input::run(&client, doubling(input, pool.clone()), *value).await?;
    }
    let started = Instant::now();
    let timings: Vec<Timings> = stream::iter(chosen)
        .map(|(input, value)| shared_input::run(&client, doubling(input, pool.clone()), *value))
        .buffer_unordered(options.in_flight as usize)
        .try_collect()
        .await?;
    let seconds = started.elapsed().as_secs_f64();
    client.close().await;
    let resident = timings.iter().filter(|timings| timings.fetch_us == 0).count();
    Ok(Round { seconds, resident: resident as f64 / f64::from(options.jobs) })
}

fn print(with: &[Round], without: &[Round]) {
    let seconds = |rounds: &[Round]| spread(&Spread::of_rounds(rounds.iter().map(|round| round.seconds)), 1);
    let resident = |rounds: &[Round]| spread(&Spread::of_rounds(rounds.iter().map(|round| 100.0 * round.resident)), 0);
    let mut table = table(["fleet", "seconds", "% of jobs whose input was resident"]);
    table.add_row(["affinity".to_owned(), seconds(with), resident(with)]);
    table.add_row(["none".to_owned(), seconds(without), resident(without)]);
    let ratios = with.iter().zip(without).map(|(with, without)| with.seconds / without.seconds);
    println!("\n{table}\n\ntime with affinity / without: {}", spread(&Spread::of_rounds(ratios), 2));
}
