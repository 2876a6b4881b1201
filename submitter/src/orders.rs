//! Orders to the fleet: cancel jobs, drain a worker. They go into a log that every worker reads from its beginning.

use gpufleet_schema::{Command, JobId, MessageId, Order, Selection, WorkerName};
use gpufleet_transport::PublishError;

use crate::{Fleet, submission::now_ms};

/// Jobs in one order at most: some hundred kilobytes.
const JOBS_PER_ORDER: usize = 10_000;

impl Fleet {
    /// Cancels jobs: those that wait never run, those that run are ended. Returns when the broker has the order on disk; a worker
    /// that has one of the jobs, or gets it later, answers it as cancelled. A job that has an outcome keeps it.
    ///
    /// `by` is told to the jobs' owners. Cancelling the call leaves it open which of the orders were given.
    pub async fn cancel(&self, selection: Selection, by: Option<String>) -> Result<(), PublishError> {
        for jobs in selection.jobs.chunks(JOBS_PER_ORDER) {
            self.order(Command::Cancel(part(jobs)), by.clone()).await?;
        }
        if !selection.labels.is_empty() {
            let labelled = Selection { jobs: Vec::new(), ..selection };
            self.order(Command::Cancel(labelled), by).await?;
        }
        Ok(())
    }

    /// Tells a worker to take no more jobs, finish what runs, and leave. Returns when the broker has the order on disk.
    pub async fn drain_worker(&self, worker: WorkerName, by: Option<String>) -> Result<(), PublishError> {
        self.order(Command::Drain { worker }, by).await
    }

    async fn order(&self, command: Command, by: Option<String>) -> Result<(), PublishError> {
        self.connection.broker().order(&Order::new(now_ms(), by, command), MessageId::new()).await
    }
}

fn part(jobs: &[JobId]) -> Selection {
    Selection { jobs: jobs.to_vec(), ..Selection::default() }
}
