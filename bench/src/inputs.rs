//! `gpufleet-bench inputs`: jobs that share one large input, which stays on the device, beside the same jobs on a worker that keeps no
//! input, as before there were resident inputs.

use std::{path::Path, sync::Arc, time::Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet::schema::{PoolName, Timings};
use gpufleet_local::{Cuda, LocalFleet, Services};

use crate::{
    ground,
    shared_input::{double, store},
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
    let (services, machine) = ground::services().await?;
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
    let builder = LocalFleet::builder()
        .label("bench")
        .workers(1)
        .cuda(options.cuda.clone())
        .blobs(folder.path())
        .worker_args(arguments.iter().copied());
    ground::on_fleet(services, builder, async |fleet| measure(options, fleet, folder.path(), jobs).await).await
}

async fn measure(options: &Options, fleet: &LocalFleet, blobs: &Path, jobs: u32) -> anyhow::Result<Round> {
    const VALUE: f32 = 21.0;
    let client = gpufleet::Fleet::builder().blobs(blobs).connect(&fleet.endpoints().amqp_url).await?;
    // Another input of the same size, so that the module is loaded and the memory is mapped when the clock starts.
    let other = store(&client, options.mib, 1.0).await?;
    double(&client, PoolName::default(), &other, 1.0).await?;
    let input = store(&client, options.mib, VALUE).await?;
    let started = Instant::now();
    let timings: Vec<Timings> = stream::iter(0..jobs)
        .map(|_| double(&client, PoolName::default(), &input, VALUE))
        .buffer_unordered(options.in_flight as usize)
        .try_collect()
        .await?;
    let took = started.elapsed();
    client.close().await;
    let fetched = timings.iter().filter(|timings| timings.fetch_us > 0).count();
    Ok(Round { jobs_per_second: f64::from(jobs) / took.as_secs_f64(), fetched })
}

fn print(options: &Options, with: &[Round], without: &[Round]) {
    let rate = |rounds: &[Round]| spread(&Spread::of_rounds(rounds.iter().map(|round| round.jobs_per_second)), 1);
    let fetched = |rounds: &[Round]| spread(&Spread::of_rounds(rounds.iter().map(|round| round.fetched as f64)), 0);
    let mut table = table(["worker", "jobs", "jobs/s", "jobs that read the store"]);
    table.add_row(["resident inputs".to_owned(), options.jobs.to_string(), rate(with), fetched(with)]);
    table.add_row(["none".to_owned(), options.jobs_without.to_string(), rate(without), fetched(without)]);
    let ratios = with.iter().zip(without).map(|(with, without)| with.jobs_per_second / without.jobs_per_second);
    println!("\n{table}\n\nresident / none: {}", spread(&Spread::of_rounds(ratios), 1));
}
