//! The outputs of a dispatcher step: what the shell has to do.

use gpufleet_schema::{AttemptState, Failure};

use super::{JobNo, MessageNo};
use crate::{
    disposition::Disposition,
    scheduler::{DemandTooLarge, ExecutorId},
};

/// An action for the shell.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Decode the message and prepare its jobs. The answer is [`super::Input::Decoded`] or [`super::Input::Unreadable`].
    Decode(MessageNo),
    /// Continue the preparation of the job. The answer is [`super::Input::Prepared`] or [`super::Input::Ended`].
    Prepare(JobNo),
    /// Run the jobs in the executor, one after the other; most slots have one. Meanwhile the executor may cache up to `cache_bytes_max`
    /// bytes. Of a session only the device counts.
    Start {
        jobs: Vec<JobNo>,
        executor: ExecutorId,
        cache_bytes_max: u64,
    },
    /// Stop preparing or running the job. A job that is still being prepared needs no answer.
    Cancel(JobNo),
    /// No device of this worker can run the job: look for another worker, or for the reason to fail the job.
    Forward(JobNo, Unfit),
    /// Count an attempt of the message that has ended in this state.
    Count(MessageNo, AttemptState),
    /// Publish and record the dispositions of these jobs. The answers are [`super::Input::Answered`] and [`super::Input::Recorded`], in any
    /// order.
    Answer {
        message: MessageNo,
        jobs: Vec<(usize, Disposition)>,
        /// The highest attempt number of the message and its redeliveries.
        last_attempt: u32,
    },
    /// Reply to the producer of a list without jobs.
    AnswerNothing(MessageNo),
    /// Publish a copy of the message with this count of earlier deliveries.
    Copy {
        message: MessageNo,
        delivery_count: u64,
    },
    /// Dead-letter, answer and record a message that can't be run.
    Refuse(MessageNo, Box<Failure>),
    Settle(MessageNo, Settlement),
    /// Ask the broker whether other workers that consume the queue are idle. The answer is [`super::Input::Looked`].
    LookForIdle {
        message: MessageNo,
        queue: usize,
    },
    /// Subscribe to the queue again, with this prefetch.
    Prefetch(usize, u16),
    /// Ask the executor to release cached memory.
    ReleaseCache(ExecutorId),
    /// Report whether all orders have been read.
    OrdersKnown(bool),
    /// Report that an operator ordered this worker to drain.
    DrainOrdered,
}

/// How to settle a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Acknowledge it: all of its jobs have their outcome, so a redelivery of the message needs no work.
    Answered,
    /// Acknowledge it: some of its jobs were published again, as messages that may have the same id and body.
    SentOn,
    Requeue,
}

/// Why no device of this worker can run a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The devices that meet its requirements are out of service.
    NoDevice,
    TooLarge(DemandTooLarge),
    /// The job is a session that has waited here long enough for memory.
    NoRoom,
}
