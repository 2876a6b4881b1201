//! What a job requires, and the ids of jobs, pools and devices.

use gpufleet_schema::{BlobDigest, Priority};

use super::Allowed;

/// Identifies a job in one worker while the worker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An index in the worker's list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// An index in the worker's list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// The requirements of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub pool: PoolId,
    pub priority: Priority,
    /// Declared device memory.
    pub bytes: u64,
    /// The job must run alone in its pool's executor.
    pub alone: bool,
    /// The job may print. Its pool's executor runs one such job at a time, because its output does not identify the job.
    pub prints: bool,
    /// Devices that meet its requirements.
    pub allowed: Allowed,
    /// Its largest input from the blob store. It starts on a device that has the input, if one has room.
    pub input: Option<BlobDigest>,
    /// The job is the only one of its message, so the message can be requeued while the job waits.
    pub returnable: bool,
}
