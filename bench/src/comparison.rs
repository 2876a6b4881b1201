//! `gpufleet-bench comparison`: runs equal small jobs through gpufleet, Celery, Ray and Slurm, one system after the other.
//!
//! Each system has two workers on this machine. gpufleet's device is emulated on the CPU, and the others compute with NumPy. So the figures
//! describe the path around a kernel, not GPUs. A system that can't run here is reported as not measured, with the reason.

use std::{path::PathBuf, sync::Arc};

use anyhow::ensure;
use clap::ValueEnum;
use gpufleet_local::Services;
use serde::Serialize;

use crate::{
    machine::{self, Machine},
    programs,
    round_trips::Format,
};

mod fleet;
mod memory;
mod python;
mod report;
mod system;

use fleet::FleetSystem;
use python::PythonSystem;
use system::{AfterKill, Kill, Measured, Sizes, System as _, measure};

/// The number of floats in each array of a job.
const FLOATS: usize = 1024;
const IN_FLIGHT: usize = 64;
const KILL: Kill = Kill { jobs: 200, milliseconds: 50, after: 60 };
/// The sizes for Slurm. It starts a process for each job, which takes about half a second.
const SLURM: Sizes =
    Sizes { rounds: 1, warm_up_jobs: 2, latency_jobs: 20, jobs: IN_FLIGHT, in_flight: IN_FLIGHT, kill: KILL };

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only these
    #[arg(value_enum, default_values_t = [Name::Gpufleet, Name::Celery, Name::Ray, Name::Slurm])]
    systems: Vec<Name>,
    /// Jobs of each round with 64 in flight; Slurm has 64
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(64..=100_000))]
    jobs: u32,
    /// Jobs of each round with one in flight; Slurm has 20
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    latency_jobs: u32,
    /// Rounds of latency and throughput; Slurm has one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Keeps the logs of all processes there
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
    /// How the result is printed: a Markdown table, or JSON
    #[arg(short, long, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    Gpufleet,
    Celery,
    Ray,
    Slurm,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub kill: Kill,
    pub columns: Vec<Column>,
}

/// The column of a system: its results, or the reason why there are none.
#[derive(Debug, Serialize)]
pub struct Column {
    pub name: Name,
    pub measured: Result<Measured, String>,
    /// The result for Celery with late acknowledgements.
    pub after_kill_late: Option<Result<AfterKill, String>>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    let load_before = machine::load();
    let mut machine = None;
    let mut columns = Vec::new();
    for name in &options.systems {
        eprintln!("{} …", name.title());
        let services = match &options.logs {
            Some(logs) => Services::ephemeral_with_logs(&logs.join(name.title())).await?,
            None => Services::ephemeral().await?,
        };
        if machine.is_none() {
            machine = Some(Machine::look(machine::broker_version(&services).await?, load_before));
        }
        let column = column(*name, options, &services).await;
        services.stop().await?;
        if let Err(reason) = &column.measured {
            eprintln!("{} was not measured: {reason}", name.title());
        }
        columns.push(column);
    }
    let machine = machine.expect("there is at least one system");
    let report = Report { machine, kill: KILL, columns };
    match options.output {
        Format::Table => print!("{}", report::render(&report)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    let ours = report.columns.iter().find(|column| column.name == Name::Gpufleet);
    ensure!(ours.is_none_or(|column| column.measured.is_ok()), "gpufleet itself was not measured");
    Ok(())
}

/// Measures a system. An error is shown in its column, and the other systems are still measured.
async fn column(name: Name, options: &Options, services: &Arc<Services>) -> Column {
    let measured = measured(name, options, services).await.map_err(|error| format!("{error:#}"));
    let after_kill_late = match (name, &measured) {
        (Name::Celery, Ok(_)) => Some(celery_with_late_acks(services).await.map_err(|error| format!("{error:#}"))),
        _ => None,
    };
    Column { name, measured, after_kill_late }
}

async fn measured(name: Name, options: &Options, services: &Arc<Services>) -> anyhow::Result<Measured> {
    let sizes = if name == Name::Slurm { SLURM } else { options.sizes() };
    match name {
        Name::Gpufleet => measure(FleetSystem::start(services, FLOATS).await?, &sizes).await,
        Name::Celery => {
            let (_, endpoints) = services.space("celery").await?;
            let celery = PythonSystem::start(services, "celery", Some(&endpoints.amqp_url), false).await?;
            measure(celery, &sizes).await
        }
        Name::Ray => measure(PythonSystem::start(services, "ray", None, false).await?, &sizes).await,
        Name::Slurm => measure(PythonSystem::start(services, "slurm", None, false).await?, &sizes).await,
    }
}

async fn celery_with_late_acks(services: &Arc<Services>) -> anyhow::Result<AfterKill> {
    let (_, endpoints) = services.space("celery").await?;
    let mut celery = PythonSystem::start(services, "celery", Some(&endpoints.amqp_url), true).await?;
    let after_kill = celery.kill_worker(KILL).await;
    let stopped = celery.stop().await;
    let after_kill = after_kill?;
    stopped.map(|()| after_kill)
}

impl Options {
    fn sizes(&self) -> Sizes {
        let size = |count: u32| usize::try_from(count).expect("the options are bounded");
        Sizes {
            rounds: size(self.repeat),
            warm_up_jobs: size(self.latency_jobs).min(100),
            latency_jobs: size(self.latency_jobs),
            jobs: size(self.jobs),
            in_flight: IN_FLIGHT,
            kill: KILL,
        }
    }
}

impl Name {
    pub fn title(self) -> &'static str {
        match self {
            Self::Gpufleet => "gpufleet",
            Self::Celery => "Celery",
            Self::Ray => "Ray",
            Self::Slurm => "Slurm",
        }
    }
}
