//! A producer that records the broker's confirmations and the outcome of each wait.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use gpufleet::{Fleet, FleetBuilder, Job, JobError, JobHandle, JobResult, SubmitError};
use gpufleet_schema::{
    Batch, Encoding, JobId, PoolName, Priority, Task,
    topology::{REPLIES, TASKS, task_key},
};
use gpufleet_transport::{Message, Properties};

use crate::{
    Ground,
    history::{Promises, ReplyOutcome},
    node,
    poll::poll_some,
    witness,
};

/// A producer's connection to a fleet.
#[derive(Debug, Clone)]
pub struct Producer {
    fleet: Fleet,
    kept: Kept,
}

/// A confirmed job.
#[derive(Debug)]
pub struct Promise {
    handle: JobHandle,
    kept: Kept,
}

/// The records of all producers of a scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Promises>>);

/// Counts a wait as open until it is dropped.
struct OpenWait<'a> {
    kept: &'a Kept,
    job: JobId,
}

impl Ground {
    /// Publishes a task unchanged, as a foreign producer may.
    pub async fn publish_task(&self, task: &Task<'_>) {
        self.publish_tasks(&Batch::One(task.clone())).await;
    }

    /// The same for a list of tasks in one message.
    pub async fn publish_tasks(&self, tasks: &Batch<Task<'_>>) {
        let message = Message {
            exchange: TASKS,
            routing_key: task_key(&PoolName::default(), Priority::Normal),
            body: Encoding::MessagePack.encode_tasks(tasks).unwrap(),
            properties: Properties { content_type: Some("application/msgpack".to_owned()), ..Properties::default() },
            mandatory: true,
        };
        self.broker().await.publish(message).await.unwrap();
    }

    /// A producer.
    pub async fn client(&self) -> Producer {
        self.client_with(Fleet::builder()).await
    }

    /// A producer with further options.
    pub async fn client_with(&self, builder: FleetBuilder) -> Producer {
        let fleet = builder.connect(&self.endpoints().amqp_url).await.unwrap();
        node::bind_queue(self.fleet(), witness::QUEUE, REPLIES, fleet.client().as_str()).await;
        Producer { fleet, kept: self.promises.clone() }
    }
}

impl Producer {
    pub async fn submit(&self, job: Job) -> Result<Promise, SubmitError> {
        self.fleet.submit(job).await.map(|handle| self.promised(handle))
    }

    /// Submits a job repeatedly until it is confirmed, for scenarios with an unreachable broker.
    pub async fn submit_until_confirmed(&self, job: &Job) -> Promise {
        poll_some("the job is confirmed", async || {
            self.submit(job.clone()).await.inspect_err(|error| println!("submitted again: {error}")).ok()
        })
        .await
    }

    pub async fn submit_many(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Result<Promise, SubmitError>> {
        let handles = self.fleet.submit_many(jobs).await;
        handles.into_iter().map(|handle| handle.map(|handle| self.promised(handle))).collect()
    }

    fn promised(&self, handle: JobHandle) -> Promise {
        self.kept.change(|promises| promises.confirmed.insert(handle.id()));
        Promise { handle, kept: self.kept.clone() }
    }
}

impl Deref for Producer {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

impl Promise {
    pub fn id(&self) -> JobId {
        self.handle.id()
    }

    /// Waits for the reply, as [`JobHandle::wait`] does.
    pub async fn wait(&mut self, deadline: Duration) -> Result<JobResult, JobError> {
        let wait = OpenWait::begin(&self.kept, self.handle.id());
        let outcome = self.handle.wait(deadline).await;
        wait.record(&outcome);
        outcome
    }
}

impl Kept {
    pub(crate) fn all(&self) -> Promises {
        self.0.lock().unwrap().clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Promises) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }
}

impl<'a> OpenWait<'a> {
    fn begin(kept: &'a Kept, job: JobId) -> Self {
        kept.change(|promises| promises.waits.entry(job).or_default().open += 1);
        Self { kept, job }
    }

    fn record(&self, outcome: &Result<JobResult, JobError>) {
        let outcome = match outcome {
            Ok(result) => ReplyOutcome { state: result.state, attempt: result.attempt },
            Err(JobError::Failed(failed)) => ReplyOutcome { state: failed.state, attempt: failed.attempt },
            Err(JobError::DeadlinePassed { .. } | JobError::BadReply { .. } | JobError::Closed { .. }) => return,
        };
        self.kept.change(|promises| promises.waits.entry(self.job).or_default().outcomes.push(outcome));
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        self.kept.change(|promises| promises.waits.entry(self.job).or_default().open -= 1);
    }
}
