//! Forwarding: decides where to send a job that no device of this worker can run.
//!
//! Every worker announces the classes of its devices ([`DeviceClass`]) in the control stream, which all workers read, and consumes a queue
//! of its pool for each class. A worker that can't run a job looks up the classes that can, asks the broker which of their queues have
//! consumers, and publishes the job to one of them: one hop. So the announcements describe the devices, but only the broker knows whether
//! their workers are running. If no such class has a consumer, the job waits on the retry ladder, and then any worker of the pool decides
//! again. A job that has waited too often fails.
//!
//! This module is plain data, without a clock, tokio or a broker.

mod decision;
mod history;
mod need;
mod roster;

#[cfg(test)]
mod simulation;

pub use self::{
    decision::{Candidate, Outlook, choose, wait, wait_of_session},
    history::ForwardingHistory,
    need::Need,
    roster::{Roster, describe},
};

use gpufleet_schema::{ClassKey, topology::Rung};

/// The destination of a forwarded job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The queue of a device class.
    Class(ClassKey),
    /// The job's task queue, after a delay.
    Later(Rung),
}
