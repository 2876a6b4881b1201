//! Collects the results of all test programs: lines on the terminal, the slowest tests, and their times for the next run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use anyhow::Context as _;

use super::watch::{Ended, Outcome};

/// The time from which a test gets a line of its own.
const SHOWN_FROM: Duration = Duration::from_secs(5);
/// The number of slowest tests in the list at the end.
const SLOWEST: usize = 10;

/// The results so far. Several programs add to them concurrently.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub passed: usize,
    pub skipped: usize,
    /// The failed tests, each with the reason.
    pub failed: Vec<String>,
    took: BTreeMap<String, Duration>,
}

/// The total times of the test programs in the last completed run.
#[derive(Debug, Default)]
pub struct Recorded(BTreeMap<String, f64>);

impl Tally {
    /// Adds a test of this program, and shows it if it failed or was slow.
    pub fn add(&self, program: &str, test: &Ended) {
        let Ended { name, outcome, took } = test;
        let (name, seconds) = (format!("{program} {name}"), took.as_secs_f64());
        self.change(|counts| {
            match outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Skipped => counts.skipped += 1,
                Outcome::Failed(_) => counts.failed.push(name.clone()),
            }
            counts.took.insert(name.clone(), *took);
        });
        match outcome {
            Outcome::Failed(printed) => eprintln!("      FAILED {seconds:8.2} s  {name}\n{printed}"),
            Outcome::Passed if *took >= SHOWN_FROM => eprintln!("      passed {seconds:8.2} s  {name}"),
            Outcome::Passed | Outcome::Skipped => {}
        }
    }

    /// Adds tests that another program has counted.
    pub fn add_passed(&self, passed: usize) {
        self.change(|counts| counts.passed += passed);
    }

    /// Adds a failure that is not that of a single test.
    pub fn fail(&self, what: String) {
        eprintln!("      FAILED             {what}");
        self.change(|counts| counts.failed.push(what));
    }

    pub fn counts(&self) -> Counts {
        self.change(|counts| counts.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().expect("no panic happens under this lock"))
    }
}

impl Counts {
    /// Shows the slowest tests, the failed ones, and then the totals.
    pub fn show(&self) {
        let mut slowest: Vec<_> = self.took.iter().collect();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(**took));
        eprintln!("The slowest tests:");
        for (name, took) in slowest.into_iter().take(SLOWEST) {
            eprintln!("  {:8.2} s  {name}", took.as_secs_f64());
        }
        if !self.failed.is_empty() {
            eprintln!("Failed:");
            self.failed.iter().for_each(|failed| eprintln!("  {failed}"));
        }
        eprintln!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped);
    }

    /// Writes the times of all tests for the next run.
    pub fn record(&self, target: &Path) -> anyhow::Result<()> {
        let seconds: BTreeMap<_, _> = self.took.iter().map(|(name, took)| (name, took.as_secs_f64())).collect();
        let path = Recorded::path(target);
        fs::write(&path, serde_json::to_vec_pretty(&seconds)?)
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

impl Recorded {
    fn path(target: &Path) -> PathBuf {
        target.join("test-times.json")
    }

    /// Reads the times of the last run; empty if no run has completed yet.
    pub fn read(target: &Path) -> Self {
        let text = fs::read(Self::path(target)).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Returns the total time of a program's tests, if it is known.
    pub fn of(&self, program: &str) -> Option<f64> {
        let is_of = |name: &str| name.strip_prefix(program).is_some_and(|rest| rest.starts_with(' '));
        self.0.iter().filter(|(name, _)| is_of(name)).map(|(_, seconds)| *seconds).reduce(|sum, more| sum + more)
    }
}
