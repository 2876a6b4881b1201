//! `gpufleet-bench round-trips`: measures round trips of small jobs. The compared loops take turns, so that a drift of the machine affects
//! them equally.

use std::{path::PathBuf, thread, time::Duration};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use gpufleet_local::{Cuda, Lines};
use tokio::time::timeout;

use crate::{
    bare::{BareLoop, foreign::ForeignProducer},
    fleet::{PACK, Producer},
    ground,
    machine::{self, Machine},
    programs,
    python::{Program, PythonProgram},
    report::{Case, Measured, Report, Setup, Subject, summarise},
    rest::rest,
    saxpy,
    stats::Run,
    table,
    usage::{Part, Parts, since},
};

/// The deadline for one loop of one round, plus a share for each job. A healthy loop takes a second or two. A loop that hangs must be
/// reported before its confirms time out (60 s).
const RUN_DEADLINE: Duration = Duration::from_secs(30);
const RUN_DEADLINE_PER_JOB: Duration = Duration::from_millis(10);
/// The maximum of `--in-flight`, because the prefetch bounds what the bare loop can have in flight.
const IN_FLIGHT_MAX: u64 = 4096;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs of each loop and round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Jobs that are submitted and not yet answered
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=IN_FLIGHT_MAX))]
    in_flight: u64,
    /// Jobs of each loop and round with one in flight, to measure the latency
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
    /// Leaves out the producers in Python: pika and Celery
    #[arg(long)]
    no_python: bool,
    /// Runs only these loops, such as `bare,submit-many`; ratios need `bare`
    #[arg(long, value_delimiter = ',', value_name = "LOOP")]
    only: Vec<Subject>,
    /// Keeps the logs of all processes there
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// The running programs of the benchmark.
struct Bench {
    bare: BareLoop,
    foreign: ForeignProducer,
    producer: Producer,
    python: Option<Python>,
    parts: Parts,
}

/// The Python producers.
struct Python {
    pika: PythonProgram,
    celery: PythonProgram,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    let load_before = machine::load();
    let mut builder = gpufleet_local::LocalFleet::builder()
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
        Format::Table => print!("{}", table::render(&report)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    let forced = stopped.context("failed to stop the fleet")?;
    ensure!(forced.is_empty(), "these did not stop by themselves: {}", forced.join(", "));
    Ok(())
}

async fn measure(options: &Options, fleet: &gpufleet_local::LocalFleet, load_before: f64) -> anyhow::Result<Report> {
    let machine = Machine::look(machine::broker_version(fleet.services()).await?, load_before);
    let amqp_url = &fleet.endpoints().amqp_url;
    let in_flight_max = u16::try_from(options.in_flight).expect("the option is bounded");
    let bare = BareLoop::start(amqp_url, in_flight_max).await?;
    let foreign = ForeignProducer::connect(amqp_url, in_flight_max).await?;
    let producer = Producer::connect(amqp_url, saxpy::FLOATS).await?;
    let task_bytes = saxpy::message_body(0, producer.name())?.len();
    let python = if options.no_python { None } else { Some(Python::start(fleet, options.in_flight).await?) };
    let parts = parts(fleet, &bare, python.as_ref());
    let mut bench = Bench { bare, foreign, producer, python, parts };
    let cases = options.cases();
    let measured = bench.rounds(&cases, options.repeat).await;
    if measured.is_err() {
        eprintln!("the broker's channels at the failure: {}", channels(fleet).await);
    }
    let Bench { bare, foreign, producer, python, .. } = bench;
    producer.close().await;
    let mut closed = foreign.close().await.and(bare.close().await);
    let mut about = Vec::new();
    if let Some(Python { pika, celery }) = python {
        about = [&pika, &celery].map(|program| program.about().to_owned()).into();
        closed = closed.and(pika.stop().await).and(celery.stop().await);
    }
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
        python: about,
    };
    Ok(Report { machine, setup, cases: summaries })
}

