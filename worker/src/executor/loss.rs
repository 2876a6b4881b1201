//! Errors of executors: how they fail to start, and how they are lost.

use std::{io, time::Duration};

use crate::ipc::message::Refusal;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Why a job has no outcome although it is not proven to have caused that.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// The job was cancelled; if it was running, its executor was killed.
    #[error("failed to run the job: it was cancelled")]
    Cancelled,
    #[error("failed to run the job: {reason}")]
    Lost {
        cause: LostCause,
        reason: String,
        /// Whether the job had been sent to the executor.
        was_running: bool,
    },
}

/// Why an executor and its jobs were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostCause {
    /// The child died for an unknown reason.
    Died,
    /// One of the jobs in flight, perhaps this one, broke the context. This job should run again alone.
    Suspect,
    /// Another job caused the loss. This one is not to blame and should not lose an attempt.
    Neighbour,
    /// The device failed: no job is to blame, and the next executor on it will probably fail too.
    Device,
    /// The supervisor stopped or killed the executor.
    Stopped,
}

/// How an executor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub cause: LostCause,
    pub reason: String,
}

/// Why an executor did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("failed to start an executor: {hint}")]
    NoDriver { hint: String },
    #[error("failed to start an executor: device {device} does not exist; the driver reports {devices}")]
    NoDevice { device: u32, devices: u32 },
    /// The driver ignores `CUDA_VISIBLE_DEVICES`, or the MIG slice was recreated.
    #[error("failed to start an executor: the driver opened device {found} instead of {wanted}")]
    WrongDevice { wanted: String, found: String },
    #[error("failed to start an executor: {call} failed with {name} ({code})")]
    DriverError { call: String, code: u32, name: String },
    #[error("failed to drop the executor's privileges: {problem}")]
    Privileges { problem: String },
    #[error("failed to start an executor: the process died: {status}{}", tail_of(.stderr_tail))]
    Died { status: String, stderr_tail: String },
    #[error("failed to start an executor: it was not ready within {} s", .deadline.as_secs())]
    Timeout { deadline: Duration },
    #[error("failed to start an executor process")]
    Spawn(#[source] io::Error),
}

impl StartError {
    /// Returns whether the device had too little memory for another context.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::DriverError { code: OUT_OF_MEMORY, .. })
    }
}

fn tail_of(tail: &str) -> String {
    if tail.trim().is_empty() { String::new() } else { format!("\n{}", tail.trim_end()) }
}

impl From<Refusal> for StartError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoDriver { hint } => Self::NoDriver { hint },
            Refusal::NoDevice { ordinal, devices } => Self::NoDevice { device: ordinal, devices },
            Refusal::Privileges { problem } => Self::Privileges { problem },
            Refusal::Driver { call, code, name } => Self::DriverError { call, code, name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_drivers_word_for_it_is_a_lack_of_memory() {
        let refused = |code| StartError::from(Refusal::Driver { call: String::new(), code, name: String::new() });
        assert!(refused(2).is_out_of_memory());
        assert!(!refused(999).is_out_of_memory());
    }
}
