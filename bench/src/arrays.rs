//! `gpufleet-bench arrays`: jobs that take an array of 1 MiB and return it, in their messages and by reference, next to a bare loop over
//! the broker with messages of equal size.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::{TryStreamExt as _, stream};
use gpufleet::{Fleet, Job, schema::Dtype};
use gpufleet_local::{Cuda, LocalFleet, Services};
use gpufleet_tests::kernels;
use tokio::time::timeout;

use crate::{
    bare::BareLoop,
    ground,
    stats::Spread,
    table::{spread, table},
};

/// The number of floats in an array: 1 MiB, the least that a client stores in the blob store by itself.
const FLOATS: usize = 1 << 18;
const INLINE_OF_BARE_MIN: f64 = 0.8;
const STORED_OF_INLINE_MIN: f64 = 2.0;
const TURN_DEADLINE: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each turn
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
    jobs: u16,
    /// Jobs that are submitted and not yet answered
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    in_flight: u16,
    /// Rounds of three turns, after one to warm up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The worker's device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// The jobs per second of a round.
#[derive(Debug, Clone, Copy)]
struct Round {
    bare: f64,
    inline: f64,
    stored: f64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    println!(
        "{}\nworker on {:?}, 1 MiB to each job and back, {} jobs a turn, {} in flight; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.cuda,
        options.jobs,
        options.in_flight,
        options.repeat
    );
    print(&on_fleet(options, &services).await?);
    Ok(())
}

async fn on_fleet(options: &Options, services: &Arc<Services>) -> anyhow::Result<Vec<Round>> {
    let folder = tempfile::tempdir()?;
    let builder = LocalFleet::builder().label("bench").workers(1).cuda(options.cuda.clone()).blobs(folder.path());
    let measured = ground::on_fleet(services, builder, async |fleet| measure(options, fleet, folder.path()).await);
    Box::pin(measured).await
}

async fn measure(options: &Options, fleet: &LocalFleet, blobs: &Path) -> anyhow::Result<Vec<Round>> {
    let amqp_url = &fleet.endpoints().amqp_url;
    let bare = BareLoop::start(amqp_url, options.in_flight).await?;
    let inline = Fleet::connect(amqp_url).await?;
    let stored = Fleet::builder().blobs(blobs).connect(amqp_url).await?;
    let rounds = rounds(options, &bare, &inline, &stored).await?;
    inline.close().await;
    stored.close().await;
    bare.close().await?;
    Ok(rounds)
}

async fn rounds(options: &Options, bare: &BareLoop, inline: &Fleet, stored: &Fleet) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for round in 0..=options.repeat {
        eprintln!("round {round} of {} …", options.repeat);
        rounds.push(Round {
            bare: bare_turn(options, bare).await?,
            inline: turn(options, inline, round).await?,
            stored: turn(options, stored, round).await?,
        });
    }
    // The first round only warms up.
    Ok(rounds.split_off(1))
}

async fn bare_turn(options: &Options, bare: &BareLoop) -> anyhow::Result<f64> {
    let bodies = (0..options.jobs).map(|number| vec![number as u8; FLOATS * size_of::<f32>()]).collect();
    let run = timeout(TURN_DEADLINE, bare.run(bodies, options.in_flight.into()));
    let run = run.await.context("the bare loop did not end in time")??;
    Ok(f64::from(options.jobs) / run.took.as_secs_f64())
}

async fn turn(options: &Options, client: &Fleet, round: u32) -> anyhow::Result<f64> {
    let first = round * u32::from(options.jobs);
    let arrays: Vec<Vec<f32>> =
        (0..u32::from(options.jobs)).map(|number| vec![(first + number) as f32; FLOATS]).collect();
    let started = Instant::now();
    let jobs = stream::iter(arrays.into_iter().map(anyhow::Ok))
        .try_for_each_concurrent(usize::from(options.in_flight), |array| there_and_back(client, array));
    timeout(TURN_DEADLINE, jobs).await.context("the jobs were not answered in time")??;
    Ok(f64::from(options.jobs) / started.elapsed().as_secs_f64())
}

/// Submits a job that takes the array and returns it. The kernel reads one number, so that the transfer of the array is measured.
async fn there_and_back(client: &Fleet, array: Vec<f32>) -> anyhow::Result<()> {
    let job = Job::ptx(kernels::DOUBLES)
        .input("x", &array)
        .zeros("y", Dtype::F32, [1])
        .entry("doubles")
        .cover([1])
        .arg_buffer("x")
        .arg_buffer("y")
        .arg(1_u32)
        .output("x");
    let found: Vec<f32> = client.submit(job).await?.await?.output("x")?;
    ensure!(found == array, "a job returned another array");
    Ok(())
}

fn print(rounds: &[Round]) {
    let of = |figure: fn(&Round) -> f64| Spread::of_rounds(rounds.iter().map(figure));
    let inline_of_bare = of(|round| round.inline / round.bare);
    let stored_of_inline = of(|round| round.stored / round.inline);
    let mut table = table(["loop", "jobs/s", "ratio", "bar"]);
    let row = |name: &str, rate: &Spread, ratio: String, bar: String| [name.to_owned(), spread(rate, 1), ratio, bar];
    table.add_row(row("bare loop", &of(|round| round.bare), String::new(), String::new()));
    table.add_row(row(
        "in messages",
        &of(|round| round.inline),
        format!("{} of bare", spread(&inline_of_bare, 2)),
        verdict(&inline_of_bare, INLINE_OF_BARE_MIN),
    ));
    table.add_row(row(
        "by reference",
        &of(|round| round.stored),
        format!("{} of in messages", spread(&stored_of_inline, 2)),
        verdict(&stored_of_inline, STORED_OF_INLINE_MIN),
    ));
    println!("\n{table}");
}

fn verdict(ratio: &Spread, bar: f64) -> String {
    format!("{bar}: {}", if ratio.median >= bar { "reached" } else { "missed" })
}
