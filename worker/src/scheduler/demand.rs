//! The demand of a job, and the ids of jobs, pools and devices.

use gpufleet_schema::{BlobDigest, Priority};

use super::Allowed;

/// Identifies a job within one worker while the worker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An index in the worker's list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// An index in the worker's list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// One of the executors that a pool has on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutorId {
    pub device: DeviceId,
    pub pool: PoolId,
    /// The number of the executor among those of its pool on the device, from 0.
    pub index: u32,
}

impl ExecutorId {
    /// Returns the executor that every pool has.
    pub const fn first(device: DeviceId, pool: PoolId) -> Self {
        Self { device, pool, index: 0 }
    }
}

/// The requirements of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub pool: PoolId,
    pub priority: Priority,
    /// The declared device memory.
    pub bytes: u64,
    /// Whether the job must run alone in its executor.
    pub alone: bool,
    /// Whether the job may print. An executor runs one such job at a time, because printed text does not identify its
    /// job.
    pub prints: bool,
    /// The devices that meet the job's requirements.
    pub allowed: Allowed,
    /// The job's largest input from the blob store. Devices that already have the input are preferred.
    pub input: Option<BlobDigest>,
    /// Whether the job is the only one of its message, so that the message can be requeued while the job waits.
    pub returnable: bool,
    /// The expected run time in microseconds of a job that may ride in a train.
    pub brief_us: Option<u32>,
    /// Whether the job is expected to run so long that it should share an executor with few other jobs.
    pub is_long: bool,
    /// Set if this is a session or a host program, which takes memory but no slot.
    pub session: Option<SessionTerms>,
}

/// The terms of a session or a host program, beside its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTerms {
    /// The part of a device's memory that all sessions of the pool may have together, in thousandths.
    pub memory_permille: u32,
    /// Whether it reserves a device until it fits, because it has waited at several workers.
    pub insists: bool,
    /// Whether it takes a whole device, whatever its memory, and runs beside nothing else.
    pub is_whole: bool,
}

impl Demand {
    /// Whether it takes a whole device.
    pub(super) fn is_whole(&self) -> bool {
        self.session.is_some_and(|terms| terms.is_whole)
    }
}
