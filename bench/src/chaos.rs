//! `gpufleet-bench chaos`: many jobs, some of which fault, hang or ask for too much memory. Measures what that costs
//! the other jobs, and checks the history.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use futures::future::join_all;
use gpufleet::{
    Job,
    schema::{AttemptState, FailureCode, JobId},
};
use gpufleet_tests::{Ground, TestWorker, busy, history::History, kernels};

use crate::{
    machine::{self, Machine},
    programs,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// All jobs together: 5 % of them fault, 2 % hang, 2 % ask for more memory than any device has
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(50..))]
    jobs: u32,

    /// Decides their order and lengths
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
}

/// The behaviour of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Computes,
    Waits,
    Faults,
    Hangs,
    AsksTooMuch,
}

const FAULT_PERCENT: u32 = 5;
const HANG_PERCENT: u32 = 2;
const TOO_MUCH_PERCENT: u32 = 2;
const HANG_LIMIT: Duration = Duration::from_secs(1);
const TOO_MUCH_BYTES: u64 = 1 << 39;
const WAIT_MILLIS_MAX: u64 = 20;
const WIDTH_MAX: usize = 256;
/// The deadline for answers, far longer than any run. Without it, a lost job would block the benchmark forever.
const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

impl Kind {
    /// Returns the kinds of all jobs, in the given percentages and in an order that the seed determines.
    fn mixed(jobs: u32, chance: &mut Rng) -> Vec<Self> {
        let part = |percent: u32| (jobs * percent / 100) as usize;
        let guilty = [
            (Self::Faults, part(FAULT_PERCENT)),
            (Self::Hangs, part(HANG_PERCENT)),
            (Self::AsksTooMuch, part(TOO_MUCH_PERCENT)),
        ];
        let mut kinds: Vec<Self> = guilty.iter().flat_map(|(kind, count)| vec![*kind; *count]).collect();
        while kinds.len() < jobs as usize {
            kinds.push(if kinds.len().is_multiple_of(2) { Self::Computes } else { Self::Waits });
        }
        chance.shuffle(&mut kinds);
        kinds
    }

    /// Returns a job of this kind. Innocent jobs have one attempt, so that a single lost attempt would fail them.
    fn job(self, number: usize, chance: &mut Rng) -> Job {
        match self {
            Self::Computes => kernels::doubles(&vec![number as f32; chance.usize(1..=WIDTH_MAX)]).attempts_max(1),
            Self::Waits => busy::for_millis(chance.u64(1..=WAIT_MILLIS_MAX)).attempts_max(1),
            // Each faulty job has a program of its own. Otherwise the worker would refuse the fourth one, because its
            // program keeps killing executors.
            Self::Faults => kernels::writes_beyond_its_buffer_as(number),
            Self::Hangs => kernels::endless().time_limit(HANG_LIMIT),
            Self::AsksTooMuch => kernels::with_buffer_of(TOO_MUCH_BYTES),
        }
    }

    fn outcome(self) -> (AttemptState, Option<FailureCode>) {
        match self {
            Self::Computes | Self::Waits => (AttemptState::Succeeded, None),
            Self::Faults => (AttemptState::Failed, Some(FailureCode::KernelFault)),
            Self::Hangs => (AttemptState::Failed, Some(FailureCode::TimeLimit)),
            Self::AsksTooMuch => (AttemptState::Failed, Some(FailureCode::OutOfMemory)),
        }
    }

    fn is_innocent(self) -> bool {
        matches!(self, Self::Computes | Self::Waits)
    }
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    let load_before = machine::load();
    let ground = Ground::shared("chaos").await;
    let machine = Machine::look(machine::broker_version(ground.fleet().services()).await?, load_before);
    let mut workers = Vec::new();
    for _ in 0..options.workers {
        workers.push(ground.worker().await);
    }
    let fleet = ground.client().await;
    let mut chance = Rng::with_seed(options.seed);
    let kinds = Kind::mixed(options.jobs, &mut chance);
    let jobs: Vec<Job> = kinds.iter().enumerate().map(|(number, kind)| kind.job(number, &mut chance)).collect();

