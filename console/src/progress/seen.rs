//! How far one job is, by the messages about it, and how long the rest may take.

use gpufleet::schema::{Count, Progress, Stage};
use serde::Serialize;

use super::text::{ShownText, Text};

/// A rate over less time says little.
const RATE_AFTER_MS: i64 = 1_000;

#[derive(Debug)]
pub(super) struct Seen {
    latest: Progress,
    /// The time and the count from which the rate is measured: where the latest stage began, or what was known first of it.
    base: (i64, u64),
    text: Text,
}

/// What viewers see of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Shown {
    attempt: u32,
    /// By the worker's clock.
    started_ms: i64,
    stage: Stage,
    /// None if there is nothing to count, such as with a single launch.
    count: Option<Count>,
    unit: Unit,
    /// How long the rest of the stage takes at the rate so far; none if there is no rate yet.
    left_ms: Option<u64>,
    /// None if nothing was printed, or if the page shows no text.
    printed: Option<ShownText>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Launches,
    Steps,
    Bytes,
}

impl Seen {
    pub(super) fn new(first: &Progress, with_text: bool) -> Self {
        // When a job began to store is not known; launches and fetched bytes count from the start.
        let base = match first.stage {
            Stage::Storing => (first.at_ms, done(first)),
            Stage::Fetching | Stage::Running | Stage::Later(_) => (first.started_ms, 0),
        };
        let mut seen = Self { latest: first.clone(), base, text: Text::default() };
        seen.take(first, with_text);
        seen
    }

    /// Messages may be lost, and come twice or late: the jobs' pool and the job itself may both be followed.
    pub(super) fn learn(&mut self, progress: &Progress, with_text: bool) {
        let (attempt, sequence) = (self.latest.attempt, self.latest.sequence);
        if (progress.attempt, progress.sequence) <= (attempt, sequence) {
            return;
        }
        if progress.attempt > attempt {
            *self = Self::new(progress, with_text);
            return;
        }
        if progress.stage != self.latest.stage {
            self.base = (progress.at_ms, done(progress));
        }
        self.take(progress, with_text);
    }

    fn take(&mut self, progress: &Progress, with_text: bool) {
        if let Some(printed) = progress.printed.as_ref().filter(|_| with_text) {
            self.text.add(printed);
        }
        self.latest = Progress { printed: None, ..progress.clone() };
    }

    pub(super) fn shown(&self) -> Shown {
        let Progress { attempt, started_ms, stage, .. } = self.latest;
        let unit = match stage {
            Stage::Fetching | Stage::Storing => Unit::Bytes,
            Stage::Running | Stage::Later(_) if self.latest.counter.is_some() => Unit::Steps,
            Stage::Running | Stage::Later(_) => Unit::Launches,
        };
        let count = self.latest.count().filter(|count| count.total > 1);
        let left_ms = count.and_then(|count| self.left_ms(count));
        Shown { attempt, started_ms, stage, count, unit, left_ms, printed: self.text.shown() }
    }

    fn left_ms(&self, count: Count) -> Option<u64> {
        let (since, before) = self.base;
        let took = self.latest.at_ms.checked_sub(since).filter(|took| *took >= RATE_AFTER_MS)?;
        let (done, open) = (count.done.checked_sub(before)?, count.total.checked_sub(count.done)?);
        let left = u128::from(took.unsigned_abs()) * u128::from(open);
        left.checked_div(u128::from(done)).and_then(|left| u64::try_from(left).ok())
    }
}

fn done(progress: &Progress) -> u64 {
    progress.count().map_or(0, |count| count.done)
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::{JobId, Printed, VERSION};

    use super::*;

    /// A report of the second with this number.
    fn report(attempt: u32, second: u64, stage: Stage, done: u64) -> Progress {
        let count = Some(Count { done, total: 1_000 });
        let (launches, bytes) = if stage == Stage::Running { (count, None) } else { (None, count) };
        Progress {
            version: VERSION,
            job_id: JobId::new(),
            attempt,
            sequence: second,
            at_ms: 1_000 * second as i64,
            started_ms: 0,
            stage,
            launches,
            counter: None,
            bytes,
            printed: Some(Printed { offset: second, text: second.to_string() }),
            ran_on: None,
        }
    }

    fn seen(reports: &[Progress]) -> Shown {
        let mut seen = Seen::new(&reports[0], false);
        reports.iter().for_each(|report| seen.learn(report, false));
        seen.shown()
    }

    #[test]
    fn the_rest_is_estimated_from_the_rate_of_the_stage() {
        let first = seen(&[report(1, 10, Stage::Running, 100)]);
        assert_eq!((first.unit, first.left_ms), (Unit::Launches, Some(90_000)), "since the start");
        let fetched = report(1, 100, Stage::Fetching, 500);
        assert_eq!(seen(std::slice::from_ref(&fetched)).unit, Unit::Bytes);
        let begun = report(1, 101, Stage::Running, 0);
        assert_eq!(seen(&[fetched.clone(), begun.clone()]).left_ms, None, "nothing is known of the stage");
        let later = report(1, 111, Stage::Running, 100);
        assert_eq!(seen(&[fetched, begun, later]).left_ms, Some(90_000), "without the time that fetching took");
        assert_eq!(seen(&[report(1, 50, Stage::Storing, 10)]).left_ms, None, "it is not known when that began");
        assert_eq!(seen(&[report(1, 50, Stage::Running, 1_000)]).left_ms, Some(0));
    }

    #[test]
    fn a_single_launch_is_no_count_and_a_counter_counts_steps() {
        let single = Progress { launches: Some(Count { done: 0, total: 1 }), ..report(1, 5, Stage::Running, 0) };
        assert_eq!(seen(std::slice::from_ref(&single)).count, None);
        let counted = seen(&[Progress { counter: Some(Count { done: 7, total: 9 }), ..single }]);
        assert_eq!((counted.count, counted.unit), (Some(Count { done: 7, total: 9 }), Unit::Steps));
    }

    #[test]
    fn a_later_attempt_begins_anew_and_an_earlier_report_changes_nothing() {
        let reports = [report(1, 5, Stage::Running, 50), report(2, 1, Stage::Running, 10)];
        let now = seen(&reports);
        assert_eq!((now.attempt, now.count.unwrap().done), (2, 10));
        let [old, new] = reports;
        assert_eq!(seen(&[old.clone(), new.clone(), old, report(2, 0, Stage::Running, 3), new]), now);
    }

    #[test]
    fn only_a_page_that_shows_text_has_it_and_a_message_that_comes_twice_adds_nothing() {
        let reports = [report(1, 0, Stage::Running, 0), report(1, 1, Stage::Running, 1)];
        assert_eq!(seen(&reports).printed, None);
        let mut seen = Seen::new(&reports[0], true);
        for report in [&reports[0], &reports[1], &reports[1]] {
            seen.learn(report, true);
        }
        assert_eq!(serde_json::to_value(seen.shown().printed).unwrap()["text"], "01");
    }
}
