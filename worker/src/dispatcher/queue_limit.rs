//! The queue limit: the maximum time from a job's submission to its start. A waiting job expires when the limit passes, not when it would
//! have started.
//!
//! The limit applies to jobs that have not started. A job that has lost an attempt, or may have, runs again without the limit: it started
//! in time, and its client may already have an outcome.

use std::time::{Duration, Instant};

use crate::disposition::Ending;

/// The queue limit of one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimit {
    pub(crate) limit: Duration,
    /// The time from submission to delivery; its error is the difference between the two clocks.
    pub(crate) before: Duration,
    pub(crate) delivered: Instant,
}

impl QueueLimit {
    /// Returns the first moment after the limit.
    pub(super) fn deadline(&self) -> Instant {
        self.delivered + self.limit.saturating_sub(self.before) + Duration::from_nanos(1)
    }

    /// Returns the job's ending if the limit has passed.
    pub(super) fn expired(&self, now: Instant) -> Option<Ending> {
        let queued = self.before + now.saturating_duration_since(self.delivered);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        (queued > self.limit).then(|| Ending::Expired { queued_ms: millis(queued), limit_ms: millis(self.limit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_expires_at_its_deadline_and_time_before_the_delivery_counts() {
        let (delivered, limit) = (Instant::now(), Duration::from_secs(60));
        for (before, left) in [(0, 60), (59, 1), (60, 0), (3600, 0)] {
            let limit = QueueLimit { limit, before: Duration::from_secs(before), delivered };
            assert_eq!(limit.deadline(), delivered + Duration::from_secs(left) + Duration::from_nanos(1));
            let late = limit.expired(limit.deadline());
            assert!(matches!(late, Some(Ending::Expired { limit_ms: 60_000, queued_ms: 60_000.. })), "{late:?}");
            assert_eq!(limit.expired(delivered).is_some(), before > 60);
        }
    }
}
