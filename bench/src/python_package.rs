//! `gpufleet-bench python`: measures the Python package next to the Rust client on which it is built, and next to a
//! producer that uses only aio-pika, on one fleet. They take turns, and the fleet rests in between.

use std::{
    env,
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use gpufleet::{Fleet, Job};
use gpufleet_local::{Cuda, LocalFleet, Services, setup};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    ground,
    python::{Program, PythonProgram},
    rest::rest,
    saxpy,
    stats::{Run, Spread},
    table::{spread, table},
    usage::{Part, Parts, since},
};

/// The variable for the folder of the built package, set by `cargo xtask bench-python`.
const PACKAGE: &str = "BENCH_PYTHON_PACKAGE";
const IDLE_POOL: &str = "idle";
const TURN_DEADLINE: Duration = Duration::from_secs(120);
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each turn
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    /// Jobs of each turn with one in flight
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    latency_jobs: u32,
    /// Jobs that wait at the same time
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    open_jobs: u32,
    /// Rounds, after one to warm up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Size of the array that is stored
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    mib: u32,
}

/// The result of a turn, over all of its jobs.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Turn {
    seconds: f64,
    cpu_seconds: f64,
}

/// The round trips of jobs that run one after the other.
#[derive(Debug, Deserialize)]
struct Trips {
    ms: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Open {
    bytes_each: f64,
    cancel_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Put {
    seconds: f64,
    growth_bytes: f64,
    again_seconds: f64,
}

/// The comparisons: a way to use the package, and the corresponding way to use the Rust client.
const WAYS: [(&str, &str, RustWay); 3] = [
    ("map", "map", RustWay::Many),
    ("submit + as_completed", "submit", RustWay::Each),
    ("await gather", "gather", RustWay::Each),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RustWay {
    Many,
    Each,
}

impl RustWay {
    const fn name(self) -> &'static str {
        match self {
            Self::Many => "Rust submit_many",
            Self::Each => "Rust submit",
        }
    }
}

#[derive(Debug, Default)]
struct Rounds {
    many: Vec<Turn>,
    each: Vec<Turn>,
    python: [Vec<Turn>; WAYS.len()],
    aio_pika: Vec<Turn>,
    rust_p50: Vec<f64>,
    call_p50: Vec<f64>,
    await_p50: Vec<f64>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    let folder = tempfile::tempdir()?;
    let builder = LocalFleet::builder().label("bench").workers(1).cuda(Cuda::Emulated).blobs(folder.path());
    let measured =
        ground::on_fleet(&services, builder, async |fleet| measure(options, &services, fleet, folder.path()).await);
    let (about, rounds, open, put) = Box::pin(measured).await?;
    println!(
        "{}\n{about}\n{} jobs a turn, {} with one in flight; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.jobs,
        options.latency_jobs,
        options.repeat
    );
    print(options, &rounds);
    println!(
        "{} jobs that wait: {:.0} B of memory each; cancelling all by their label took {:.2} s",
        options.open_jobs, open.bytes_each, open.cancel_seconds
    );
    println!(
        "put of {} MiB: {:.2} s, {:.1} MiB more memory; again {:.2} s",
        options.mib,
        put.seconds,
        put.growth_bytes / MIB,
        put.again_seconds
    );
    Ok(())
}

async fn measure(
    options: &Options,
    services: &Services,
    fleet: &LocalFleet,
    blobs: &Path,
) -> anyhow::Result<(String, Rounds, Open, Put)> {
    let amqp_url = &fleet.endpoints().amqp_url;
    let rust = Fleet::connect(amqp_url).await?;
    let mut python = start(services, amqp_url, blobs).await?;
    let mut aio_pika = start_aio_pika(services, amqp_url).await?;
    let parts = ground::parts(fleet);
    let mut rounds = Rounds::default();
    for round in 0..=options.repeat {
        eprintln!("round {round} of {} …", options.repeat);
        let measured = Box::pin(one_round(options, &parts, &rust, &mut python, &mut aio_pika)).await?;
        // The first round only warms up.
        if round > 0 {
            rounds.add(measured);
        }
    }
    rust.close().await;
    let about = format!("{}; {}", python.about(), aio_pika.about());
    aio_pika.stop().await?;
    declare_idle_pool(fleet).await?;
    let open = python.ask(json!({ "do": "open", "jobs": options.open_jobs })).await?;
    let put = python.ask(json!({ "do": "put", "mib": options.mib })).await?;
    python.stop().await?;
    Ok((about, rounds, open, put))
}

async fn start(services: &Services, amqp_url: &str, blobs: &Path) -> anyhow::Result<PythonProgram> {
    let package = env::var_os(PACKAGE).map(PathBuf::from);
    let package = package.with_context(|| format!("{PACKAGE} is not set; run `cargo xtask bench-python`"))?;
    let interpreter = setup::Part::PythonTools.interpreter()?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a folder's name is not UTF-8");
    let (package, blobs) = (text(&package)?, text(blobs)?);
    let environment =
        [("PYTHONPATH", package.as_str()), ("BENCH_BLOBS", blobs.as_str()), ("BENCH_IDLE_POOL", IDLE_POOL)];
    let program = Program {
        name: "gpufleet",
        run: "gpufleet-python",
        interpreter: Some(&interpreter),
        amqp_url: Some(amqp_url),
        floats: saxpy::FLOATS,
        environment: &environment,
    };
    PythonProgram::start(services, program).await
}

async fn start_aio_pika(services: &Services, amqp_url: &str) -> anyhow::Result<PythonProgram> {
    let program = Program {
        name: "aio_pika",
        run: "aio-pika",
        interpreter: None,
        amqp_url: Some(amqp_url),
        floats: saxpy::FLOATS,
        environment: &[],
    };
    PythonProgram::start(services, program).await
}

/// Declares the queues of a pool by starting a worker, which then leaves.
async fn declare_idle_pool(fleet: &LocalFleet) -> anyhow::Result<()> {
    let worker = fleet.launch_worker(&["--pool", IDLE_POOL])?;
    worker.wait_ready().await?;
    ensure!(worker.terminate().await?, "the worker of the idle pool did not stop by itself");
    Ok(())
}

async fn one_round(
    options: &Options,
    parts: &Parts,
    rust: &Fleet,
    python: &mut PythonProgram,
    aio_pika: &mut PythonProgram,
) -> anyhow::Result<Rounds> {
    let jobs = options.jobs as usize;
    let mut round = Rounds::default();
    for (turns, way) in [(&mut round.many, RustWay::Many), (&mut round.each, RustWay::Each)] {
        rest(parts).await?;
        turns.push(turn(rust, parts, jobs, way).await?);
    }
    rest(parts).await?;
    round.aio_pika.push(aio_pika.ask(json!({ "do": "submit", "jobs": jobs })).await?);
    for (turns, (_, request, _)) in round.python.iter_mut().zip(&WAYS) {
        rest(parts).await?;
        turns.push(python.ask(json!({ "do": request, "jobs": jobs })).await?);
    }
    rest(parts).await?;
    round.rust_p50.push(one_by_one(rust, options.latency_jobs as usize).await?);
    for (p50, request) in [(&mut round.call_p50, "call"), (&mut round.await_p50, "await")] {
        rest(parts).await?;
        let trips: Trips = python.ask(json!({ "do": request, "jobs": options.latency_jobs })).await?;
        p50.push(p50_us(trips.ms.iter().map(|ms| Duration::from_secs_f64(ms / 1e3))));
    }
    Ok(round)
}

async fn turn(client: &Fleet, parts: &Parts, jobs: usize, way: RustWay) -> anyhow::Result<Turn> {
    let all: Vec<Job> = (0..jobs).map(|number| saxpy::job(number, saxpy::FLOATS)).collect();
    // The fleet's programs are children of this process. So are the Python programs, but they rest meanwhile.
    let everybody = parts.clone().with(Part::Client, [process::id()]);
    let (before, started) = (everybody.usages(), Instant::now());
    let work = async {
        let handles = match way {
            RustWay::Many => client.submit_many(all).await.into_iter().collect::<Result<Vec<_>, _>>()?,
            RustWay::Each => try_join_all(all.into_iter().map(|job| client.submit(job))).await?,
        };
        let mut results = Vec::with_capacity(jobs);
        for handle in handles {
            results.push(handle.await?);
        }
        anyhow::Ok(results)
    };
    let results = timeout(TURN_DEADLINE, work).await.context("a turn did not end in time")??;
    let seconds = started.elapsed().as_secs_f64();
    let spent = since(&before, &everybody.usages());
    for (number, result) in results.iter().enumerate() {
        saxpy::check(number, saxpy::FLOATS, &result.output::<f32>("y")?)?;
    }
    let cpu_seconds = spent.get(&Part::Client).copied().unwrap_or_default().cpu.as_secs_f64();
    Ok(Turn { seconds, cpu_seconds })
}

async fn one_by_one(client: &Fleet, jobs: usize) -> anyhow::Result<f64> {
    let mut trips = Vec::with_capacity(jobs);
    for number in 0..jobs {
        let job = saxpy::job(number, saxpy::FLOATS);
        let started = Instant::now();
        let result = client.submit(job).await?.await?;
        trips.push(started.elapsed());
        saxpy::check(number, saxpy::FLOATS, &result.output::<f32>("y")?)?;
    }
    Ok(p50_us(trips))
}

fn p50_us(trips: impl IntoIterator<Item = Duration>) -> f64 {
    Run { took: Duration::ZERO, round_trips: trips.into_iter().collect() }.percentile_ms(50.0) * 1e3
}

impl Rounds {
    fn add(&mut self, round: Self) {
        self.many.extend(round.many);
        self.each.extend(round.each);
        for (all, more) in self.python.iter_mut().zip(round.python) {
            all.extend(more);
        }
        self.aio_pika.extend(round.aio_pika);
        self.rust_p50.extend(round.rust_p50);
        self.call_p50.extend(round.call_p50);
        self.await_p50.extend(round.await_p50);
    }

    fn rust(&self, way: RustWay) -> &[Turn] {
        match way {
            RustWay::Many => &self.many,
            RustWay::Each => &self.each,
        }
    }
}

fn print(options: &Options, rounds: &Rounds) {
    let jobs = f64::from(options.jobs);
    let rate = |turns: &[Turn]| spread(&Spread::of_rounds(turns.iter().map(|turn| jobs / turn.seconds)), 0);
    let cpu = |turns: &[Turn]| spread(&Spread::of_rounds(turns.iter().map(|turn| turn.cpu_seconds * 1e6 / jobs)), 1);
    let mut many = table(["way", "jobs/s", "of Rust", "client's CPU, µs a job"]);
    for way in [RustWay::Many, RustWay::Each] {
        let turns = rounds.rust(way);
        many.add_row([way.name().to_owned(), rate(turns), String::new(), cpu(turns)]);
    }
    for ((name, _, way), turns) in WAYS.iter().zip(&rounds.python) {
        let ratios = turns.iter().zip(rounds.rust(*way)).map(|(python, rust)| rust.seconds / python.seconds);
        let ratio = format!("{} of {}", spread(&Spread::of_rounds(ratios), 2), way.name());
        many.add_row([(*name).to_owned(), rate(turns), ratio, cpu(turns)]);
    }
    many.add_row(["aio-pika".to_owned(), rate(&rounds.aio_pika), String::new(), cpu(&rounds.aio_pika)]);
    let [_, submits, _] = &rounds.python;
    let of_aio_pika = submits.iter().zip(&rounds.aio_pika).map(|(python, aio_pika)| aio_pika.seconds / python.seconds);
    let mut one = table(["one in flight", "p50 µs", "more than Rust, µs"]);
    one.add_row(["Rust".to_owned(), spread(&Spread::of_rounds(rounds.rust_p50.iter().copied()), 0), String::new()]);
    for (name, trips) in [("call", &rounds.call_p50), ("await", &rounds.await_p50)] {
        let more = trips.iter().zip(&rounds.rust_p50).map(|(python, rust)| python - rust);
        let p50 = spread(&Spread::of_rounds(trips.iter().copied()), 0);
        one.add_row([name.to_owned(), p50, spread(&Spread::of_rounds(more), 0)]);
    }
    println!(
        "\n{many}\n{} is {} times as fast as aio-pika.\n\n{one}\n",
        WAYS[1].0,
        spread(&Spread::of_rounds(of_aio_pika), 2)
    );
}
