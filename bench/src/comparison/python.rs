//! Celery, Ray and Slurm as systems of the comparison. A program in `bench/python` drives each of them.

use std::time::Duration;

use gpufleet_local::Services;
use serde_json::json;

use super::{
    FLOATS,
    system::{AfterKill, Kill, Records, System},
};
use crate::{
    python::{Program, PythonProgram},
    usage::{Part, Parts},
};

#[derive(Debug)]
pub struct PythonSystem {
    program: PythonProgram,
    broker: Option<u32>,
}

impl PythonSystem {
    /// Starts the system, and returns when it accepts jobs. `acks_late` is a setting of Celery.
    pub async fn start(
        services: &Services,
        name: &str,
        amqp_url: Option<&str>,
        acks_late: bool,
    ) -> anyhow::Result<Self> {
        let late = format!("{name}-late");
        let (run, environment) = if acks_late { (&*late, &[("BENCH_ACKS_LATE", "1")][..]) } else { (name, &[][..]) };
        let program = Program { name, run, interpreter: None, amqp_url, floats: FLOATS, environment };
        let program = PythonProgram::start(services, program).await?;
        Ok(Self { program, broker: amqp_url.and_then(|_| services.broker().pid()) })
    }
}

impl System for PythonSystem {
    fn about(&self) -> String {
        self.program.about().to_owned()
    }

    /// Returns the processes below the submitter.
    fn parts(&self) -> Parts {
        Parts::default().with(Part::Broker, self.broker).with_below(Part::Supervisor, self.program.pid())
    }

    async fn latency(&mut self, jobs: usize) -> anyhow::Result<Vec<Duration>> {
        Ok(self.program.run(jobs, 1).await?.round_trips)
    }

    async fn throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<f64> {
        Ok(self.program.run(jobs, in_flight).await?.jobs_per_second())
    }

    async fn packed_throughput(&mut self, _jobs: usize, _in_flight: usize) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }

    async fn kill_worker(&mut self, kill: Kill) -> anyhow::Result<AfterKill> {
        let Kill { jobs, milliseconds, after } = kill;
        self.program.ask(json!({ "do": "kill", "jobs": jobs, "milliseconds": milliseconds, "after": after })).await
    }

    async fn history(&mut self) -> anyhow::Result<Records> {
        self.program.ask(json!({ "do": "history" })).await
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.program.stop().await
    }
}
