//! `gpufleet-bench round-trips`: small jobs there and back, the loops taking turns so that the machine's drift meets all alike.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use gpufleet_local::{Cuda, Lines};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bare::{BareLoop, foreign::ForeignProducer},
    cpu::{CpuTimes, Part, Parts, since},
    fleet::{PACK, Producer},
    machine::{self, Machine},
    programs,
    report::{Case, Measured, Report, Setup, Subject, summarise},
    saxpy,
    stats::Run,
    table,
};

/// For one loop of one round, with a share for each job. A healthy loop takes a second or two, and a loop that hangs is to be told
/// of before its confirms time out (60 s).
const RUN_DEADLINE: Duration = Duration::from_secs(30);
const RUN_DEADLINE_PER_JOB: Duration = Duration::from_millis(10);
/// For the fleet to come to rest after a loop: the ledger writes what the loop left behind.
const REST_DEADLINE: Duration = Duration::from_secs(60);
/// A fleet at rest uses less than a tenth of a core, looked at over this time.
const REST_WINDOW: Duration = Duration::from_millis(300);
const REST_SHARE_MAX: f64 = 0.1;
/// Prefetch bounds what the bare loop can keep in flight.
const IN_FLIGHT_MAX: u64 = 4096;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each loop and round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Jobs that are submitted and not yet answered
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=IN_FLIGHT_MAX))]
    in_flight: u64,
    /// Jobs of each loop and round with one in flight, which tells the latency
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    latency_jobs: u64,
    /// Rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// The workers' device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
    /// The workers' prefetch, in place of their default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: Option<u16>,
    /// Leaves the ledger out; events then stay in the broker
    #[arg(long)]
    no_ledger: bool,
    /// Keeps the logs of the fleet's processes there
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

