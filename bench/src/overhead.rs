//! `gpufleet-bench overhead`: measures what a worker adds to a tiny warm job, from the delivery until the reply is handed to the channel.
//! The worker itself logs this time, in a line that is off by default.
//!
//! The device's own work in that time, according to its events, is the job and not overhead. Two figures are shown for comparison: the part
//! that the executor spent on the job, and the time that this machine takes to wake two processes over a socket. A worker that runs kernels
//! in a separate process can't be faster than the latter.
//!
//! Everything is measured twice. First all processes share the cores: broker, database, ledger and producer wake up for the same job, and
//! the worker waits for them. Then the worker has half of the cores for itself, as if the broker were on another machine.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gpufleet::schema::Timings;
use gpufleet_local::{Cuda, LocalFleet, Services};
use tokio::time::{sleep, timeout};

use crate::{
    cores::{self, Split},
    ground, saxpy,
    stats::{Spread, percentile},
    table::{spread, table},
    usage::{Part, Parts},
};

/// The log filter that enables the line, and the field with the time.
const LOG_DIRECTIVE: &str = "warn,gpufleet_worker::supervisor::outbox=trace";
const FIELD: &str = "handled_us";
/// The number of jobs before the measured ones. They load the module, allocate memory for its buffers and warm caches.
const WARM_UP_JOBS: usize = 200;
/// The pause between two jobs, so that each job finds the worker asleep, like a worker that waits for work.
const PAUSE: Duration = Duration::from_millis(1);
const JOB_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The worker's device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

/// The durations of one round, in the order of measurement.
#[derive(Default)]
struct Round {
    handled: Vec<Duration>,
    device: Vec<Duration>,
    overhead: Vec<Duration>,
    executor: Vec<Duration>,
    wake_up: Vec<Duration>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    println!(
        "{}\nworker on {:?}, {} jobs a round, one at a time; medians of {} rounds, with the lowest and highest in parentheses",
        machine.line(),
        options.cuda,
        options.jobs,
        options.repeat
    );
    print("all cores for everybody", &on_fleet(options, &services, None).await?);
    match Split::of_this_machine()? {
        Some(split) => {
            let name = format!("{} of {} cores for the worker alone", split.worker.len(), machine.cores);
            print(&name, &on_fleet(options, &services, Some(&split)).await?);
        }
        None => println!("\nwith one core, the worker can't have one for itself"),
    }
    Ok(())
}

async fn on_fleet(options: &Options, services: &Arc<Services>, split: Option<&Split>) -> anyhow::Result<Vec<Round>> {
    let builder = LocalFleet::builder()
        .label("bench")
        .workers(0)
        .cuda(options.cuda.clone())
        .worker_env("GPUFLEET_LOG", LOG_DIRECTIVE);
    let measured = ground::on_fleet(services, builder, async |fleet| {
        match split {
            Some(split) => add_worker_apart(split, fleet).await?,
            None => drop(fleet.add_worker().await?),
        }
        measure(options, fleet).await
    });
    Box::pin(measured).await
}

/// Starts the worker on its cores, so that it sizes itself by them. Moves this program, and all other programs that it has started, to the
/// other cores.
async fn add_worker_apart(split: &Split, fleet: &LocalFleet) -> anyhow::Result<()> {
    let me = std::process::id();
    let everybody = Parts::default().with(Part::Client, [me]).pids();
    cores::keep(&everybody, &split.others)?;
    cores::keep(&[me], &split.worker)?;
    fleet.add_worker().await?;
    cores::keep(&[me], &split.others)
}

async fn measure(options: &Options, fleet: &LocalFleet) -> anyhow::Result<Vec<Round>> {
    let client =
        gpufleet::Fleet::connect(&fleet.endpoints().amqp_url).await.context("failed to connect to the fleet")?;
    let log = fleet.worker(0).process().log();
    eprintln!("warm up …");
    for number in 0..WARM_UP_JOBS {
        one(&client, number).await?;
    }
    let mut rounds = Vec::new();
    for round in 0..options.repeat {
        eprintln!("round {} of {} …", round + 1, options.repeat);
        let before = handled(&log)?.len();
        let mut measured = Round { wake_up: wake_ups(options.jobs)?, ..Round::default() };
        for number in 0..options.jobs as usize {
            let timings = one(&client, number).await?;
            measured.executor.push(Duration::from_micros(timings.total_us));
            measured.device.push(on_device(&timings));
            sleep(PAUSE).await;
        }
        measured.handled = handled(&log)?.split_off(before);
        let (lines, jobs) = (measured.handled.len(), options.jobs as usize);
        ensure!(lines == jobs, "the worker told of {lines} replies to {jobs} jobs");
        let both = measured.handled.iter().zip(&measured.device);
        measured.overhead = both.map(|(handled, device)| handled.saturating_sub(*device)).collect();
        rounds.push(measured);
    }
    client.close().await;
    Ok(rounds)
}

/// Submits one job and waits for its result.
async fn one(client: &gpufleet::Fleet, number: usize) -> anyhow::Result<Timings> {
    let job = async { anyhow::Ok(client.submit(saxpy::job(number, saxpy::FLOATS)).await?.await?) };
    let result = timeout(JOB_DEADLINE, job).await.context("a job was not answered in time")??;
    saxpy::check(number, saxpy::FLOATS, &result.output::<f32>("y")?)?;
    Ok(result.timings)
}

/// Returns the time of copies and kernels, measured by the device's events.
fn on_device(timings: &Timings) -> Duration {
    Duration::from_micros(timings.copy_in_us + timings.launches_us.iter().sum::<u64>() + timings.copy_out_us)
}

/// Returns the times that the worker has logged so far.
fn handled(log: &std::path::Path) -> anyhow::Result<Vec<Duration>> {
    let text = fs::read_to_string(log).with_context(|| format!("failed to read the worker's log {}", log.display()))?;
    let figures = text.lines().filter_map(|line| {
        let (_, figure) = line.split_once(FIELD)?;
        figure.strip_prefix('=')?.split_whitespace().next()?.parse().ok().map(Duration::from_micros)
    });
    Ok(figures.collect())
}

/// Sends a byte to another thread over a socket and one back, with a pause before each, and returns how long each exchange took.
fn wake_ups(count: u32) -> anyhow::Result<Vec<Duration>> {
    let (mut here, mut there) = UnixStream::pair().context("failed to make a pair of sockets")?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut all = Vec::new();
    for _ in 0..count {
        thread::sleep(PAUSE);
        let started = Instant::now();
        here.write_all(&[1])?;
        here.read_exact(&mut [0])?;
        all.push(started.elapsed());
    }
    drop(here);
    echo.join().expect("the echo does not panic");
    Ok(all)
}

fn print(cores: &str, rounds: &[Round]) {
    let mut table = table([cores, "p50 µs", "p99 µs"]);
    let mut row = |name: &str, part: fn(&Round) -> &[Duration]| {
        let figure = |percent| {
            let figures = rounds.iter().map(|round| percentile(part(round), percent).as_secs_f64() * 1e6);
            spread(&Spread::of_rounds(figures), 0)
        };
        table.add_row([name.to_owned(), figure(50.0), figure(99.0)]);
    };
    row("delivery to reply", |round| &round.handled);
    row("of it, copies and kernel on the device", |round| &round.device);
    row("the rest: overhead", |round| &round.overhead);
    row("the executor's time for the job", |round| &round.executor);
    row("a wake-up over a socket and back", |round| &round.wake_up);
    println!("\n{table}");
}
