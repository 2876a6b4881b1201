//! Measures the cost of a job on this device: copies, launches and overhead.

use std::time::{Duration, Instant};

use gpufleet_schema::{Task, Timings};

use super::{
    SelfTestError,
    runner::{Outcome, Runner},
    short, tasks,
};

/// Size of the copied buffer, in bytes: about the maximum that fits into a message.
const COPY_BYTES: usize = 15 << 20;
const COPIES: usize = 20;
/// Number of launches of one task: enough to make the clock's resolution negligible.
const LAUNCHES: u32 = 1000;
const TINY_JOBS: usize = 2000;

pub(super) async fn print(runner: &mut Runner) -> Result<(), SelfTestError> {
    println!("\nCosts");
    let copies = timings(runner, &tasks::copies(COPY_BYTES), COPIES).await?;
    let bandwidth = |us: fn(&Timings) -> u64| {
        let best = copies.iter().map(us).min().unwrap_or_default().max(1);
        format!("{:.2} GB/s", COPY_BYTES as f64 / best as f64 / 1e3)
    };
    println!(
        "  copies: to the device {}, from the device {} (best of {COPIES}, {} MiB)",
        bandwidth(|t| t.copy_in_us),
        bandwidth(|t| t.copy_out_us),
        COPY_BYTES >> 20
    );
    let launches = timings(runner, &tasks::nothing(LAUNCHES), 5).await?;
    let best = launches.iter().map(Timings::kernel_us).min().unwrap_or_default();
    println!("  launch: {:.2} µs (best of 5 runs of {LAUNCHES} empty kernels)", best as f64 / f64::from(LAUNCHES));
    let mut times = whole_jobs(runner, &tasks::nothing(1), TINY_JOBS).await?;
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "  job with one empty kernel, supervisor to executor and back: p50 {}, p99 {} ({TINY_JOBS} jobs)",
        short(at(0.5)),
        short(at(0.99))
    );
    Ok(())
}

async fn timings(runner: &mut Runner, task: &Task<'_>, count: usize) -> Result<Vec<Timings>, SelfTestError> {
    let mut all = Vec::new();
    for _ in 0..count {
        if let Outcome::Done { timings, .. } = outcome(runner, task).await? {
            all.push(timings);
        }
    }
    Ok(all)
}

async fn whole_jobs(runner: &mut Runner, task: &Task<'_>, count: usize) -> Result<Vec<Duration>, SelfTestError> {
    let mut all = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        if let Outcome::Done { .. } = outcome(runner, task).await? {
            all.push(started.elapsed());
        }
    }
    Ok(all)
}

/// Runs a task. Prints a failure, so that the caller leaves it out of the measurement.
async fn outcome(runner: &mut Runner, task: &Task<'_>) -> Result<Outcome, SelfTestError> {
    let outcome = runner.run(task).await;
    match &outcome {
        Outcome::Done { .. } => {}
        Outcome::Failed(failure) => println!("  run failed: {}", failure.message),
        Outcome::Lost(reason) => {
            println!("  executor lost: {reason}");
            runner.replace().await?;
        }
    }
    Ok(outcome)
}
