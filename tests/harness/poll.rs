//! Waits for conditions instead of times.

use std::time::{Duration, Instant};

use crate::WAIT;

pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Polls until the condition holds. Fails with its name if it does not hold within [`WAIT`].
pub async fn poll_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    poll_some(what, async || holds().await.then_some(())).await;
}

/// The same for a condition that returns a value.
pub(crate) async fn poll_some<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {WAIT:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
