//! The time and queue limits of a pool: their defaults and maxima.

use std::time::Duration;

use gpufleet_schema::{Limits, bounds::TIME_LIMIT_MS_MAX};

/// A default and a maximum. Without a maximum, the limit of the schema applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowance {
    pub default: Option<Duration>,
    pub max: Option<Duration>,
}

/// The default and maximum limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeAllowances {
    /// For the time on the device.
    pub run: Allowance,
    /// For the time from submission to start.
    pub queue: Allowance,
}

/// The error of a job that requests more than its pool allows.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the job asks for a {what} limit of {}, but its pool allows at most {}; lower the limit or use another pool", humantime::format_duration(*.asked), humantime::format_duration(*.max))]
pub struct TooLong {
    what: &'static str,
    asked: Duration,
    max: Duration,
}

impl Allowance {
    fn grant(
        &self,
        what: &'static str,
        asked: Option<Duration>,
        usual: Option<Duration>,
    ) -> Result<Option<Duration>, TooLong> {
        match (asked, self.max) {
            (Some(asked), Some(max)) if asked > max => Err(TooLong { what, asked, max }),
            (Some(asked), _) => Ok(Some(asked)),
            (None, max) => Ok(self.default.or(usual).into_iter().chain(max).min()),
        }
    }
}

impl TimeAllowances {
    /// Returns the time limit of a job.
    pub fn run_limit(&self, limits: &Limits) -> Result<Duration, TooLong> {
        let usual = Duration::from_millis(Limits::TIME_LIMIT_MS_DEFAULT);
        let granted = self.run.grant("time", milliseconds(limits.time_limit_ms), Some(usual))?;
        Ok(granted.unwrap_or(usual).min(Duration::from_millis(TIME_LIMIT_MS_MAX)))
    }

    /// Returns the queue limit of a job; unlimited by default.
    pub fn queue_limit(&self, limits: &Limits) -> Result<Option<Duration>, TooLong> {
        self.queue.grant("queue", milliseconds(limits.queue_limit_ms), None)
    }
}

fn milliseconds(number: Option<u64>) -> Option<Duration> {
    number.map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(number: u64) -> Option<Duration> {
        Some(Duration::from_secs(number))
    }

    #[test]
    fn a_job_that_says_nothing_gets_the_default_but_never_more_than_the_maximum() {
        let run = |default, max| {
            TimeAllowances { run: Allowance { default, max }, ..TimeAllowances::default() }
                .run_limit(&Limits::default())
        };
        assert_eq!(run(None, None), Ok(Duration::from_millis(Limits::TIME_LIMIT_MS_DEFAULT)));
        assert_eq!(run(seconds(5), None), Ok(Duration::from_secs(5)));
        assert_eq!(run(None, seconds(7)), Ok(Duration::from_secs(7)));
        assert_eq!(run(seconds(5), seconds(7)), Ok(Duration::from_secs(5)));
        let queue = |default, max| {
            let allowances = TimeAllowances { queue: Allowance { default, max }, ..TimeAllowances::default() };
            allowances.queue_limit(&Limits::default())
        };
        assert_eq!(queue(None, None), Ok(None));
        assert_eq!(queue(None, seconds(7)), Ok(seconds(7)));
        assert_eq!(queue(seconds(5), None), Ok(seconds(5)));
    }

    #[test]
    fn a_job_gets_what_it_asks_for_or_the_reason_why_not() {
        let allowance = Allowance { default: seconds(5), max: seconds(3600) };
        let allowances = TimeAllowances { run: allowance, queue: allowance };
        let asking = |ms| Limits { time_limit_ms: Some(ms), queue_limit_ms: Some(ms), ..Limits::default() };
        assert_eq!(allowances.run_limit(&asking(3_600_000)), Ok(Duration::from_secs(3600)));
        assert_eq!(allowances.queue_limit(&asking(1)), Ok(Some(Duration::from_millis(1))));
        let error = allowances.run_limit(&asking(7_200_000)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the job asks for a time limit of 2h, but its pool allows at most 1h; lower the limit or use another pool"
        );
        assert!(allowances.queue_limit(&asking(3_600_001)).unwrap_err().to_string().contains("queue limit of 1h 1ms"));
    }
}
