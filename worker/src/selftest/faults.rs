//! Runs faulty kernels, and checks that the device works again right afterwards.

use std::time::{Duration, Instant};

use gpufleet_schema::FailureCode;

use super::{
    Checks, SelfTestError,
    runner::{Outcome, Runner},
    short, tasks,
};

/// Time limit of the kernel that never ends: long enough for the start of a kernel, short enough to wait for.
const SHORT_LIMIT: Duration = Duration::from_secs(2);

pub(super) async fn check(runner: &mut Runner, checks: &mut Checks) -> Result<(), SelfTestError> {
    println!("\nFaults");
    let outcome = runner.run(&tasks::writes_nowhere()).await;
    report("illegal memory access", FailureCode::KernelFault, outcome, checks);
    recover(runner, checks).await?;
    let outcome = runner.run_within(&tasks::never_ends(), SHORT_LIMIT).await;
    report("endless kernel", FailureCode::TimeLimit, outcome, checks);
    recover(runner, checks).await
}

fn report(what: &str, wanted: FailureCode, outcome: Outcome, checks: &mut Checks) {
    let (passed, told) = match outcome {
        Outcome::Failed(failure) => (failure.code == wanted, format!("{}: {}", failure.code.name(), failure.message)),
        Outcome::Lost(reason) => (false, reason),
        Outcome::Done { .. } => (false, "the job succeeded, but should have failed".to_owned()),
    };
    println!("  {:>6}  {what}: {told}", checks.record(passed));
}

/// Replaces the lost executor, and measures how long other jobs on the device would have waited.
async fn recover(runner: &mut Runner, checks: &mut Checks) -> Result<(), SelfTestError> {
    let started = Instant::now();
    runner.replace().await?;
    let works = matches!(runner.run(&tasks::nothing(1)).await, Outcome::Done { .. });
    println!("  {:>6}  a new executor ran a job within {}", checks.record(works), short(started.elapsed()));
    Ok(())
}
