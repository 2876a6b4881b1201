//! The results of a benchmark: combines rounds into medians and spreads.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    machine::Machine,
    stats::{Run, Spread},
    usage::{Part, Usage, Usages},
};

/// The loops that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The bare loop
    Bare,
    /// A producer without the client library, one task in each message
    Foreign,
    Submit,
    SubmitMany,
    /// A Python producer that has pika alone, one task in each message
    Pika,
    Celery,
}

/// A loop with this many jobs in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    pub subject: Subject,
    pub in_flight: usize,
    pub jobs: usize,
}

/// The result of one round of a case.
#[derive(Debug, Clone)]
pub struct Measured {
    pub round: usize,
    pub case: Case,
    pub run: Run,
    pub usages: Usages,
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub setup: Setup,
    pub cases: Vec<Summary>,
}

/// The setup of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Setup {
    pub workers: u32,
    /// The prefetch of the workers; `None` for their default.
    pub prefetch: Option<u16>,
    pub device: String,
    pub ledger: bool,
    pub rounds: usize,
    pub floats: usize,
    pub task_bytes: usize,
    pub pack: usize,
    /// Versions and settings of the Python producers.
    pub python: Vec<String>,
}

/// A case, summarized over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub case: Case,
    pub jobs_per_second: Spread,
    pub p50_ms: Spread,
    pub p99_ms: Spread,
    /// Jobs per second as a share of the bare loop's in the same round; `None` for the bare loop itself.
    pub of_bare: Option<Spread>,
    /// The median over the rounds. It includes the time in which the fleet comes to rest afterwards.
    pub cpu_us_per_job: BTreeMap<Part, f64>,
    /// Voluntary context switches, as above.
    pub switches_per_job: BTreeMap<Part, f64>,
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare loop",
            Self::Foreign => "gpufleet, other producer",
            Self::Submit => "gpufleet, submit",
            Self::SubmitMany => "gpufleet, submit_many",
            Self::Pika => "gpufleet, pika producer",
            Self::Celery => "Celery",
        }
    }
}

/// Summarizes the rounds of each case, in the order of `cases`.
pub fn summarise(cases: &[Case], measured: &[Measured]) -> Vec<Summary> {
    cases.iter().filter_map(|case| Summary::of(*case, measured)).collect()
}

impl Summary {
    fn of(case: Case, measured: &[Measured]) -> Option<Self> {
        let rounds: Vec<&Measured> = measured.iter().filter(|measured| measured.case == case).collect();
        let spread = |figure: &dyn Fn(&Measured) -> f64| Spread::of(rounds.iter().map(|measured| figure(measured)));
        let ratios = rounds.iter().filter_map(|round| {
            let bare = measured.iter().find(|bare| is_baseline(bare, round))?;
            Some(round.run.jobs_per_second() / bare.run.jobs_per_second())
        });
        Some(Self {
            case,
            jobs_per_second: spread(&|measured| measured.run.jobs_per_second())?,
            p50_ms: spread(&|measured| measured.run.percentile_ms(50.0))?,
            p99_ms: spread(&|measured| measured.run.percentile_ms(99.0))?,
            of_bare: Spread::of(ratios),
            cpu_us_per_job: per_job(&rounds, |used| used.cpu.as_secs_f64() * 1e6),
            switches_per_job: per_job(&rounds, |used| used.switches as f64),
        })
    }
}

fn is_baseline(bare: &Measured, of: &Measured) -> bool {
    bare.case.subject == Subject::Bare
        && of.case.subject != Subject::Bare
        && (bare.round, bare.case.in_flight) == (of.round, of.case.in_flight)
}

/// Returns the median of a figure for each part that was measured.
fn per_job(rounds: &[&Measured], figure: impl Fn(&Usage) -> f64) -> BTreeMap<Part, f64> {
    let of_part = |part| {
        let of_round = |round: &&Measured| Some(figure(round.usages.get(&part)?) / round.case.jobs as f64);
        Some((part, Spread::of(rounds.iter().filter_map(of_round))?.median))
    };
    Part::ALL.into_iter().filter_map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn measured(round: usize, subject: Subject, milliseconds: u64) -> Measured {
        let case = Case { subject, in_flight: 4, jobs: 10 };
        let run = Run { took: Duration::from_millis(milliseconds), round_trips: vec![Duration::from_millis(2); 10] };
        let usage = Usage { cpu: Duration::from_millis(milliseconds), switches: milliseconds };
        Measured { round, case, run, usages: Usages::from([(Part::Broker, usage)]) }
    }

    #[test]
    fn ratios_compare_within_a_round() {
        let cases = [Subject::Bare, Subject::Submit].map(|subject| Case { subject, in_flight: 4, jobs: 10 });
        let rounds = [
            measured(0, Subject::Bare, 100),
            measured(0, Subject::Submit, 200),
            measured(1, Subject::Bare, 1000),
            measured(1, Subject::Submit, 4000),
        ];
        let [bare, fleet] = summarise(&cases, &rounds).try_into().unwrap();
        assert!(bare.of_bare.is_none());
        assert_eq!(fleet.of_bare, Some(Spread { median: 0.375, min: 0.25, max: 0.5 }));
        assert_eq!(bare.jobs_per_second, Spread { median: 55.0, min: 10.0, max: 100.0 });
        assert_eq!(bare.p50_ms.median, 2.0);
        assert_eq!(fleet.cpu_us_per_job[&Part::Broker], 210_000.0);
        assert_eq!(fleet.switches_per_job[&Part::Broker], 210.0);
    }

    #[test]
    fn a_case_that_was_never_run_is_not_reported() {
        let case = Case { subject: Subject::SubmitMany, in_flight: 4, jobs: 10 };
        assert!(summarise(&[case], &[measured(0, Subject::Bare, 1)]).is_empty());
    }
}