    let started = Instant::now();
    let submitted = join_all(jobs.into_iter().map(|job| fleet.submit(job))).await;
    let mut confirmed = submitted.into_iter().collect::<Result<Vec<_>, _>>().context("failed to submit a job")?;
    let outcomes = join_all(confirmed.iter_mut().map(|job| job.wait(ANSWERED_WITHIN))).await;
    let took = started.elapsed();

    let of_job: BTreeMap<JobId, Kind> =
        confirmed.iter().map(gpufleet_tests::ConfirmedJob::id).zip(kinds.iter().copied()).collect();
    for (kind, outcome) in kinds.iter().zip(&outcomes) {
        let got = match outcome {
            Ok(result) => (result.state, None),
            Err(error) => (AttemptState::Failed, Some(error.failure().with_context(|| error.to_string())?.code)),
        };
        ensure!(got == kind.outcome(), "a job that {kind:?} came to {got:?}");
    }
    let history = ground.history(kinds.len()).await;
    let violations = history.violations();
    ensure!(violations.is_empty(), "the history does not hold: {violations:?}");
    println!("{}\nseed {}, workers {}", machine.line(), options.seed, options.workers);
    report(&history, &of_job, took);
    gaps(&workers)
}

fn report(history: &History, of_job: &BTreeMap<JobId, Kind>, took: Duration) {
    println!("{} jobs in {:.1} s, each with one final outcome, all as they deserve", of_job.len(), took.as_secs_f64());
    for kind in [Kind::Computes, Kind::Waits, Kind::Faults, Kind::Hangs, Kind::AsksTooMuch] {
        let count = of_job.values().filter(|of| **of == kind).count();
        println!("  {count:>5} {kind:?}: {:?}", kind.outcome());
    }
    let innocents = history.known.iter().filter(|detail| of_job[&detail.job.job_id].is_innocent());
    let (mut again, mut lost) = (0, 0);
    for attempt in innocents.flat_map(|detail| &detail.attempts).filter(|row| row.state == AttemptState::Lost) {
        // The lost job of a neighbour is retried at once. A suspect waits, and loses an attempt.
        match attempt.retry_at {
            None => again += 1,
            Some(_) => lost += 1,
        }
    }
    println!("innocents: {again} runs were cut short by a neighbour and came again, {lost} attempts were lost");
}

/// Prints the gaps that the workers measured: from the end of an executor until its pool has another one.
fn gaps(workers: &[TestWorker]) -> anyhow::Result<()> {
    let mut gaps_us = Vec::new();
    for worker in workers {
        let log = fs::read_to_string(worker.process().log()).context("failed to read a worker's log")?;
        gaps_us.extend(log.lines().filter(|line| line.contains("another took over")).filter_map(gap_us));
    }
    gaps_us.sort_unstable();
    ensure!(!gaps_us.is_empty(), "no executor was killed");
    let (median, worst) = (gaps_us[gaps_us.len() / 2], gaps_us[gaps_us.len() - 1]);
    println!(
        "{} executors ended; without one for {:.2} ms (median), {:.2} ms (worst)",
        gaps_us.len(),
        median as f64 / 1e3,
        worst as f64 / 1e3
    );
    Ok(())
}

fn gap_us(line: &str) -> Option<u64> {
    let rest = line.split_once("gap_us=")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_what_was_asked_for_and_follows_from_the_seed() {
        let kinds = |seed| Kind::mixed(1000, &mut Rng::with_seed(seed));
        let count = |kind| kinds(7).iter().filter(|of| **of == kind).count();
        assert_eq!((count(Kind::Faults), count(Kind::Hangs), count(Kind::AsksTooMuch)), (50, 20, 20));
        assert_eq!(kinds(7).len(), 1000);
        assert_eq!(kinds(7), kinds(7));
        assert_ne!(kinds(7), kinds(8));
    }

    #[test]
    fn a_gap_is_read_from_a_line_of_the_log() {
        let line =
            "WARN restarter: executor lost, another took over device=0 pool=0 pid=7 gap_us=153 reason=\"killed\"";
        assert_eq!(gap_us(line), Some(153));
        assert_eq!(gap_us("executor started"), None);
    }
}
