//! The two clocks of a worker: a monotonic one for durations, and the wall clock for the ledger.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpufleet_schema::Task;

use crate::dispatcher::QueueLimit;

/// The time at which a message was delivered, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    at: Instant,
    unix_ms: i64,
}

impl Received {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), unix_ms: unix_ms() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Returns the time since the producer's `submitted_ms`, never negative. Its error is the difference between the two machines' clocks.
    pub(super) fn since_submission(&self, submitted_ms: Option<i64>) -> Duration {
        let queued_ms = submitted_ms.map_or(0, |submitted| self.unix_ms.saturating_sub(submitted).max(0));
        Duration::from_millis(queued_ms.unsigned_abs())
    }

    /// Creates the queue limit of a task, which counts from its submission.
    pub(super) fn queue_limit(&self, limit: Duration, task: &Task<'_>, timestamp: Option<u64>) -> QueueLimit {
        let before = self.since_submission(Some(self.submission_ms(task, timestamp)));
        QueueLimit { limit, before, delivered: self.at }
    }

    /// Returns the time of submission in Unix milliseconds: from the task, else from its id, else from the message's timestamp (in
    /// seconds). Without any of these it is the time of delivery.
    pub(super) fn submission_ms(&self, task: &Task<'_>, timestamp: Option<u64>) -> i64 {
        let in_message = || i64::try_from(timestamp?.saturating_mul(1000)).ok();
        task.submitted_ms.or_else(|| task.job_id.made_ms()).or_else(in_message).unwrap_or(self.unix_ms)
    }
}

pub(super) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Program;

    use super::*;

    #[test]
    fn the_time_of_submission_is_what_the_first_of_task_id_message_and_delivery_says() {
        let received = Received { at: Instant::now(), unix_ms: 1_800_000_000_000 };
        let made_ms = 0x0190_a5b8_7c00;
        let mut task = Task::new(Program::Catalog("saxpy".into()));
        task.job_id = "0190a5b8-7c00-7000-8000-000000000001".parse().unwrap();
        task.submitted_ms = Some(17);
        assert_eq!(received.submission_ms(&task, Some(5)), 17);
        task.submitted_ms = None;
        assert_eq!(received.submission_ms(&task, Some(5)), made_ms);
        task.job_id = "4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa".parse().unwrap();
        assert_eq!(received.submission_ms(&task, Some(5)), 5000);
        for no_time in [None, Some(u64::MAX)] {
            assert_eq!(received.submission_ms(&task, no_time), 1_800_000_000_000);
        }
    }

    /// Some producers leave `submitted_ms` out.
    #[test]
    fn a_queue_limit_counts_from_the_submission_wherever_its_time_is() {
        let received = Received { at: Instant::now(), unix_ms: 1_800_000_060_000 };
        let mut task = Task::new(Program::Catalog("saxpy".into()));
        let before =
            |task: &Task<'_>, timestamp| received.queue_limit(Duration::from_secs(9), task, timestamp).before.as_secs();
        // The UUIDv7 contains the time 1 800 000 000 000 ms.
        task.job_id = "01a3185c-5000-7000-8000-000000000001".parse().unwrap();
        assert_eq!(before(&task, None), 60, "the time of the id");
        task.submitted_ms = Some(1_800_000_030_000);
        assert_eq!(before(&task, None), 30);
        task.submitted_ms = None;
        task.job_id = "4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa".parse().unwrap();
        assert_eq!(before(&task, Some(1_800_000_020)), 40, "the message's timestamp");
        assert_eq!(before(&task, Some(1_900_000_000)), 0, "a clock that is ahead");
        assert_eq!(before(&task, None), 0, "the delivery");
    }
}
