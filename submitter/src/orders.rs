//! Orders to the fleet: cancel jobs, drain a worker. They go into a log that every worker reads from its beginning.

use gpufleet_schema::{Command, JobId, MessageId, Order, Selection, WorkerName, topology::Speaker};
use gpufleet_transport::PublishError;

use crate::{Fleet, submission::now_ms};

/// Jobs in one order at most: some hundred kilobytes.
const JOBS_PER_ORDER: usize = 10_000;

/// Whose jobs a cancellation means. RabbitMQ's permissions decide: operators may write to one exchange, clients to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelScope {
    /// Any job: the user is an operator.
    All,
    /// The jobs that the broker vouches this user submitted. Others go on.
    Own,
}

impl Fleet {
    /// Cancels jobs: those that wait never run, those that run are ended. Returns when the broker has the order on disk; a worker
    /// that has one of the jobs, or gets it later, answers it as cancelled. A job that has an outcome keeps it. A user who is no operator
    /// cancels its own jobs alone.
    ///
    /// `by` is told to the jobs' owners. Cancelling the call leaves it open which of the orders were given.
    pub async fn cancel(&self, selection: Selection, by: Option<String>) -> Result<CancelScope, PublishError> {
        let mut scope = CancelScope::All;
        for part in parts(selection) {
            scope = self.cancel_part(part, by.clone(), scope).await?;
        }
        Ok(scope)
    }

    /// Tells a worker to take no more jobs, finish what runs, and leave. Returns when the broker has the order on disk. Operators alone may.
    pub async fn drain_worker(&self, worker: WorkerName, by: Option<String>) -> Result<(), PublishError> {
        self.order(Command::Drain { worker }, by, Speaker::Operator).await
    }

    async fn cancel_part(
        &self,
        part: Selection,
        by: Option<String>,
        scope: CancelScope,
    ) -> Result<CancelScope, PublishError> {
        if scope == CancelScope::All {
            match self.order(Command::Cancel(part.clone()), by.clone(), Speaker::Operator).await {
                Err(PublishError::Forbidden { .. }) => {}
                given => return given.map(|()| CancelScope::All),
            }
        }
        self.order(Command::Cancel(part), by, Speaker::Client).await.map(|()| CancelScope::Own)
    }

    async fn order(&self, command: Command, by: Option<String>, speaker: Speaker) -> Result<(), PublishError> {
        self.connection.broker().order(&Order::new(now_ms(), by, command), speaker, MessageId::new()).await
    }
}

/// One order for so many jobs, and one for the labels.
fn parts(selection: Selection) -> Vec<Selection> {
    let Selection { jobs, labels } = selection;
    let named = |jobs: &[JobId]| Selection { jobs: jobs.to_vec(), ..Selection::default() };
    let mut parts: Vec<Selection> = jobs.chunks(JOBS_PER_ORDER).map(named).collect();
    if !labels.is_empty() {
        parts.push(Selection { jobs: Vec::new(), labels });
    }
    parts
}
