//! A producer that records the broker's confirmations and the outcome of each wait.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use gpufleet::{Fleet, FleetBuilder, Job, JobError, JobHandle, JobResult, SubmitError};
use gpufleet_schema::{
    Encoding, JobId, OneOrMany, PoolName, Priority, Task,
    topology::{REPLIES, TASKS, task_key},
};
use gpufleet_transport::{Message, Properties};

use crate::{
    Ground, WAIT,
    history::{ProducerRecord, ReplyOutcome},
    node,
    poll::poll_some,
    witness,
};

/// A producer: a client of a fleet whose results are recorded.
#[derive(Debug, Clone)]
pub struct Producer {
    fleet: Fleet,
    records: ProducerRecords,
}

/// A confirmed job.
#[derive(Debug)]
pub struct ConfirmedJob {
    handle: JobHandle,
    records: ProducerRecords,
}

/// The records of all producers of a scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProducerRecords(Arc<Mutex<ProducerRecord>>);

/// Counts a wait as open until this is dropped.
struct OpenWait<'a> {
    records: &'a ProducerRecords,
    job: JobId,
}

impl Ground {
    /// Publishes a task unchanged, as a foreign producer may.
    pub async fn publish_task(&self, task: &Task<'_>) {
        self.publish_tasks(&OneOrMany::One(task.clone())).await;
    }

    /// Publishes a list of tasks unchanged in one message.
    pub async fn publish_tasks(&self, tasks: &OneOrMany<Task<'_>>) {
        let message = Message {
            exchange: TASKS,
            routing_key: task_key(&PoolName::default(), Priority::Normal),
            body: Encoding::MessagePack.encode_tasks(tasks).unwrap(),
            properties: Properties { content_type: Some("application/msgpack".to_owned()), ..Properties::default() },
        };
        self.broker().await.publish(message).await.unwrap();
    }

    /// Returns a new producer.
    pub async fn client(&self) -> Producer {
        self.client_with(Fleet::builder().connect_deadline(WAIT)).await
    }

    /// Returns a new producer with further options.
    pub async fn client_with(&self, builder: FleetBuilder) -> Producer {
        let fleet = builder.connect(&self.endpoints().amqp_url).await.unwrap();
        node::bind_queue(self.fleet(), witness::QUEUE, REPLIES, fleet.client().as_str()).await;
        Producer { fleet, records: self.records.clone() }
    }
}

impl Producer {
    pub async fn submit(&self, job: Job) -> Result<ConfirmedJob, SubmitError> {
        self.fleet.submit(job).await.map(|handle| self.confirmed(handle))
    }

    /// Submits a job repeatedly until it is confirmed, for scenarios in which the broker is unreachable for a while.
    pub async fn submit_until_confirmed(&self, job: &Job) -> ConfirmedJob {
        poll_some("the job is confirmed", async || {
            self.submit(job.clone()).await.inspect_err(|error| println!("submitted again: {error}")).ok()
        })
        .await
    }

    pub async fn submit_many(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Result<ConfirmedJob, SubmitError>> {
        let handles = self.fleet.submit_many(jobs).await;
        handles.into_iter().map(|handle| handle.map(|handle| self.confirmed(handle))).collect()
    }

    fn confirmed(&self, handle: JobHandle) -> ConfirmedJob {
        self.records.change(|record| record.confirmed.insert(handle.id()));
        ConfirmedJob { handle, records: self.records.clone() }
    }
}

impl Deref for Producer {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

impl ConfirmedJob {
    pub fn id(&self) -> JobId {
        self.handle.id()
    }

    /// Waits for the reply, as [`JobHandle::wait`] does.
    pub async fn wait(&mut self, deadline: Duration) -> Result<JobResult, JobError> {
        let wait = OpenWait::begin(&self.records, self.handle.id());
        let outcome = self.handle.wait(deadline).await;
        wait.record(&outcome);
        outcome
    }
}

impl ProducerRecords {
    pub(crate) fn all(&self) -> ProducerRecord {
        self.0.lock().unwrap().clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut ProducerRecord) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }
}

impl<'a> OpenWait<'a> {
    fn begin(records: &'a ProducerRecords, job: JobId) -> Self {
        records.change(|record| record.waits.entry(job).or_default().open += 1);
        Self { records, job }
    }

    fn record(&self, outcome: &Result<JobResult, JobError>) {
        let outcome = match outcome {
            Ok(result) => ReplyOutcome { state: result.state, attempt: result.attempt },
            Err(JobError::Failed(failed)) => ReplyOutcome { state: failed.state, attempt: failed.attempt },
            Err(
                JobError::DeadlinePassed { .. }
                | JobError::BadReply { .. }
                | JobError::Closed { .. }
                | JobError::Unavailable { .. },
            ) => return,
        };
        self.records.change(|record| record.waits.entry(self.job).or_default().outcomes.push(outcome));
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        self.records.change(|record| record.waits.entry(self.job).or_default().open -= 1);
    }
}
