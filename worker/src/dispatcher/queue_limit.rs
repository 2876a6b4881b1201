//! The queue limit: the longest time from a job's submission to its start. The job expires at that moment, not when it would have started.
//!
//! The limit applies to jobs that have not started. A job that has lost an attempt, or may have, runs again without the limit: it met its
//! limit when it started, and its client may already have an outcome.

use std::time::{Duration, Instant};

use crate::disposition::Ending;

#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimit {
    pub(crate) limit: Duration,
    /// The time from submission to delivery, as exact as the two clocks agree.
    pub(crate) before: Duration,
    pub(crate) delivered: Instant,
}

impl QueueLimit {
    /// The first moment at which the limit has passed.
    pub(super) fn deadline(&self) -> Instant {
        self.delivered + self.limit.saturating_sub(self.before) + Duration::from_nanos(1)
    }

    /// How the job ends if the limit has passed.
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
