//! Waits until processes are at rest. Work left by one turn, such as events that are still being recorded, must not
//! slow the next one down.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::usage::{Parts, Usages, since};

const DEADLINE: Duration = Duration::from_secs(60);
/// The time window in which processes at rest use less than a tenth of a core.
const WINDOW: Duration = Duration::from_millis(300);
const SHARE_MAX: f64 = 0.1;

/// Waits until these processes are at rest. Returns their usage at that moment.
pub async fn rest(parts: &Parts) -> anyhow::Result<Usages> {
    let deadline = Instant::now() + DEADLINE;
    let mut before = parts.usages();
    loop {
        sleep(WINDOW).await;
        let now = parts.usages();
        let spent: Duration = since(&before, &now).values().map(|used| used.cpu).sum();
        if spent.as_secs_f64() < SHARE_MAX * WINDOW.as_secs_f64() {
            return Ok(before);
        }
        ensure!(Instant::now() < deadline, "the fleet did not come to rest in {} s", DEADLINE.as_secs());
        before = now;
    }
}
