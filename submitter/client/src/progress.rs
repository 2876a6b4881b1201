//! The progress of running jobs.

use std::sync::Arc;

use gpufleet_schema::{ClientName, JobId, PoolName, Progress, topology};
use gpufleet_transport::{Broker, ProgressBindings};
use tokio::sync::{
    OnceCell,
    broadcast::{self, error::RecvError},
};
use tracing::debug;

use crate::{Fleet, ProgressError};

/// Messages that wait for a reader. A slow reader loses the oldest.
const WAITING_MAX: usize = 1024;

/// Messages about the progress of jobs, until it is dropped. Workers publish one a second for each job that has run for a second.
///
/// One connection receives the messages of everything that it asked for. So a program that follows several pools reads one of its
/// `ProgressUpdates` only, and each of them has the messages of all pools; that of one job has only its own.
///
/// Messages may be lost: [`Progress::sequence`] and [`Printed::offset`](gpufleet_schema::Printed::offset) show it.
#[derive(Debug)]
pub struct ProgressUpdates {
    messages: broadcast::Receiver<Arc<Progress>>,
    bindings: ProgressBindings,
    key: String,
    job: Option<JobId>,
}

/// The progress that a connection receives. Nothing is received before it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Received(OnceCell<Receiver>);

#[derive(Debug)]
struct Receiver {
    messages: broadcast::Sender<Arc<Progress>>,
    bindings: ProgressBindings,
}

impl Fleet {
    /// Receives the progress of the jobs that this client submits to a pool. Ask before the jobs run, and once for all jobs.
    pub async fn progress(&self, pool: &PoolName) -> Result<ProgressUpdates, ProgressError> {
        self.receive(topology::progress_of_client(pool, self.client()), None).await
    }

    /// Receives the progress of one job in a pool, which any client may have submitted.
    pub async fn progress_of(&self, pool: &PoolName, job_id: JobId) -> Result<ProgressUpdates, ProgressError> {
        self.receive(topology::progress_of_job(pool, job_id), Some(job_id)).await
    }

    /// Receives the progress of all jobs in a pool, for which the broker's user needs an operator's permissions.
    pub async fn progress_of_pool(&self, pool: &PoolName) -> Result<ProgressUpdates, ProgressError> {
        self.receive(topology::progress_of_pool(pool), None).await
    }

    async fn receive(&self, key: String, job: Option<JobId>) -> Result<ProgressUpdates, ProgressError> {
        let connection = &self.connection;
        let start = async || Receiver::start(connection.broker(), connection.client());
        let receiver = connection.progress.0.get_or_init(start).await;
        let messages = receiver.messages.subscribe();
        receiver.bindings.add(key.clone()).await?;
        Ok(ProgressUpdates { messages, bindings: receiver.bindings.clone(), key, job })
    }
}

impl ProgressUpdates {
    /// Returns the next message. `None` if the connection was closed. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<Arc<Progress>> {
        loop {
            match self.messages.recv().await {
                Ok(progress) if self.job.is_none_or(|job| job == progress.job_id) => return Some(progress),
                Ok(_of_another_job) => {}
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for ProgressUpdates {
    fn drop(&mut self) {
        self.bindings.remove(std::mem::take(&mut self.key));
    }
}

impl Receiver {
    fn start(broker: &Broker, client: &ClientName) -> Self {
        let mut consumer = broker.progress_consumer(topology::progress_queue(client));
        let (messages, bindings) = (broadcast::Sender::new(WAITING_MAX), consumer.bindings());
        let readers = messages.downgrade();
        tokio::spawn(async move {
            while let Some(body) = consumer.next().await {
                let Some(readers) = readers.upgrade() else { return };
                match Progress::decode(&body) {
                    // An error means that there is no reader.
                    Ok(progress) => drop(readers.send(Arc::new(progress))),
                    Err(error) => debug!(%error, "a message of progress is unreadable"),
                }
            }
        });
        Self { messages, bindings }
    }
}