impl Options {
    /// Returns the cases in the order in which they take turns.
    fn cases(&self) -> Vec<Case> {
        let size = |count: u64| usize::try_from(count).expect("the options are bounded");
        let is_chosen = |subject: &Subject| match subject {
            Subject::Pika | Subject::Celery if self.no_python => false,
            _ => self.only.is_empty() || self.only.contains(subject),
        };
        let many =
            [Subject::Bare, Subject::Foreign, Subject::Submit, Subject::SubmitMany, Subject::Pika, Subject::Celery];
        let single = [Subject::Bare, Subject::Submit, Subject::Pika, Subject::Celery];
        let (in_flight, jobs, latency_jobs) = (size(self.in_flight), size(self.jobs), size(self.latency_jobs));
        let many = many.into_iter().map(|subject| Case { subject, in_flight, jobs });
        let single = single.into_iter().map(|subject| Case { subject, in_flight: 1, jobs: latency_jobs });
        many.chain(single).filter(|case| is_chosen(&case.subject)).collect()
    }
}

impl Bench {
    async fn rounds(&mut self, cases: &[Case], rounds: u64) -> anyhow::Result<Vec<Measured>> {
        eprintln!("warm up …");
        for case in cases {
            self.run(*case).await?;
        }
        let mut measured = Vec::new();
        for round in 0..usize::try_from(rounds)? {
            eprintln!("round {} of {rounds} …", round + 1);
            for case in cases {
                rest(&self.parts).await?;
                let before = self.parts.usages();
                let run = self.run(*case).await?;
                let usages = since(&before, &rest(&self.parts).await?);
                measured.push(Measured { round, case: *case, run, usages });
            }
        }
        Ok(measured)
    }

    async fn run(&mut self, case: Case) -> anyhow::Result<Run> {
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
                Subject::Pika => self.python()?.pika.run(jobs, in_flight).await,
                Subject::Celery => self.python()?.celery.run(jobs, in_flight).await,
            }
        };
        let name = subject.name();
        let deadline = RUN_DEADLINE + RUN_DEADLINE_PER_JOB * u32::try_from(jobs)?;
        timeout(deadline, run)
            .await
            .with_context(|| format!("{name}: {jobs} jobs were not answered in {} s", deadline.as_secs()))?
            .with_context(|| name)
    }

    fn python(&mut self) -> anyhow::Result<&mut Python> {
        self.python.as_mut().context("the producers in Python were left out")
    }
}

impl Python {
    /// Starts the Python producers. Celery has a virtual host of its own, and one worker with a process for each core, which is its
    /// default.
    async fn start(fleet: &gpufleet_local::LocalFleet, in_flight_max: u64) -> anyhow::Result<Self> {
        let services = fleet.services();
        let (in_flight_max, cores) = (in_flight_max.to_string(), thread::available_parallelism()?.to_string());
        let program = |name, amqp_url, environment| Program {
            name,
            run: name,
            interpreter: None,
            amqp_url: Some(amqp_url),
            floats: saxpy::FLOATS,
            environment,
        };
        let settings = [("BENCH_IN_FLIGHT_MAX", &*in_flight_max)];
        let pika = PythonProgram::start(services, program("pika", &fleet.endpoints().amqp_url, &settings)).await?;
        let (_, endpoints) = services.space("celery").await?;
        let settings = [("BENCH_CELERY_WORKERS", "1"), ("BENCH_CELERY_PROCESSES", &*cores)];
        let celery = PythonProgram::start(services, program("celery", &endpoints.amqp_url, &settings)).await?;
        Ok(Self { pika, celery })
    }
}

fn parts(fleet: &gpufleet_local::LocalFleet, bare: &BareLoop, python: Option<&Python>) -> Parts {
    let python = python.map(|python| (python.pika.pid(), python.celery.pid()));
    let parts = python.into_iter().fold(ground::parts(fleet), |parts, (pika, celery)| {
        // Celery's worker and its pool are children of the program that submits.
        parts.with(Part::Client, [pika, celery]).with_below(Part::Supervisor, celery)
    });
    parts.with(Part::Client, [std::process::id()]).with(Part::BareConsumer, bare.consumer_pid())
}

/// Describes what waits, as the broker sees it: unconfirmed and unacknowledged messages.
async fn channels(fleet: &gpufleet_local::LocalFleet) -> String {
    const QUESTION: &str = "[I || I <- rabbit_channel:info_all([number, connection, messages_unconfirmed, messages_unacknowledged, prefetch_count])].";
    fleet.services().broker().eval(QUESTION).await.unwrap_or_else(|error| error.to_string())
}
