//! The two clocks: one that never jumps, for durations, and the calendar's, for the record.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The moment at which a message came, on both clocks.
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

    /// Time since the producer's `submitted_ms`. The clocks are two, so it is only as good as they agree, and never negative.
    pub(super) fn since_submission(&self, submitted_ms: Option<i64>) -> Duration {
        let queued_ms = submitted_ms.map_or(0, |submitted| self.unix_ms.saturating_sub(submitted).max(0));
        Duration::from_millis(queued_ms.unsigned_abs())
    }
}

pub(super) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
