//! Waits for conditions instead of times.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);

/// Polls until the condition holds. Fails with its name if it does not hold within this time.
pub async fn poll_until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} did not happen within {within:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
