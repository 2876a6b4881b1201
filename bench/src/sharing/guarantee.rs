//! A pool with a guaranteed quarter of the memory, first alone, then next to a flood of another pool that borrows
//! memory.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use gpufleet::Fleet as Client;
use gpufleet_local::{LocalFleet, Services};
use tokio::time::sleep;

use super::{
    Line, Options,
    flow::{Answer, Flow},
};
use crate::{ground::on_fleet, sleepers::Sleeper, stats::Run};

/// The memory of the emulated device. It is small, because it must be zeroed for each job.
const MEMORY: &str = "64MiB";
/// The memory of a job of the steady pool. Together with its module, the job needs most of the pool's quarter.
const STEADY_BYTES: u64 = 8 << 20;
const STEADY_MS: u64 = 20;
/// The memory of a job of the flood. Four of them take more than three quarters, so they borrow while the steady pool
/// is idle.
const FLOOD_BYTES: u64 = 14 << 20;
const FLOOD_MS: u64 = 10;
const FLOOD_IN_FLIGHT: usize = 256;
const WARM_UP: Duration = Duration::from_secs(2);

pub async fn measure(services: &Arc<Services>, options: &Options) -> anyhow::Result<Vec<Line>> {
    let builder = LocalFleet::builder().label("guarantee").pools(["steady:memory=25%", "flood"]);
    let builder = builder.worker_env("GPUFLEET_EMULATOR_MEMORY", MEMORY);
    on_fleet(services, builder, async |fleet| {
        let client = Client::connect(&fleet.endpoints().amqp_url).await.context("failed to connect to the fleet")?;
        let client = Arc::new(client);
        let steady = Sleeper { pool: "steady".parse()?, milliseconds: STEADY_MS, bytes: STEADY_BYTES };
        let flood = Sleeper { pool: "flood".parse()?, milliseconds: FLOOD_MS, bytes: FLOOD_BYTES };
        let time = Duration::from_secs(options.seconds);
        run_for(&client, &steady, Duration::from_secs(1)).await?;
        let (mut alone, mut beside, mut growth, mut waits, mut floods) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..options.repeat {
            let p99_alone = percentile_ms(&run_for(&client, &steady, time).await?, 99.0);
            let flow = Flow::start(&client, &flood, FLOOD_IN_FLIGHT);
            sleep(WARM_UP).await;
            let answers = run_for(&client, &steady, time).await?;
            floods.push(flow.end().await?.len() as f64 / (time + WARM_UP).as_secs_f64());
            let p99_beside = percentile_ms(&answers, 99.0);
            alone.push(p99_alone);
            beside.push(p99_beside);
            growth.push(p99_beside / p99_alone);
            let longest_us = answers.iter().map(|answer| answer.result.timings.wait_us).max().unwrap_or_default();
            waits.push(longest_us as f64 / 1e3);
        }
        Ok(vec![
            Line::of("p99 of a pool with 25 % of the memory, alone", "ms", &alone),
            Line::of("the same next to a flood", "ms", &beside),
            Line::of("growth", "×", &growth).aim("at most 1.5"),
            Line::of("its longest wait on the worker next to the flood", "ms", &waits),
            Line::of("the flood beside it", "jobs/s", &floods),
        ])
    })
    .await
}

/// Runs one job after the other for this time.
async fn run_for(client: &Arc<Client>, sleeper: &Sleeper, time: Duration) -> anyhow::Result<Vec<Answer>> {
    let flow = Flow::start(client, sleeper, 1);
    sleep(time).await;
    flow.end().await
}

fn percentile_ms(answers: &[Answer], percent: f64) -> f64 {
    let round_trips = answers.iter().map(|answer| answer.result.round_trip).collect();
    Run { took: Duration::ZERO, round_trips }.percentile_ms(percent)
}
