//! gpufleet as a system of the comparison: two workers with the emulated device, and the ledger.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, stream::FuturesUnordered};
use gpufleet_local::{Lines, Services, programs};
use gpufleet_tests::busy;
use serde::Deserialize;
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};

use super::system::{AfterKill, Kill, Records, System};
use crate::{
    fleet::{PACK, Producer},
    usage::{Part, Parts},
};

pub const WORKERS: u32 = 2;
/// How long to wait for another answer before the remaining jobs count as lost.
const SILENCE: Duration = Duration::from_secs(15);
/// How long to wait until the ledger has caught up.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

pub struct FleetSystem {
    fleet: gpufleet_local::LocalFleet,
    producer: Producer,
    submitted: usize,
}

/// A job as `gpufleet history --output json` lists it.
#[derive(Debug, Deserialize)]
struct Row {
    job_id: String,
    state: String,
    attempts: u32,
}

impl FleetSystem {
    pub async fn start(services: &Arc<Services>, floats: usize) -> anyhow::Result<Self> {
        let builder = gpufleet_local::LocalFleet::builder().label("comparison").workers(WORKERS).on(services);
        let fleet = builder.start_with(&Lines).await?;
        let producer = Producer::connect(&fleet.endpoints().amqp_url, floats).await?;
        Ok(Self { fleet, producer, submitted: 0 })
    }

    /// Returns all jobs by their ids, once the ledger has their outcomes.
    async fn recorded(&self) -> anyhow::Result<BTreeMap<String, Row>> {
        let deadline = Instant::now() + RECORDED_WITHIN;
        loop {
            let rows = self.rows().await?;
            let settled = rows.iter().all(|row| row.state != "queued" && row.state != "running");
            if (settled && rows.len() >= self.submitted) || Instant::now() > deadline {
                return Ok(rows.into_iter().map(|row| (row.job_id.clone(), row)).collect());
            }
            sleep(POLL).await;
        }
    }

    async fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let limit = (self.submitted + 1).to_string();
        let output = Command::new(programs::ours(None, "gpufleet")?)
            .args(["history", "--output", "json", "--limit", &limit])
            .env("GPUFLEET_DATABASE_URL", &self.fleet.endpoints().database_url)
            .output()
            .await
            .context("failed to run gpufleet history")?;
        ensure!(output.status.success(), "gpufleet history failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl System for FleetSystem {
    fn about(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!("gpufleet {version}, {WORKERS} workers, emulated device, ledger, {PACK} tasks a packed message")
    }

    fn parts(&self) -> Parts {
        let services = self.fleet.services();
        Parts::default()
            .with(Part::Broker, services.broker().pid())
            .with(Part::Postgres, services.postgres().pid())
            .with(Part::Ledger, self.fleet.ledger().map(|ledger| ledger.pid()))
            .with(Part::Supervisor, self.fleet.workers().iter().map(|worker| worker.pid()))
    }

    async fn latency(&mut self, jobs: usize) -> anyhow::Result<Vec<Duration>> {
        self.submitted += jobs;
        Ok(self.producer.submit_each(jobs, 1).await?.round_trips)
    }

    async fn throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<f64> {
        self.submitted += jobs;
        Ok(self.producer.submit_each(jobs, in_flight).await?.jobs_per_second())
    }

    async fn packed_throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<Option<f64>> {
        self.submitted += jobs;
        Ok(Some(self.producer.submit_many(jobs, in_flight).await?.jobs_per_second()))
    }

    async fn kill_worker(&mut self, kill: Kill) -> anyhow::Result<AfterKill> {
        let mut ids = Vec::new();
        let mut answers = FuturesUnordered::new();
        for _ in 0..kill.jobs {
            let handle = self.producer.submit(busy::for_millis(kill.milliseconds)).await?;
            ids.push(handle.id().to_string());
            answers.push(handle.into_future());
        }
        self.submitted += kill.jobs;
        let mut finished = 0;
        while let Ok(Some(answer)) = timeout(SILENCE, answers.next()).await {
            ensure!(busy::is_done(&answer?.outputs), "a job was answered with something else");
            finished += 1;
            if finished == kill.after {
                self.fleet.worker(0).kill9().await?;
            }
        }
        let recorded = self.recorded().await?;
        let twice = ids.iter().filter(|id| recorded.get(*id).is_some_and(|row| row.attempts > 1)).count();
        Ok(AfterKill { finished, lost: kill.jobs - finished, twice })
    }

    async fn history(&mut self) -> anyhow::Result<Records> {
        let records = self.recorded().await?.len();
        Ok(Records { records, of: self.submitted })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.producer.close().await;
        self.fleet.stop().await.map(drop).context("failed to stop the fleet")
    }
}
