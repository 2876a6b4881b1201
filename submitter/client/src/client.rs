//! The connection to a fleet: submits jobs, stores arrays and queries pools.

use std::{io::Write, sync::Arc};

use gpufleet_blobs::BlobStore;
#[cfg(feature = "ledger")]
use gpufleet_schema::JobId;
use gpufleet_schema::{AffinitySlot, ClientName, Dtype, PoolName, Priority, topology};
use gpufleet_transport::{QueueDepth, State};

use crate::{
    Array, CheckedJob, ConnectError, Counts, FleetBuilder, Follower, Job, JobError, JobHandle, JobResult, StoreError,
    StoredArray, SubmitError, UnreadOutput,
    connection::Connection,
    error::PoolError,
    follower::Followed,
    output,
    submission::{self, Submission, SubmitRequest},
};
#[cfg(feature = "ledger")]
use crate::{KeptResult, ResultError, recorded};

/// A connection to a fleet. Clones share the connection, and the handles of open jobs keep it alive.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(crate) connection: Arc<Connection>,
}

/// The load of a pool's queues at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolDepth {
    /// Messages that the broker has not delivered to a worker yet. A message may carry several jobs.
    pub messages: u64,
    /// Worker subscriptions to the queue of the pool that has the fewest. If 0, jobs wait until a worker starts. A worker may count more
    /// than once, because the broker counts an ended subscription until its last message is settled.
    pub consumers: u32,
}

impl Fleet {
    /// Connects with the default options and a new client name. [`Fleet::builder`] has all options.
    ///
    /// `url` is an AMQP URL such as `amqp://user:password@host:5672/vhost`. Cancelling the future gives up.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Returns the options of a connection, set to their defaults.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// Returns the client name. Workers send replies to the queue of this name.
    pub fn client(&self) -> &ClientName {
        self.connection.client()
    }

