//! Forwarding: decides where to send a job that no device of this worker can run.
//!
//! Every worker announces the classes of its devices ([`DeviceClass`]) in the log that all workers read, and consumes a queue of its pool for
//! each class. A worker that can't run a job looks up the classes that can, asks the broker which of their queues have consumers, and
//! publishes the job there: one hop. So the announcements describe the devices, and only the broker knows whether their workers are running.
//! If no such class has a consumer, the job waits on the retry ladder and then any worker of the pool decides again, until the job has
//! waited too often.
//!
//! Plain data: there is no clock, no tokio and no broker here.

mod decision;
mod history;
mod need;
mod roster;

#[cfg(test)]
mod simulation;

pub use self::{
    decision::{Candidate, Outlook, choose, wait},
    history::ForwardingHistory,
    need::Need,
    roster::{Roster, describe},
};

use gpufleet_schema::{ClassKey, topology::Rung};

/// Where a job is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The queue of a device class.
    Class(ClassKey),
    /// Its task queue, after a wait.
    Later(Rung),
}
