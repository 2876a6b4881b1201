//! Actions of viewers: cancel jobs, and replay or discard dead letters. Each action leaves a record in the log, and one for each job or letter in
//! the ledger.

mod audit;
mod cancel;
mod dead;

use gpufleet_service::problem::{Problem, ProblemKind};

pub(crate) use self::{
    cancel::cancel,
    dead::{DeadLetterLock, discard, list, replay},
};
use crate::{broker::away, server::Console};

/// As many as a list on a page; more are selected by a label with the command.
const TARGETS_MAX: usize = 1000;

impl Console {
    /// Runs an action to its end, also if the viewer leaves or the console stops. So it is recorded, and letters return to the queue in their
    /// order.
    async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions_running.spawn(work).await.unwrap_or_else(|_| Err(away("the work ended too early")))
    }
}

fn check_count(what: &str, count: usize) -> Result<(), Problem> {
    if (1..=TARGETS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::BadRequest,
        "The request has an invalid value",
        format!("{what}: expected 1 to {TARGETS_MAX} of them, found {count}"),
        "select fewer, or use the command `gpufleet`",
    ))
}
