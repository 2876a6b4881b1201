//! Waits for the ledger, which records the end of a job a moment after the submitter receives the result.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::command::Gpufleet;

/// The limit of the wait. Events are published and recorded in batches within a fraction of a second.
const COMPLETE_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Waits until the history shows this many jobs that succeeded.
pub async fn complete(gpufleet: &Gpufleet, jobs: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + COMPLETE_WITHIN;
    loop {
        let text = gpufleet.output(&["history", "--state", "succeeded", "-o", "json"]).await?;
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&text).context("failed to read the history")?;
        if rows.len() >= jobs {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the history shows {} of {jobs} jobs after {} s", rows.len(), COMPLETE_WITHIN.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}
