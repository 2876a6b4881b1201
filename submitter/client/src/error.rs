//! Errors of connecting, describing jobs, submitting and querying pools.

use std::time::Duration;

use gpufleet_blobs::{BlobError, InvalidBlobLocation};
use gpufleet_kernels::ResolveError;
use gpufleet_schema::{ClientName, Invalid, JobId, PoolName, Priority, TooLarge, id::InvalidId};
use gpufleet_transport::{DeclareError, InvalidBrokerUrl, PublishError, QueueError};

use crate::destination::Destination;

/// Why a client could not connect to the fleet.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Url(#[from] InvalidBrokerUrl),
    #[error(transparent)]
    Client(#[from] InvalidId),
    /// The argument of [`FleetBuilder::blobs`](crate::FleetBuilder::blobs) names no blob store.
    #[error(transparent)]
    BlobLocation(#[from] InvalidBlobLocation),
    /// The store that [`FleetBuilder::blobs`](crate::FleetBuilder::blobs) names can't be used.
    #[error("{0}")]
    Blobs(#[from] BlobError),
    #[error("{0}")]
    Broker(#[from] gpufleet_transport::ConnectError),
    #[cfg(feature = "ledger")]
    #[error(transparent)]
    Ledger(#[from] gpufleet_ledger::InvalidDatabaseUrl),
    /// Another connection has the name that [`FleetBuilder::client`](crate::FleetBuilder::client) gives.
    #[error(
        "failed to use the client name {client}: another connection uses it; close that one, or choose another name"
    )]
    NameInUse { client: ClientName },
    /// Workers would not reply to the name that [`FleetBuilder::client`](crate::FleetBuilder::client) gives.
    #[error("client name {client} does not belong to user {user}; use {user}-WORD, without a dash in WORD")]
    ForeignName { client: ClientName, user: String },
    /// The reply queue of a client with a name of its own could not be declared.
    #[error("{0}")]
    Declare(#[from] DeclareError),
    #[error("{0}")]
    Queue(#[from] QueueError),
}

/// Why a description is not a valid job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidJob {
    #[error(transparent)]
    Task(#[from] Invalid),
    /// The arguments do not match the signature of the catalog kernel.
    #[error(transparent)]
    Catalog(#[from] ResolveError),
}

/// Why a job was not submitted. Only after [`SubmitError::Unknown`] may the broker have the job.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// The job was not sent, because an output of another job can't be its input.
    #[cfg(feature = "ledger")]
    #[error(transparent)]
    Input(Box<crate::InputError>),
    #[cfg(feature = "ledger")]
    #[error("failed to look up outputs of other jobs: {0}")]
    Ledger(Box<crate::ResultError>),
    #[error("{problem}: {}", TooLarge::ADVICE)]
    TooLarge { job_id: JobId, problem: TooLarge },
    /// The job was not sent. Some of its arrays may be in the store.
    #[error("failed to store buffer {buffer:?} of job {job_id}: {source}")]
    Blob { job_id: JobId, buffer: String, source: BlobError },
    /// The file of an input could not be read. The job was not sent.
    #[error("failed to read the file of buffer {buffer:?} of job {job_id}")]
    File { job_id: JobId, buffer: String, source: std::io::Error },
    #[error("failed to encode job {job_id}: {problem}")]
    Encode { job_id: JobId, problem: String },
    #[error("another handle already waits for job {job_id}")]
    AlreadySubmitted { job_id: JobId },
    #[error("{0}")]
    Declare(#[from] DeclareError),
    /// Workers declare the queues of the pools that they serve. If a worker serves this pool, its queue was just
    /// deleted, and the worker declares it again.
    #[error("pool {pool} has no queue for priority {priority}: no worker has ever served it, or its queue was deleted")]
    NoQueue { pool: PoolName, priority: Priority },
    /// The client prefers workers that have a job's largest input ([`FleetBuilder::affinity`](crate::FleetBuilder::affinity)), but
    /// no worker of the pool has ever offered that.
    #[error("pool {pool} has no affinity slots: none of its workers was started with --pool {pool}:affinity")]
    NoSlots { pool: PoolName },
    /// No worker of the pool has ever offered sessions ([`Fleet::open_session`](crate::Fleet::open_session)).
    #[error("pool {pool} takes no sessions: none of its workers has sessions=1 or more")]
    NoSessions { pool: PoolName },
    /// No worker of the pool has ever offered to run host programs ([`Job::host`](crate::Job::host)).
    #[error("pool {pool} runs no host programs: none of its workers has programs=1 or more")]
    NoPrograms { pool: PoolName },
    /// The broker refused the job. The queue has room again when workers have taken jobs from it: see
    /// [`SubmitError::retry_after`].
    #[error(
        "the queue of pool {pool} for priority {priority} is full or unavailable; submit again after {}",
        humantime::format_duration(RETRY_AFTER)
    )]
    Refused { pool: PoolName, priority: Priority },
    /// The broker refused the session, as it refuses a job ([`SubmitError::Refused`]).
    #[error(
        "the queue of sessions of pool {pool} is full or unavailable; try again after {}",
        humantime::format_duration(RETRY_AFTER)
    )]
    SessionRefused { pool: PoolName },
    /// The broker refused the host program, as it refuses a job ([`SubmitError::Refused`]).
    #[error(
        "the queue of host programs of pool {pool} is full or unavailable; try again after {}",
        humantime::format_duration(RETRY_AFTER)
    )]
    ProgramRefused { pool: PoolName },
    /// The confirm did not arrive in time. The broker may have the job; submitting it again with the same id is
    /// harmless.
    #[error("the broker did not confirm job {job_id}; it may or may not have arrived")]
    Unknown { job_id: JobId, source: PublishError },
    #[error("{0}")]
    Publish(#[from] PublishError),
}

