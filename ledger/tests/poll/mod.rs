//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

/// Generous, for the machine may be busy; a test that passes takes a fraction of it.
pub const WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until it is so.
pub async fn poll(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
