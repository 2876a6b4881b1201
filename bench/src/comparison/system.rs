//! The measurements of the comparison, which are equal for every system.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::memory;
use crate::{
    stats::{Spread, percentile},
    usage::{Parts, since},
};

/// The time window in which a system at rest uses less than a tenth of a core.
const REST_WINDOW: Duration = Duration::from_millis(300);
const REST_SHARE_MAX: f64 = 0.1;
const REST_DEADLINE: Duration = Duration::from_secs(60);

/// A running system. It is stopped before the next one starts.
pub trait System {
    /// Returns versions and settings, for people.
    fn about(&self) -> String;

    /// Returns all processes of the system except the submitter's.
    fn parts(&self) -> Parts;

    /// Measures round trips with one job in flight.
    async fn latency(&mut self, jobs: usize) -> anyhow::Result<Vec<Duration>>;

    /// Measures jobs per second with this many in flight.
    async fn throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<f64>;

    /// Measures jobs per second with jobs that share messages; `None` if the system does not support that.
    async fn packed_throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<Option<f64>>;

    async fn kill_worker(&mut self, kill: Kill) -> anyhow::Result<AfterKill>;

    async fn history(&mut self) -> anyhow::Result<Records>;

    async fn stop(self) -> anyhow::Result<()>;
}

/// The sizes of the measurements.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub rounds: usize,
    pub warm_up_jobs: usize,
    pub latency_jobs: usize,
    pub jobs: usize,
    pub in_flight: usize,
    pub kill: Kill,
}

/// The measurement that kills one of two workers once `after` of the jobs have begun.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Kill {
    pub jobs: usize,
    /// The duration of each job.
    pub milliseconds: u64,
    pub after: usize,
}

/// The outcomes of the jobs after a worker was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterKill {
    pub finished: usize,
    pub lost: usize,
    /// The number of jobs that began more than once.
    pub twice: usize,
}

/// How many of the submitted jobs can be listed afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    pub records: usize,
    pub of: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub about: String,
    pub p50_ms: Spread,
    pub p99_ms: Spread,
    pub jobs_per_second: Spread,
    pub packed_jobs_per_second: Option<Spread>,
    pub idle_mib: f64,
    pub after_kill: AfterKill,
    pub history: Records,
}

/// Measures a system, and stops it.
pub async fn measure(mut system: impl System, sizes: &Sizes) -> anyhow::Result<Measured> {
    let measured = measure_running(&mut system, sizes).await;
    let stopped = system.stop().await;
    let measured = measured?;
    stopped.map(|()| measured)
}

async fn measure_running(system: &mut impl System, sizes: &Sizes) -> anyhow::Result<Measured> {
    system.latency(sizes.warm_up_jobs).await?;
    rest(&system.parts()).await?;
    let idle_mib = memory::mebibytes(&system.parts().pids());
    let (mut p50_ms, mut p99_ms, mut rates, mut packed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        let trips = system.latency(sizes.latency_jobs).await?;
        p50_ms.push(percentile(&trips, 50.0).as_secs_f64() * 1e3);
        p99_ms.push(percentile(&trips, 99.0).as_secs_f64() * 1e3);
        rates.push(system.throughput(sizes.jobs, sizes.in_flight).await?);
        packed.extend(system.packed_throughput(sizes.jobs, sizes.in_flight).await?);
    }
    rest(&system.parts()).await?;
    let after_kill = system.kill_worker(sizes.kill).await?;
    let of_rounds = "there is at least one round";
    Ok(Measured {
        about: system.about(),
        p50_ms: Spread::of(p50_ms).expect(of_rounds),
        p99_ms: Spread::of(p99_ms).expect(of_rounds),
        jobs_per_second: Spread::of(rates).expect(of_rounds),
        packed_jobs_per_second: Spread::of(packed),
        idle_mib,
        after_kill,
        history: system.history().await?,
    })
}

/// Waits until the system is at rest, so that work left by one measurement does not slow the next one down.
async fn rest(parts: &Parts) -> anyhow::Result<()> {
    let deadline = Instant::now() + REST_DEADLINE;
    loop {
        let before = parts.usages();
        sleep(REST_WINDOW).await;
        let spent: Duration = since(&before, &parts.usages()).values().map(|used| used.cpu).sum();
        if spent.as_secs_f64() < REST_SHARE_MAX * REST_WINDOW.as_secs_f64() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the system did not come to rest in {} s", REST_DEADLINE.as_secs());
    }
}
