//! Results of jobs that were submitted earlier, by this program or by another one.

use std::time::Instant;

use gpufleet_schema::{ClientName, JobId, topology};

use crate::{Fleet, JobHandle, PoolError};

/// Why a client can't wait for a job that was submitted earlier.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("another handle already waits for job {job_id}")]
    AlreadyAwaited { job_id: JobId },
    /// No reply will come, because this program has the result.
    #[error(
        "the result of job {job_id} was taken already; a client with a ledger (FleetBuilder::ledger) can read it again while it is kept"
    )]
    Taken { job_id: JobId },
    /// No reply will come, because replies go to the client name with which a job was submitted.
    #[error(
        "failed to wait for job {job_id}: give this client the name with which the job was submitted (FleetBuilder::client), or a ledger"
    )]
    NoName { job_id: JobId },
}

impl Fleet {
    /// Returns a handle for a job that was submitted earlier under this client's name, for example by a program that has died.
    ///
    /// The result comes from the job's reply. If the reply was taken before, it comes from the ledger and the job's kept
    /// outputs, if the client has a ledger ([`FleetBuilder::ledger`](crate::FleetBuilder::ledger)). With a ledger, this
    /// also works for jobs that were submitted under other names. [`JobHandle::wait`] has a deadline, because a job that
    /// neither source knows has no result.
    ///
    /// If the future is cancelled, nothing is lost.
    pub async fn attach(&self, job_id: JobId) -> Result<JobHandle, AttachError> {
        let connection = &self.connection;
        let has_ledger = connection.has_ledger();
        if connection.replies_kept().is_none() && !has_ledger {
            return Err(AttachError::NoName { job_id });
        }
        // A client with a name has subscribed to its replies since it connected.
        let inbox = connection.inbox();
        if inbox.is_taken(job_id) && !has_ledger {
            return Err(AttachError::Taken { job_id });
        }
        let awaited = inbox.expect(job_id, None).ok_or(AttachError::AlreadyAwaited { job_id })?;
        inbox.await_again(job_id).await;
        Ok(JobHandle::attached(awaited, connection.clone(), Instant::now()))
    }

    /// Returns the jobs whose replies have arrived and were not taken, for a client with a name of its own. They are jobs of earlier
    /// programs that this client has not attached to, and jobs whose handles have not returned their results.
    ///
    /// Replies arrive soon after connecting, at most 65,535 of them. The others stay in the broker until some are taken.
    pub fn unread(&self) -> Vec<JobId> {
        self.connection.inbox().unread()
    }

    /// Returns the number of replies that wait for the client with this name while no connection uses the name. None if the client has no
    /// reply queue: it never existed, has expired or was deleted.
    ///
    /// So one connection can watch the jobs of many short-lived clients. Cancelling the future is harmless.
    pub async fn replies_waiting(&self, client: &ClientName) -> Result<Option<u32>, PoolError> {
        let depth = self.connection.broker().queue_depth(&topology::reply_queue(client)).await?;
        Ok(depth.map(|depth| depth.messages))
    }

    /// Deletes the reply queue of the client with this name, and the replies in it, because no program will take them.
    /// Otherwise the queue of a client with a name of its own stays until it expires. A client that deletes its own
    /// queue receives no more replies.
    ///
    /// If cancelled, the queue may or may not have been deleted.
    pub async fn delete_replies(&self, client: &ClientName) -> Result<(), PoolError> {
        let connection = &self.connection;
        if client == self.client() {
            connection.delete_replies().await?;
        } else {
            connection.broker().delete_queue(&topology::reply_queue(client)).await?;
        }
        Ok(())
    }
}