// Boxed, because they are larger than every other error.
#[cfg(feature = "ledger")]
impl From<crate::InputError> for SubmitError {
    fn from(error: crate::InputError) -> Self {
        Self::Input(Box::new(error))
    }
}

#[cfg(feature = "ledger")]
impl From<crate::ResultError> for SubmitError {
    fn from(error: crate::ResultError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

/// Why the broker did not answer about a queue.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("{0}")]
    Queue(#[from] QueueError),
}

/// Time after which a refused producer may submit again: long enough that a thousand refused producers do not keep the broker busy with
/// refusals.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl SubmitError {
    /// Returns how long to wait before submitting the same job again; `None` if that would not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { .. } | Self::SessionRefused { .. } | Self::ProgramRefused { .. } => Some(RETRY_AFTER),
            Self::Unknown { .. } => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Returns whether [`Fleet::close`](crate::Fleet::close) was called before the job was sent.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Publish(PublishError::Closed) | Self::Declare(DeclareError::Closed { .. }))
    }

    pub(crate) fn of_publish(error: PublishError, job_id: JobId, destination: &Destination) -> Self {
        match error {
            PublishError::Unroutable { .. } => Self::unroutable(destination.clone()),
            PublishError::Nacked { .. } => Self::nacked(destination.clone()),
            source @ PublishError::Unknown { .. } => Self::Unknown { job_id, source },
            PublishError::TooLarge { bytes, .. } => Self::TooLarge { job_id, problem: TooLarge::message(bytes as u64) },
            other => Self::Publish(other),
        }
    }

    fn unroutable(destination: Destination) -> Self {
        match destination {
            Destination::Tasks { pool, slot: Some(_), .. } => Self::NoSlots { pool },
            Destination::Tasks { pool, priority, slot: None } => Self::NoQueue { pool, priority },
            Destination::Sessions { pool } => Self::NoSessions { pool },
            Destination::Programs { pool } => Self::NoPrograms { pool },
        }
    }

    fn nacked(destination: Destination) -> Self {
        match destination {
            Destination::Tasks { pool, priority, .. } => Self::Refused { pool, priority },
            Destination::Sessions { pool } => Self::SessionRefused { pool },
            Destination::Programs { pool } => Self::ProgramRefused { pool },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_no_queue_takes_names_the_setting_of_the_pool() {
        let unroutable =
            PublishError::Unroutable { exchange: "e".to_owned(), routing_key: "team-a.session".to_owned() };
        let destination = Destination::Sessions { pool: "team-a".parse().unwrap() };
        let error = SubmitError::of_publish(unroutable, JobId::new(), &destination);
        assert_eq!(error.to_string(), "pool team-a takes no sessions: none of its workers has sessions=1 or more");
        let nacked = PublishError::Nacked { routing_key: "team-a.session".to_owned() };
        assert!(SubmitError::of_publish(nacked, JobId::new(), &destination).retry_after().is_some());
    }

    #[test]
    fn a_host_program_that_no_queue_takes_names_the_setting_of_the_pool() {
        let unroutable =
            PublishError::Unroutable { exchange: "e".to_owned(), routing_key: "team-a.program".to_owned() };
        let destination = Destination::Programs { pool: "team-a".parse().unwrap() };
        let error = SubmitError::of_publish(unroutable, JobId::new(), &destination);
        assert_eq!(error.to_string(), "pool team-a runs no host programs: none of its workers has programs=1 or more");
        let nacked = PublishError::Nacked { routing_key: "team-a.program".to_owned() };
        assert!(SubmitError::of_publish(nacked, JobId::new(), &destination).retry_after().is_some());
    }

    /// Programs in other languages show these texts unchanged.
    #[test]
    fn errors_of_the_transport_become_sentences() {
        let url: gpufleet_transport::BrokerUrl = "amqp://u:canary@127.0.0.1:1/v".parse().unwrap();
        let reason = "Connection refused".to_owned();
        let unreachable = gpufleet_transport::ConnectError::Unreachable { url, reason: reason.clone() };
        let declare = || DeclareError::Refused { what: "queue x".to_owned(), reason: reason.clone() };
        let query = || QueueError::Refused { queue: "x".to_owned(), reason: reason.clone() };
        let publish = PublishError::Refused { reason: reason.clone() };
        for (text, begin) in [
            (ConnectError::from(unreachable).to_string(), "failed to reach RabbitMQ at amqp://u:***@127.0.0.1:1/v: "),
            (ConnectError::from(declare()).to_string(), "failed to declare queue x: "),
            (SubmitError::from(declare()).to_string(), "failed to declare queue x: "),
            (SubmitError::from(publish).to_string(), "failed to publish: "),
            (PoolError::from(query()).to_string(), "failed to query queue x: "),
            (ConnectError::from(query()).to_string(), "failed to query queue x: "),
        ] {
            assert!(text.starts_with(begin) && !text.contains("canary"), "{text}");
        }
    }
}
