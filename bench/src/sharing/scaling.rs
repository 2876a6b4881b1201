//! One queue of sleeping jobs over 1, 2 and 4 workers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::future;
use gpufleet::{Fleet as Client, schema::PoolName};
use gpufleet_local::{LocalFleet, Services};
use tokio::time::timeout;

use super::{Line, Options};
use crate::{ground::on_fleet, sleepers::Sleeper};

/// The duration of a job. It is so long that the transport does not matter, even on two cores that all processes share.
const JOB_MS: u64 = 50;
/// The default number of slots of a worker.
const SLOTS: u64 = 4;
const WORKERS: [u32; 3] = [1, 2, 4];
/// The additional time that a run may take if workers slow each other down.
const RUN_SLACK: Duration = Duration::from_secs(180);

pub async fn measure(services: &Arc<Services>, options: &Options) -> anyhow::Result<Vec<Line>> {
    let mut rates: Vec<Vec<f64>> = Vec::new();
    for workers in WORKERS {
        let builder = LocalFleet::builder().label(format!("scaling-{workers}")).workers(workers);
        rates.push(on_fleet(services, builder, async |fleet| rounds(fleet, workers, options).await).await?);
    }
    let mut lines = Vec::new();
    for (workers, rates_of) in WORKERS.iter().zip(&rates) {
        lines.push(Line::of(format!("{workers} workers"), "jobs/s", rates_of));
        if *workers > 1 {
            let of_linear = |(rate, one): (&f64, &f64)| rate / one / f64::from(*workers) * 100.0;
            let shares: Vec<f64> = rates_of.iter().zip(&rates[0]).map(of_linear).collect();
            lines.push(Line::of("of linear", "%", &shares).aim("90 to 110"));
        }
    }
    Ok(lines)
}

async fn rounds(fleet: &LocalFleet, workers: u32, options: &Options) -> anyhow::Result<Vec<f64>> {
    let client = Client::connect(&fleet.endpoints().amqp_url).await.context("failed to connect to the fleet")?;
    let jobs = options.seconds * 1000 / JOB_MS * SLOTS * u64::from(workers);
    // Runs a job in every slot first, because the first job loads the program.
    let deadline = Duration::from_secs(options.seconds) + RUN_SLACK;
    run(&client, 2 * SLOTS * u64::from(workers), deadline).await?;
    let mut rates = Vec::new();
    for _ in 0..options.repeat {
        rates.push(run(&client, jobs, deadline).await?);
    }
    client.close().await;
    Ok(rates)
}

/// Returns jobs per second, from the first submission to the last answer.
async fn run(client: &Client, jobs: u64, deadline: Duration) -> anyhow::Result<f64> {
    let sleeper = Sleeper { pool: PoolName::default(), milliseconds: JOB_MS, bytes: 0 };
    let started = Instant::now();
    let answers = (0..jobs).map(async |_| {
        let handle = client.submit(sleeper.job()).await.context("failed to submit a job")?;
        sleeper.check(&handle.await?)
    });
    timeout(deadline, future::try_join_all(answers)).await.context("not all jobs were answered")??;
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}
