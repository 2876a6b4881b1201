//! Orders to the fleet: cancel jobs, drain a worker. Orders go to a stream that every worker reads from its beginning.

use gpufleet_schema::{
    Command, JobId, MessageId, Order, Selection, WorkerName, bounds::ORDER_JOBS_MAX, topology::Speaker,
};
use gpufleet_transport::PublishError;

use crate::{Fleet, submission::now_ms};

/// The jobs that a cancellation applies to. RabbitMQ's permissions decide it: operators publish to one exchange,
/// clients to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelScope {
    /// All jobs, because the user is an operator.
    All,
    /// The jobs that this user submitted, as the broker checked. Other jobs are not affected.
    Own,
}

impl Fleet {
    /// Cancels jobs: waiting jobs never run, and running jobs are stopped. Returns when the broker has the order on
    /// disk. A worker that has one of the jobs, or receives it later, replies that it was cancelled. A job that has
    /// ended keeps its outcome. A user who is not an operator cancels only jobs of their own.
    ///
    /// The replies name `by`, the person who cancels. If the future is cancelled, some of the jobs may have been
    /// cancelled.
    pub async fn cancel(&self, selection: Selection, by: Option<String>) -> Result<CancelScope, PublishError> {
        let mut scope = CancelScope::All;
        for part in parts(selection) {
            scope = self.cancel_part(part, by.clone(), scope).await?;
        }
        Ok(scope)
    }

    /// Tells a worker to take no more jobs, finish the running ones and exit. Returns when the broker has the order on
    /// disk. Only operators may do this: for others, the error is [`PublishError::Forbidden`].
    ///
    /// If the future is cancelled, the order may or may not have been given.
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

/// Splits a selection: one part for every [`ORDER_JOBS_MAX`] jobs, and one for the labels.
fn parts(selection: Selection) -> Vec<Selection> {
    let Selection { jobs, labels } = selection;
    let named = |jobs: &[JobId]| Selection { jobs: jobs.to_vec(), ..Selection::default() };
    let mut parts: Vec<Selection> = jobs.chunks(ORDER_JOBS_MAX).map(named).collect();
    if !labels.is_empty() {
        parts.push(Selection { jobs: Vec::new(), labels });
    }
    parts
}
