//! Waits for conditions instead of times.

use std::time::{Duration, Instant};

/// The limit of a wait. It is generous, because the machine may be busy; a passing test takes a fraction of it.
pub const WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Polls until the condition holds. Fails with the name of the condition after [`WAIT`].
pub async fn poll(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
