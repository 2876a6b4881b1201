//! Two pools with weights 3 : 1 and a constant backlog: the device time that each gets.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gpufleet::Fleet as Client;
use gpufleet_local::{LocalFleet, Services};
use tokio::time::sleep;

use super::{
    Line, Options,
    flow::{Answer, Flow},
};
use crate::{ground::on_fleet, sleepers::Sleeper};

/// The durations of the jobs. They differ, so that a share of jobs would differ from a share of time.
const HEAVY_MS: u64 = 9;
const LIGHT_MS: u64 = 14;
/// The number of jobs in flight for each pool: more than a worker prefetches, so that no pool runs out of work.
const IN_FLIGHT: usize = 256;
/// The time until modules are loaded and durations are known.
const WARM_UP: Duration = Duration::from_secs(2);

pub async fn measure(services: &Arc<Services>, options: &Options) -> anyhow::Result<Vec<Line>> {
    let builder = LocalFleet::builder().label("weights").pools(["heavy:weight=3", "light"]);
    on_fleet(services, builder, async |fleet| {
        let client = Client::connect(&fleet.endpoints().amqp_url).await.context("failed to connect to the fleet")?;
        let client = Arc::new(client);
        let (mut ratios, mut job_ratios, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.repeat {
            let heavy = Sleeper { pool: "heavy".parse()?, milliseconds: HEAVY_MS, bytes: 0 };
            let light = Sleeper { pool: "light".parse()?, milliseconds: LIGHT_MS, bytes: 0 };
            let flows = [heavy, light].map(|sleeper| Flow::start(&client, &sleeper, IN_FLIGHT));
            sleep(WARM_UP).await;
            let from = Instant::now();
            sleep(Duration::from_secs(options.seconds)).await;
            let until = Instant::now();
            let [heavy, light] = flows;
            let (heavy, light) = (heavy.end().await?, light.end().await?);
            let within = |answers: &[Answer]| {
                let within = answers.iter().filter(|answer| (from..until).contains(&answer.at));
                within.fold((0.0, 0.0), |(jobs, seconds), answer| {
                    (jobs + 1.0, seconds + answer.result.timings.total_us as f64 / 1e6)
                })
            };
            let ((heavy_jobs, heavy_seconds), (light_jobs, light_seconds)) = (within(&heavy), within(&light));
            ratios.push(heavy_seconds / light_seconds);
            job_ratios.push(heavy_jobs / light_jobs);
            busy.push((heavy_seconds + light_seconds) / (until - from).as_secs_f64());
        }
        Ok(vec![
            Line::of("weights 3 : 1, device seconds", ": 1", &ratios).aim("3 within 5 %"),
            Line::of("the same in jobs (9 ms against 14 ms)", ": 1", &job_ratios),
            Line::of("slots busy at once", "", &busy),
        ])
    })
    .await
}
