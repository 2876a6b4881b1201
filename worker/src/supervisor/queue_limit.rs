//! The queue limit: the longest time from a job's submission to its start. The job expires at that moment, not when it would have started.
//!
//! The limit applies to jobs that have not started. A job that has lost an attempt, or may have, runs again without the limit: it met its
//! limit when it started, and its client may already have an outcome.

use std::time::Duration;

use tokio::time::timeout;

use super::clock::{Received, micros};
use crate::disposition::Ending;

/// The wait of a job so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimit {
    limit: Option<Duration>,
    /// The time from submission to delivery, as exact as the two clocks agree.
    before: Duration,
    received: Received,
}

impl QueueLimit {
    pub(super) fn new(
        limit: Option<Duration>,
        may_have_started: bool,
        received: Received,
        submitted_ms: Option<i64>,
    ) -> Self {
        let limit = limit.filter(|_| !may_have_started);
        Self { limit, before: received.since_submission(submitted_ms), received }
    }

    /// Fails with [`Ending::Expired`] if the limit has passed.
    pub(super) fn check(&self) -> Result<(), Ending> {
        match self.limit {
            Some(limit) if self.queued() > limit => Err(self.expired(limit)),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits for `start` until the limit passes.
    pub(super) async fn unless_expired<T>(&self, start: impl Future<Output = T>) -> Result<T, Ending> {
        self.check()?;
        let Some(limit) = self.limit else { return Ok(start.await) };
        timeout(limit.saturating_sub(self.queued()), start).await.map_err(|_| self.expired(limit))
    }

    fn queued(&self) -> Duration {
        self.before + self.received.elapsed()
    }

    fn expired(&self, limit: Duration) -> Ending {
        Ending::Expired { queued_ms: micros(self.queued()) / 1000, limit_ms: micros(limit) / 1000 }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn waiting(limit: Option<Duration>) -> QueueLimit {
        QueueLimit::new(limit, false, Received::now(), None)
    }

    #[tokio::test]
    async fn who_waits_for_ever_expires_and_who_has_no_limit_does_not() {
        let ending = waiting(Some(Duration::from_millis(5))).unless_expired(pending::<()>()).await.unwrap_err();
        assert!(matches!(ending, Ending::Expired { limit_ms: 5, queued_ms: 5.. }), "{ending:?}");
        assert_eq!(waiting(None).unless_expired(ready(1)).await.unwrap(), 1);
        assert_eq!(waiting(Some(Duration::from_secs(60))).unless_expired(ready(2)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn time_before_the_message_came_counts() {
        let an_hour_ago = super::super::clock::unix_ms() - 3_600_000;
        let queued = |may_have_started| {
            QueueLimit::new(Some(Duration::from_secs(60)), may_have_started, Received::now(), Some(an_hour_ago))
        };
        assert!(matches!(queued(false).unless_expired(ready(())).await, Err(Ending::Expired { .. })));
        assert!(queued(false).check().is_err());
        queued(true).check().expect("it kept its limit when it started");
        queued(true).unless_expired(ready(())).await.unwrap();
    }
}
