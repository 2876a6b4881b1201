//! Sends a job and waits for it in one thread, without the task that sends and the thread that completes futures.

use std::sync::{Arc, Mutex};

use gpufleet::{CheckedJob, Fleet, Follower, JobError, JobResult, SubmitError, UnreadOutput};
use tokio::sync::oneshot::{self, Sender};

use crate::{
    completions::{Completions, Unsettled},
    ended::Ended,
};

type Outcome = Result<Result<JobResult<UnreadOutput>, JobError>, SubmitError>;

/// The token of the job. The follower has no other job, so jobs need not be distinguished.
const TOKEN: u64 = 0;

/// The follower of the job.
#[derive(Debug)]
struct Caller {
    /// The sender of the outcome. Removed when the outcome arrives.
    waits: Mutex<Option<Sender<Outcome>>>,
    /// Counts the job as unsettled. Removed when the broker has confirmed or refused the job, or with the caller if the
    /// job was never sent.
    unsettled: Mutex<Option<Unsettled>>,
}

/// Sends a job and waits for its end. If cancelled, a job that was sent continues to run, and a job that was not sent
/// is never sent.
pub async fn run(fleet: &Fleet, completions: &Arc<Completions>, job: CheckedJob) -> Ended {
    let Some(unsettled) = completions.begin_if_open() else {
        return JobError::Closed { job_id: job.task.job_id }.into();
    };
    let (told, outcome) = oneshot::channel();
    let caller = Caller { waits: Mutex::new(Some(told)), unsettled: Mutex::new(Some(unsettled)) };
    Box::pin(fleet.submit_followed(job, TOKEN, Arc::new(caller))).await;
    match outcome.await.expect("a follower is told once what became of its job") {
        Ok(Ok(result)) => Box::pin(fleet.read_outputs(result)).await.into(),
        Ok(Err(error)) => error.into(),
        Err(refused) => Ended::Refused(Box::new(refused)),
    }
}

impl Caller {
    fn settle(&self) {
        drop(self.unsettled.lock().expect("nothing panics while it holds this lock").take());
    }

    fn tell(&self, outcome: Outcome) {
        let waits = self.waits.lock().expect("nothing panics while it holds this lock").take();
        if let Some(waits) = waits {
            // An error means that the caller no longer waits.
            drop(waits.send(outcome));
        }
    }
}

impl Follower for Caller {
    fn confirmed(&self, _: Vec<u64>) {
        self.settle();
    }

    fn refused(&self, _: u64, error: SubmitError) {
        self.settle();
        self.tell(Err(error));
    }

    fn ended(&self, jobs: Vec<(u64, Result<JobResult<UnreadOutput>, JobError>)>) {
        for (_, ended) in jobs {
            self.tell(Ok(ended));
        }
    }
}
