//! How far a job is, in one line: `kernels ███░░░░░░░ 312/1000 launches · 41 s · about 90 s left`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet::schema::{Count, Progress, Stage};

use crate::quantity;

/// The characters of a bar.
const BAR_COLUMNS: usize = 10;
/// Workers publish each second. What is older than this says nothing of the present: the worker may have died.
const FRESH: Duration = Duration::from_secs(10);

/// What the latest message says of a job.
#[derive(Debug, Clone)]
pub struct Standing {
    progress: Arc<Progress>,
    /// When the stage began, by the worker's clock.
    stage_began_ms: i64,
    received: Instant,
}

impl Standing {
    /// The standing after a message. `None` if the message is of an earlier run than the one before.
    pub fn after(before: Option<&Self>, progress: Arc<Progress>) -> Option<Self> {
        let stage_began_ms = match before {
            Some(before) if run(&progress) < run(&before.progress) => return None,
            Some(before) if run(&progress) == run(&before.progress) => {
                if progress.stage == before.progress.stage {
                    before.stage_began_ms
                } else {
                    progress.at_ms
                }
            }
            _ => progress.started_ms,
        };
        Some(Self { progress, stage_began_ms, received: Instant::now() })
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn is_same_run(&self, other: &Self) -> bool {
        run(&self.progress) == run(&other.progress)
    }

    /// The line for a terminal; `None` if the message is too old.
    pub fn line(&self) -> Option<String> {
        let age = self.received.elapsed();
        (age < FRESH).then(|| line(&self.progress, self.stage_began_ms, age, true))
    }

    /// The line for a log, and the part of it that changes with the work alone.
    pub fn log_line(&self) -> (String, String) {
        let line = line(&self.progress, self.stage_began_ms, self.received.elapsed(), false);
        (format!("job {}: {line}", self.progress.job_id), reached(&self.progress, false))
    }
}

/// Tells the runs of a job apart, in their order.
fn run(progress: &Progress) -> (u32, i64) {
    (progress.attempt, progress.started_ms)
}

/// The line at some time after the worker published the message.
fn line(progress: &Progress, stage_began_ms: i64, age: Duration, has_bar: bool) -> String {
    let elapsed = |since_ms: i64| Duration::from_millis(progress.at_ms.abs_diff(since_ms));
    let mut parts = vec![reached(progress, has_bar), rounded_down(elapsed(progress.started_ms) + age)];
    let left = shown(progress).and_then(|count| left(count, elapsed(stage_began_ms)));
    parts.extend(left.map(|left| format!("about {} left", rounded(left.saturating_sub(age)))));
    parts.join(" · ")
}

/// `kernels ███░░░░░░░ 312/1000 launches`
fn reached(progress: &Progress, has_bar: bool) -> String {
    let mut words = Vec::new();
    if progress.attempt > 1 {
        words.push(format!("attempt {}:", progress.attempt));
    }
    words.push(match progress.stage {
        Stage::Fetching => "fetching inputs".to_owned(),
        Stage::Running => "kernels".to_owned(),
        Stage::Storing => "storing outputs".to_owned(),
        Stage::Later(_) => progress.stage.name().to_owned(),
    });
    if let Some(count) = shown(progress) {
        words.extend(has_bar.then(|| bar(count)));
        words.push(match progress.stage {
            Stage::Fetching | Stage::Storing => quantity::bytes_ratio(count.done, count.total),
            Stage::Running | Stage::Later(_) => {
                let unit = if progress.counter.is_some() { "steps" } else { "launches" };
                format!("{}/{} {unit}", count.done, count.total)
            }
        });
    }
    words.join(" ")
}

/// One launch alone is either not done or done, which a count would not make clearer.
fn shown(progress: &Progress) -> Option<Count> {
    progress.count().filter(|count| count.total > 1)
}

fn bar(count: Count) -> String {
    let done = (count.fraction() * BAR_COLUMNS as f64) as usize;
    "█".repeat(done) + &"░".repeat(BAR_COLUMNS - done)
}

/// The time for the rest if it goes on as before.
fn left(count: Count, elapsed: Duration) -> Option<Duration> {
    let fraction = count.fraction();
    (0.0 < fraction && fraction < 1.0).then(|| elapsed.mul_f64(((1.0 - fraction) / fraction).min(1e6)))
}

fn rounded_down(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// An estimate needs few digits.
fn rounded(time: Duration) -> String {
    let to = |unit: u64| (time.as_millis() as u64 + unit * 500) / (unit * 1000);
    match time.as_secs() {
        0..10 => format!("{} s", to(1).max(1)),
        10..120 => format!("{} s", to(5) * 5),
        120..7200 => format!("{} min", to(60)),
        _ => format!("{} h", to(3600)),
    }
}

#[cfg(test)]
pub mod tests {
    use gpufleet::schema::VERSION;

    use super::*;

    /// A job whose kernels have run for 41 s.
    pub fn progress() -> Progress {
        Progress {
            version: VERSION,
            job_id: "01990f3e-0000-7000-8000-000000000001".parse().unwrap(),
            attempt: 1,
            sequence: 40,
            at_ms: 1_795_000_041_000,
            started_ms: 1_795_000_000_000,
            stage: Stage::Running,
            launches: Some(Count::of(312, 1000)),
            counter: None,
            bytes: None,
            printed: None,
            ran_on: None,
        }
    }

    fn shown_as(change: impl FnOnce(&mut Progress)) -> String {
        let mut progress = progress();
        change(&mut progress);
        line(&progress, progress.started_ms, Duration::ZERO, true)
    }

    #[test]
    fn a_line_has_what_is_counted_and_the_time() {
        assert_eq!(shown_as(|_| ()), "kernels ███░░░░░░░ 312/1000 launches · 41 s · about 90 s left");
        let counter = Some(Count::of(12_000, 20_000));
        assert_eq!(
            shown_as(|it| it.counter = counter),
            "kernels ██████░░░░ 12000/20000 steps · 41 s · about 25 s left"
        );
        let fetching = |it: &mut Progress| (it.stage, it.bytes) = (Stage::Fetching, Some(Count::of(4 << 30, 10 << 30)));
        assert_eq!(shown_as(fetching), "fetching inputs ████░░░░░░ 4.00/10.0 GiB · 41 s · about 60 s left");
        let storing = |it: &mut Progress| (it.stage, it.attempt) = (Stage::Storing, 2);
        assert_eq!(shown_as(storing), "attempt 2: storing outputs · 41 s");
        assert_eq!(
            shown_as(|it| it.stage = Stage::of("cooling")),
            "cooling ███░░░░░░░ 312/1000 launches · 41 s · about 90 s left"
        );
    }

    #[test]
    fn without_a_count_there_is_the_time_alone() {
        for launches in [None, Some(Count::of(0, 1)), Some(Count::of(0, 0))] {
            assert_eq!(shown_as(|it| it.launches = launches), "kernels · 41 s", "{launches:?}");
        }
        assert_eq!(shown_as(|it| it.launches = Some(Count::of(0, 9))), "kernels ░░░░░░░░░░ 0/9 launches · 41 s");
        assert_eq!(shown_as(|it| it.launches = Some(Count::of(9, 9))), "kernels ██████████ 9/9 launches · 41 s");
    }

    #[test]
    fn an_estimate_counts_from_the_beginning_of_the_stage_and_goes_down() {
        let began = Arc::new(Progress { stage: Stage::Fetching, launches: None, ..progress() });
        let fetching = Standing::after(None, began.clone()).unwrap();
        let runs_ms = began.at_ms + 2_000;
        let running = Arc::new(Progress { at_ms: runs_ms, stage: Stage::Running, launches: None, ..progress() });
        let running = Standing::after(Some(&fetching), running).unwrap();
        let later = Arc::new(Progress { at_ms: runs_ms + 10_000, launches: Some(Count::of(1, 3)), ..progress() });
        let later = Standing::after(Some(&running), later).unwrap();
        let at = |age| line(&later.progress, later.stage_began_ms, Duration::from_secs(age), false);
        assert_eq!(at(0), "kernels 1/3 launches · 53 s · about 20 s left");
        assert_eq!(at(4), "kernels 1/3 launches · 57 s · about 15 s left");
        assert_eq!(at(60), "kernels 1/3 launches · 113 s · about 1 s left");
        assert_eq!(later.log_line().1, "kernels 1/3 launches");
    }

    #[test]
    fn a_message_of_an_earlier_run_is_ignored() {
        let second = Standing::after(None, Arc::new(Progress { attempt: 2, ..progress() })).unwrap();
        assert!(Standing::after(Some(&second), Arc::new(progress())).is_none());
        let third = Standing::after(Some(&second), Arc::new(Progress { attempt: 3, ..progress() })).unwrap();
        assert!(!third.is_same_run(&second));
        // The broker may deliver a task twice under one number.
        let again = Progress { attempt: 3, started_ms: progress().at_ms, ..progress() };
        assert!(!Standing::after(Some(&third), Arc::new(again)).unwrap().is_same_run(&third));
    }

    #[test]
    fn long_times_have_few_digits() {
        let at = |seconds| (rounded_down(Duration::from_secs(seconds)), rounded(Duration::from_secs(seconds)));
        let texts = |down: &str, near: &str| (down.to_owned(), near.to_owned());
        assert_eq!(at(0), texts("0 s", "1 s"));
        assert_eq!(at(119), texts("119 s", "120 s"));
        assert_eq!(at(160), texts("2 min 40 s", "3 min"));
        assert_eq!(at(11_000), texts("3 h 3 min", "3 h"));
        assert_eq!(left(Count::of(1, u64::MAX), Duration::from_secs(1)), Some(Duration::from_secs(1_000_000)));
    }
}
