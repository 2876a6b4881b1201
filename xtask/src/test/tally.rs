//! What the tests of all programs came to: the lines on the terminal, the slowest tests, and their times for the next run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use anyhow::Context as _;

use super::watch::{Ended, Outcome};

/// Tests at least this long get a line of their own.
const SHOWN_FROM: Duration = Duration::from_secs(5);
/// How many of the slowest tests are listed at the end.
const SLOWEST: usize = 10;

/// The results so far. Several programs add to it at once.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub passed: usize,
    pub skipped: usize,
    /// With the reason.
    pub failed: Vec<String>,
    took: BTreeMap<String, Duration>,
}

/// The times of the tests in the last run that has ended, by their programs.
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

    /// Counts tests that another program has counted.
    pub fn add_passed(&self, passed: usize) {
        self.change(|counts| counts.passed += passed);
    }

    /// Adds the failure of something that is no single test.
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
    /// Shows the slowest tests, the failed ones, and last the numbers.
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

    /// Keeps the times of all tests for the next run.
    pub fn record(&self, target: &Path) -> anyhow::Result<()> {
        let seconds: BTreeMap<_, _> = self.took.iter().map(|(name, took)| (name, took.as_secs_f64())).collect();
        let path = Recorded::path(target);
        fs::write(&path, serde_json::to_vec_pretty(&seconds)?).with_context(|| format!("write {}", path.display()))
    }
}

impl Recorded {
    fn path(target: &Path) -> PathBuf {
        target.join("test-times.json")
    }

    /// None where no run has ended yet.
    pub fn read(target: &Path) -> Self {
        let text = fs::read(Self::path(target)).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// The time of all tests of a program, if there is one.
    pub fn of(&self, program: &str) -> Option<f64> {
        let is_of = |name: &str| name.strip_prefix(program).is_some_and(|rest| rest.starts_with(' '));
        self.0.iter().filter(|(name, _)| is_of(name)).map(|(_, seconds)| *seconds).reduce(|sum, more| sum + more)
    }
}
