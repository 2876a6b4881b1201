//! The inputs and outputs of the scheduler.

use gpufleet_schema::{BlobDigest, Priority};

use super::{Demand, DeviceId, ExecutorId, PoolId, Ticket};

/// An input of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Arrived(Ticket, Demand),
    /// A started job ended after `used_us` of device time, or a waiting job was cancelled.
    Left {
        ticket: Ticket,
        used_us: u64,
    },
    /// An open session has used a device for this long since the last such change.
    Used {
        ticket: Ticket,
        used_us: u64,
    },
    /// A device was added, or its slots or memory changed.
    Device {
        device: DeviceId,
        slots: u32,
        bytes: u64,
    },
    /// An executor now takes jobs.
    ExecutorUp(ExecutorId),
    /// An executor reports how much device memory it caches in addition to the memory that its jobs declared.
    Cached {
        executor: ExecutorId,
        bytes: u64,
    },
    /// An input has become resident in an executor, or no longer is.
    Input {
        executor: ExecutorId,
        input: BlobDigest,
        is_resident: bool,
    },
    /// The device memory that is available for jobs, including the running ones, has changed. Other processes may use
    /// the rest.
    Available {
        device: DeviceId,
        bytes: u64,
    },
    /// An executor has ended. Its jobs will still leave one by one.
    ExecutorDown(ExecutorId),
    /// The device has gone out of service for good.
    DeviceGone(DeviceId),
    /// The worker holds too many jobs of a queue: requeue those that can be requeued.
    Shed(PoolId, Priority),
    /// A fixed interval has passed. A pool that has had no work for long enough lends its memory.
    Tick,
    /// The worker drains: no more jobs may start.
    Draining,
}

/// An output of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start the job in this executor. Of a session only the device counts, because it has processes of its own.
    Start(Ticket, ExecutorId),
    /// Run the job in the train that begins with the job `first`.
    Join { ticket: Ticket, first: Ticket, executor: ExecutorId },
    /// Ask the executor to release cached memory, because a job of another executor waits for it.
    ReleaseCache(ExecutorId),
    /// No device of this worker has enough memory for the job.
    Refuse(Ticket, DemandTooLarge),
    /// The devices that the job may use are out of service, but others are not: forward it.
    Forward(Ticket),
    /// The job will not start here: requeue it.
    Requeue(Ticket),
}

/// A demand that exceeds the memory of the largest device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemandTooLarge {
    pub bytes: u64,
    pub device_bytes_max: u64,
}

/// The open slots for a queue, and its jobs that do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Slots that the pool could use now.
    pub open: u32,
    /// Waiting jobs of the priority that do not fit although there are open slots.
    pub stuck: u32,
}
