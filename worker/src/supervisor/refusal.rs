//! Programs that keep killing executors: blamed here, and refused while the quarantine lasts.

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
        // Hashing a program costs a small job a part of its time, and almost always nothing is refused.
        if self.quarantine().is_empty() {
            return Ok(());
        }
        // Not under the lock: a program may have some megabytes, and others would wait for it.
        let culprit = Culprit::of(pool, task);
        let refused = self.quarantine().refuses(culprit, Instant::now());
        match refused {
            Some(refused) => Err(Ending::Failed(failure(refused))),
            None => Ok(()),
        }
    }

    /// The job has killed its executor.
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
    // The next whole second, when it is surely over.
    let until = SystemTime::now() + refused.remaining + Duration::from_secs(1);
    let message = format!(
        "this program killed {} executors in a short time; this worker rejects it until {}",
        refused.deaths,
        humantime::format_rfc3339_seconds(until)
    );
    Failure::new(Verdict::User, FailureCode::Quarantined, message)
}
