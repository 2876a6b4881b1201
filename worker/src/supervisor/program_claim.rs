//! Keeps a host program from running twice.
//!
//! The broker redelivers the message of a program whose worker it has cut off, although the program may go on there. So a worker claims the
//! program for as long as it runs, and marks it as started. The claim is gone with the worker's connection; the mark stays.
//!
//! | claim | mark | a redelivery |
//! | --- | --- | --- |
//! | another worker's | | waits until that worker has reported how the program ended, or is gone |
//! | none | none | is like the first delivery: the program has not started |
//! | none | there | waits once, so that a worker that was cut off can come back; then the program is lost, and runs again if it may |

use gpufleet_schema::{Failure, FailureCode, JobId, Verdict, topology::retry_rung};
use tracing::{debug, info};

use super::{Supervisor, prepared::Ready};
use crate::{disposition::Ending, forwarding::Destination};

/// The rung of the retry ladder on which a program waits that another worker runs, or may run: half a minute.
const WAIT_RUNG: u32 = 3;

impl Supervisor {
    /// Claims a program, and marks it as started. Returns how the attempt ends if the program must not start here now.
    pub(super) async fn claim_program(&self, ready: &Ready) -> Result<(), Ending> {
        let (task, envelope) = (ready.task(), ready.envelope());
        let (job_id, history) = (task.job_id, envelope.forwarding);
        let again = |history, why: &str| {
            let seconds = retry_rung(WAIT_RUNG).seconds;
            info!(%job_id, seconds, "{why}");
            Ending::Forwarded { history, to: Destination::Later(retry_rung(WAIT_RUNG)) }
        };
        // Without an answer of the broker, the attempt ends before anything has started.
        let claimed = self.broker.claim_program(job_id).await;
        if !claimed.map_err(|error| no_answer(&error.to_string()))? {
            return Err(again(history, "another worker runs the host program, looking again later"));
        }
        let marked = self.broker.is_program_marked(job_id).await;
        if marked.map_err(|error| no_answer(&error.to_string()))? && envelope.may_have_started() {
            let is_first_wait = history.waits == 0;
            let may_run_again = task.limits.attempts_max() > 1;
            if is_first_wait {
                return Err(again(history.waited(), "the host program may run on another worker, looking again later"));
            }
            if !may_run_again {
                let message = "the worker on which the program ran is gone; the program may run once and is not started again \
                               (--attempts allows more)";
                let failure = Failure::new(Verdict::Infrastructure, FailureCode::ExecutorLost, message.to_owned());
                return Err(Ending::Failed(failure));
            }
        }
        let marked = self.broker.mark_program(job_id).await;
        marked.map_err(|error| no_answer(&error.to_string()))
    }

    /// Claims and marks the program again, because a claim ends with its connection and a mark with time.
    pub(super) async fn keep_program_claimed(&self, job_id: JobId) {
        for kept in [self.broker.claim_program(job_id).await.map(drop), self.broker.mark_program(job_id).await] {
            if let Err(error) = kept {
                debug!(%job_id, %error, "claim of a host program not renewed");
            }
        }
    }

    pub(super) async fn release_program(&self, job_id: JobId) {
        if let Err(error) = self.broker.release_program(job_id).await {
            debug!(%job_id, %error, "claim of a host program not given up");
        }
    }
}

fn no_answer(error: &str) -> Ending {
    Ending::Lost { reason: format!("the worker could not claim the program on the broker: {error}"), suspect: false }
}
