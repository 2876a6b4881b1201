//! What one turn leaves behind, such as events that the ledger still writes, must not burden the next one.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::cpu::{CpuTimes, Parts, since};

const DEADLINE: Duration = Duration::from_secs(60);
/// Processes at rest use less than a tenth of a core, looked at over this time.
const WINDOW: Duration = Duration::from_millis(300);
const SHARE_MAX: f64 = 0.1;

/// Waits until these processes rest. Gives what they had spent when the rest began.
pub async fn rest(parts: &Parts) -> anyhow::Result<CpuTimes> {
    let deadline = Instant::now() + DEADLINE;
    let mut before = parts.cpu_times();
    loop {
        sleep(WINDOW).await;
        let now = parts.cpu_times();
        let spent: Duration = since(&before, &now).values().sum();
        if spent.as_secs_f64() < SHARE_MAX * WINDOW.as_secs_f64() {
            return Ok(before);
        }
        ensure!(Instant::now() < deadline, "the fleet did not come to rest in {} s", DEADLINE.as_secs());
        before = now;
    }
}