    /// Checks a job, sends it, and returns when the broker has it on disk.
    ///
    /// Short jobs that are submitted at the same time share messages. While a message is unconfirmed, later jobs for the same pool and
    /// priority gather in the next message, which is sent when the confirm arrives. The run times in earlier replies decide how many jobs
    /// share a message.
    ///
    /// If the future is cancelled, the job may or may not run. Submitting the same [`Job`] again is harmless, also after
    /// [`SubmitError::Unknown`].
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        Submission::prepare(&self.connection, SubmitRequest::Draft(Box::new(job))).await?.send(&self.connection).await
    }

    /// Submits a job and reports its outcome to a follower, once and with this token. Returns when large inputs are stored, without waiting
    /// for the broker.
    ///
    /// If the client has a name of its own, a reply that was reported to the follower counts as taken.
    pub async fn submit_followed(&self, job: CheckedJob, token: u64, follower: Arc<dyn Follower>) {
        let followed = Followed::new(token, follower);
        match Submission::prepare(&self.connection, SubmitRequest::Followed(Box::new(job), followed.clone())).await {
            Ok(submission) => submission.send_followed(&self.connection),
            Err(error) => followed.refused(error),
        }
    }

    /// Submits many jobs. Small jobs of the same pool and priority share messages, and messages are pipelined.
    ///
    /// The results are in the order of the jobs, and one refused job does not affect the others. The iterator advances
    /// as messages are confirmed, so a lazy iterator keeps few jobs in memory. Jobs may start in any order.
    ///
    /// If the future is cancelled, any of the jobs may or may not run.
    pub async fn submit_many(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Result<JobHandle, SubmitError>> {
        submission::send_many(&self.connection, jobs).await
    }

    /// Submits many jobs and reports each outcome to a follower, with the job's token. Returns when the broker has confirmed or refused all
    /// of them.
    pub async fn submit_many_followed(&self, jobs: Vec<(CheckedJob, u64)>, follower: &Arc<dyn Follower>) {
        let followed = |token| Followed::new(token, follower.clone());
        let jobs = jobs.into_iter().map(|(job, token)| (job, followed(token))).collect();
        submission::send_many_followed(&self.connection, jobs).await;
    }

    /// Returns the kept outputs of a job that has succeeded, no matter which client submitted it. The client needs a ledger
    /// ([`FleetBuilder::ledger`]), and a blob store for outputs of more than 64 KiB.
    ///
    /// A new job reaches the ledger a moment after it was submitted, so this waits up to two seconds for it. It does not read the outputs.
    /// Cancelling the future is harmless.
    #[cfg(feature = "ledger")]
    pub async fn result(&self, job_id: JobId) -> Result<KeptResult, ResultError> {
        let ledger = self.connection.ledger().ok_or(ResultError::NoLedger)?;
        recorded::kept(job_id, ledger, self.connection.blobs()).await
    }

    /// Reads the outputs of a result that are in the blob store.
    pub async fn read_outputs(&self, result: JobResult<UnreadOutput>) -> Result<JobResult, JobError> {
        output::read_all(result, self.connection.blobs()).await
    }

    /// Stores an array in the blob store once, so that any number of jobs can use it through [`Job::input_stored`].
    ///
    /// The array stays there until `gpufleet blobs prune` deletes it. Storing it again resets its age.
    ///
    /// If the future is cancelled, the array may or may not be stored. That is harmless.
    pub async fn store(&self, array: Array) -> Result<StoredArray, StoreError> {
        StoredArray::put(array, self.blobs()?).await
    }

    /// Stores an array in the blob store without copying it. `elements` are its little-endian bytes in C order. If they change while they
    /// are stored, that is an error.
    pub async fn store_shared<B>(&self, dtype: Dtype, shape: Vec<u64>, elements: B) -> Result<StoredArray, StoreError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        StoredArray::put_shared(dtype, shape, elements, self.blobs()?).await
    }

    /// Reads an array from the blob store, such as an output of [`JobHandle::wait_unread`].
    pub async fn read_stored(&self, array: &StoredArray) -> Result<Array, StoreError> {
        Ok(array.clone().read(self.blobs()?.clone()).await?)
    }

    /// Writes the elements of a stored array, as little-endian bytes in C order, to a writer such as a file, and returns the writer. This
    /// takes little memory, however large the array is. The bytes are checked at the end: after an error, discard them.
    ///
    /// If the future is cancelled, the copy ends at its next piece.
    pub async fn copy_stored<W: Write + Send + 'static>(&self, array: &StoredArray, into: W) -> Result<W, StoreError> {
        Ok(self.blobs()?.read_to(array.digest(), array.bytes(), into).await?)
    }

    fn blobs(&self) -> Result<&BlobStore, StoreError> {
        self.connection.blobs().ok_or(StoreError::NoStore)
    }

    /// Returns the number of messages that wait in a pool and of subscriptions to its queues. Both are 0 if no worker has served the pool
    /// yet. Jobs that were forwarded to a device class are not counted, nor are jobs in affinity slots unless the client uses them
    /// ([`FleetBuilder::affinity`]). Cancelling the future is harmless.
    pub async fn pool_depth(&self, pool: &PoolName) -> Result<PoolDepth, PoolError> {
        let mut depths = Vec::new();
        let slots = AffinitySlot::all().filter(|_| self.connection.uses_affinity());
        for priority in Priority::ALL {
            let slots = slots.clone().map(|slot| topology::slot_queue(pool, slot, priority));
            for queue in [topology::task_queue(pool, priority)].into_iter().chain(slots) {
                depths.extend(self.connection.broker().queue_depth(&queue).await?);
            }
        }
        let messages = depths.iter().map(|depth| u64::from(depth.messages)).sum();
        Ok(PoolDepth { messages, consumers: QueueDepth::consumers_of_pool(&depths) })
    }

    /// Returns the number of sessions that wait in a pool for a worker, and of workers that take its sessions. Both are 0 if no worker has
    /// taken sessions of the pool yet. Cancelling the future is harmless.
    pub async fn session_depth(&self, pool: &PoolName) -> Result<PoolDepth, PoolError> {
        let depth = self.connection.broker().queue_depth(&topology::session_queue(pool)).await?;
        Ok(depth.map_or_else(PoolDepth::default, |QueueDepth { messages, consumers }| PoolDepth {
            messages: messages.into(),
            consumers,
        }))
    }

    /// Returns the number of host programs that wait in a pool for a worker, and of workers that run its host programs. Both are 0 if no
    /// worker has run host programs of the pool yet. Cancelling the future is harmless.
    pub async fn program_depth(&self, pool: &PoolName) -> Result<PoolDepth, PoolError> {
        let depth = self.connection.broker().queue_depth(&topology::program_queue(pool)).await?;
        Ok(depth.map_or_else(PoolDepth::default, |QueueDepth { messages, consumers }| PoolDepth {
            messages: messages.into(),
            consumers,
        }))
    }

    /// Resolves once the client can't publish, with the reason: the broker is unreachable, or blocks publishers because
    /// of an alarm. Meanwhile, calls of [`Fleet::submit`] wait until [`FleetBuilder::confirm_deadline`]. Cancelling the
    /// future is harmless.
    pub async fn held_up(&self) -> String {
        let broker = self.connection.broker();
        let mut state = broker.state();
        loop {
            // An error would mean that the sender is gone, but the connection owns it.
            drop(state.wait_for(|state| *state != State::Connected).await);
            if let Some(trouble) = broker.trouble() {
                return trouble;
            }
        }
    }

    /// Returns the number of replies received since the client connected, by what became of them.
    pub fn counts(&self) -> Counts {
        self.connection.inbox().counts()
    }

    /// Publishes the jobs that still gather, reports submissions to the ledger and closes the connection. Open waits end with
    /// [`JobError::Closed`](crate::JobError::Closed); their jobs still run. Each step has its own deadline.
    pub async fn close(&self) {
        submission::send_all_gathered(&self.connection).await;
        self.connection.close().await;
    }
}
