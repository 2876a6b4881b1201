//! Measures a command until it ends.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gpufleet_tests::memory_bytes;
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

/// The time between two samples of the peak memory. The peak never decreases, so only a change just before the end is
/// missed.
pub const POLL: Duration = Duration::from_millis(10);
pub const RUN_DEADLINE: Duration = Duration::from_secs(600);

pub struct Run {
    pub seconds: f64,
    pub peak_bytes: u64,
}

impl Run {
    /// Measures a command that was just started. The command must succeed.
    pub async fn to_end(mut run: Child) -> anyhow::Result<Self> {
        let pid = run.id().context("the command has ended")?;
        let (started, mut peak_bytes) = (Instant::now(), 0);
        let ended = async {
            loop {
                tokio::select! {
                    status = run.wait() => return status,
                    () = sleep(POLL) => peak_bytes = memory_bytes(pid, "VmHWM").unwrap_or(peak_bytes),
                }
            }
        };
        let status = timeout(RUN_DEADLINE, ended).await.context("the command did not end in time")??;
        ensure!(status.success(), "the command ended with {status}");
        Ok(Self { seconds: started.elapsed().as_secs_f64(), peak_bytes })
    }
}
