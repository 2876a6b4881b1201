//! Blames programs that kill their executors, and refuses those in quarantine.

use std::time::{Duration, Instant, SystemTime};

use gpufleet_schema::{Failure, FailureCode, Task, Verdict};
use tracing::warn;

use super::Supervisor;
use crate::{
    disposition::Ending,
    quarantine::{Culprit, Quarantine, Refused},
    scheduler::PoolId,
    shared_state::Locked,
};

impl Supervisor {
    pub(super) fn check_quarantine(&self, pool: PoolId, task: &Task<'_>) -> Result<(), Ending> {
        // Skip the hash, which takes a noticeable part of a small job's time, because the quarantine is almost always
        // empty.
        if self.quarantine().is_empty() {
            return Ok(());
        }
        // Hash without the lock: a program may have several megabytes, and other jobs would wait.
        let culprit = Culprit::of(pool, task);
        let refused = self.quarantine().refuses(culprit, Instant::now());
        match refused {
            Some(refused) => Err(Ending::Failed(failure(refused))),
            None => Ok(()),
        }
    }

    /// Records that the job's program has killed its executor.
    pub(super) fn blame(&self, pool: PoolId, task: &Task<'_>) {
        let culprit = Culprit::of(pool, task);
        let refused = self.quarantine().blame(culprit, Instant::now());
        if let Some(Refused { deaths, remaining }) = refused {
            warn!(job_id = %task.job_id, deaths, seconds = remaining.as_secs(), "program quarantined because it keeps killing executors");
        }
    }

    fn quarantine(&self) -> Locked<'_, Quarantine> {
        self.quarantine.lock()
    }
}

fn failure(refused: Refused) -> Failure {
    // Round up to the next whole second, when the quarantine is certainly over.
    let until = SystemTime::now() + refused.remaining + Duration::from_secs(1);
    let message = format!(
        "this program killed {} executors in a short time; this worker rejects it until {}",
        refused.deaths,
        humantime::format_rfc3339_seconds(until)
    );
    Failure::new(Verdict::User, FailureCode::Quarantined, message)
}