/// Everything that a run needs, running.
struct Bench {
    bare: BareLoop,
    foreign: ForeignProducer,
    producer: Producer,
    parts: Parts,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    machine::warn_unless_optimised();
    programs::build()?;
    let load_before = machine::load();
    let mut builder = gpufleet_local::Fleet::builder()
        .label("bench")
        .workers(options.workers)
        .cuda(options.cuda.clone())
        .ledger(!options.no_ledger);
    if let Some(prefetch) = options.prefetch {
        builder = builder.worker_args(["--prefetch".to_owned(), prefetch.to_string()]);
    }
    if let Some(directory) = &options.logs {
        builder = builder.logs(directory);
    }
    let fleet = builder.start_with(&Lines).await?;
    let measured = Box::pin(measure(options, &fleet, load_before)).await;
    let stopped = fleet.stop().await;
    let report = measured?;
    match options.output {
        Output::Table => print!("{}", table::render(&report)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    let forced = stopped.context("stop the fleet")?;
    ensure!(forced.is_empty(), "these did not stop by themselves: {}", forced.join(", "));
    Ok(())
}

async fn measure(options: &Options, fleet: &gpufleet_local::Fleet, load_before: f64) -> anyhow::Result<Report> {
    let machine = Machine::look(machine::broker_version(fleet.services()).await?, load_before);
    let amqp_url = &fleet.endpoints().amqp_url;
    let in_flight_max = u16::try_from(options.in_flight).expect("the option is bounded");
    let bare = BareLoop::start(amqp_url, in_flight_max).await?;
    let foreign = ForeignProducer::connect(amqp_url, in_flight_max).await?;
    let producer = Producer::connect(amqp_url, saxpy::FLOATS).await?;
    let task_bytes = saxpy::message_body(0, producer.name())?.len();
    let parts = parts(fleet, &bare);
    let bench = Bench { bare, foreign, producer, parts };
    let cases = options.cases();
    let measured = bench.rounds(&cases, options.repeat).await;
    if measured.is_err() {
        eprintln!("the broker's channels at the failure: {}", channels(fleet).await);
    }
    let Bench { bare, foreign, producer, .. } = bench;
    producer.close().await;
    let closed = foreign.close().await.and(bare.close().await);
    let summaries = summarise(&cases, &measured?);
    closed?;
    let setup = Setup {
        workers: options.workers,
        prefetch: options.prefetch,
        device: format!("{:?}", options.cuda).to_lowercase(),
        ledger: !options.no_ledger,
        rounds: usize::try_from(options.repeat)?,
        floats: saxpy::FLOATS,
        task_bytes,
        pack: PACK,
    };
    Ok(Report { machine, setup, cases: summaries })
}

impl Options {
    /// In the order in which they take turns.
    fn cases(&self) -> Vec<Case> {
        let size = |count: u64| usize::try_from(count).expect("the options are bounded");
        let many = [Subject::Bare, Subject::Foreign, Subject::Submit, Subject::SubmitMany].map(|subject| Case {
            subject,
            in_flight: size(self.in_flight),
            jobs: size(self.jobs),
        });
        let single = [Subject::Bare, Subject::Submit].map(|subject| Case {
            subject,
            in_flight: 1,
            jobs: size(self.latency_jobs),
        });
        many.into_iter().chain(single).collect()
    }
}

impl Bench {
    async fn rounds(&self, cases: &[Case], rounds: u64) -> anyhow::Result<Vec<Measured>> {
        eprintln!("warm up …");
        for case in cases {
            self.run(*case).await?;
        }
        let mut measured = Vec::new();
        for round in 0..usize::try_from(rounds)? {
            eprintln!("round {} of {rounds} …", round + 1);
            for case in cases {
                self.rest().await?;
                let before = self.parts.cpu_times();
                let run = self.run(*case).await?;
                let cpu = since(&before, &self.rest().await?);
                measured.push(Measured { round, case: *case, run, cpu });
            }
        }
        Ok(measured)
    }

    async fn run(&self, case: Case) -> anyhow::Result<Run> {
        let Case { subject, in_flight, jobs } = case;
        let run = async {
            match subject {
                Subject::Bare => {
                    let bodies: Result<_, _> =
                        (0..jobs).map(|number| saxpy::message_body(number, self.producer.name())).collect();
                    self.bare.run(bodies?, in_flight).await
                }
                Subject::Foreign => self.foreign.run(jobs, in_flight).await,
                Subject::Submit => self.producer.submit_each(jobs, in_flight).await,
                Subject::SubmitMany => self.producer.submit_many(jobs, in_flight).await,
            }
        };
        let name = subject.name();
        let deadline = RUN_DEADLINE + RUN_DEADLINE_PER_JOB * u32::try_from(jobs)?;
        timeout(deadline, run)
            .await
            .with_context(|| format!("{name}: {jobs} jobs were not answered in {} s", deadline.as_secs()))?
            .with_context(|| name)
    }

    /// Waits until nobody works any more, so that one loop's aftermath does not burden the next. Gives what had been spent
    /// when the rest began.
    async fn rest(&self) -> anyhow::Result<CpuTimes> {
        let deadline = Instant::now() + REST_DEADLINE;
        let mut before = self.parts.cpu_times();
        loop {
            sleep(REST_WINDOW).await;
            let now = self.parts.cpu_times();
            let spent: Duration = since(&before, &now).values().sum();
            if spent.as_secs_f64() < REST_SHARE_MAX * REST_WINDOW.as_secs_f64() {
                return Ok(before);
            }
            ensure!(Instant::now() < deadline, "the fleet did not come to rest in {} s", REST_DEADLINE.as_secs());
            before = now;
        }
    }
}

fn parts(fleet: &gpufleet_local::Fleet, bare: &BareLoop) -> Parts {
    let services = fleet.services();
    Parts::default()
        .with(Part::Client, [std::process::id()])
        .with(Part::BareConsumer, bare.consumer_pid())
        .with(Part::Broker, services.broker().pid())
        .with(Part::Postgres, services.postgres().pid())
        .with(Part::Ledger, fleet.ledger().map(|ledger| ledger.pid()))
        .with(Part::Supervisor, fleet.workers().iter().map(|worker| worker.pid()))
        .with_children(Part::Supervisor, Part::Executor)
}

/// Who waits for whom, as the broker sees it: what it has not confirmed, and what nobody has acknowledged.
async fn channels(fleet: &gpufleet_local::Fleet) -> String {
    const QUESTION: &str = "[I || I <- rabbit_channel:info_all([number, connection, messages_unconfirmed, messages_unacknowledged, prefetch_count])].";
    fleet.services().broker().eval(QUESTION).await.unwrap_or_else(|error| error.to_string())
}
