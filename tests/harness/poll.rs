//! Waits for conditions instead of times.

use std::time::{Duration, Instant};

use crate::WAIT;

/// The first pause between two polls, and the longest one. Each poll costs the broker or the database as much as a job, and concurrent
/// scenarios share these.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Growing pauses between polls.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

/// Polls until the condition holds. Fails with its name after [`WAIT`].
pub async fn poll_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    poll_some(what, async || holds().await.then_some(())).await;
}

/// Polls until the condition holds, like [`poll_until`], with a limit for what takes longer than [`WAIT`].
pub async fn poll_within(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    poll_some_within(limit, what, async || holds().await.then_some(())).await;
}

/// Polls until the condition returns a value. Fails with its name after [`WAIT`].
pub(crate) async fn poll_some<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    poll_some_within(WAIT, what, look).await
}

async fn poll_some_within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    let mut pauses = Pauses::new();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        pauses.next().await;
    }
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(PAUSE_MIN)
    }

    pub(crate) async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 3 / 2).min(PAUSE_MAX);
    }
}
