//! What the dispatcher wants done: the outputs of a step.

use gpufleet_schema::{AttemptState, Failure};

use super::{JobNo, MessageNo};
use crate::{
    disposition::Disposition,
    scheduler::{DemandTooLarge, DeviceId, PoolId},
};

#[derive(Debug)]
pub(crate) enum Effect {
    /// Decode the message and prepare its jobs. The answer is [`super::Input::Decoded`], or that it is unreadable.
    Decode(MessageNo),
    /// Run the job. Its pool's executor may cache `cache_bytes_max` bytes meanwhile.
    Start {
        job: JobNo,
        device: DeviceId,
        cache_bytes_max: u64,
    },
    /// Stop preparing or running the job. A job that is still being prepared needs no answer.
    Cancel(JobNo),
    /// No device of this worker can run the job: find another worker, or the reason to fail.
    Forward(JobNo, Unfit),
    /// Count an attempt of the message that has ended like this.
    Count(MessageNo, AttemptState),
    /// Publish and record what became of these jobs. The answers are [`super::Input::Answered`] and [`super::Input::Recorded`], in any order.
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
    /// Consume the queue with this prefetch.
    Prefetch(usize, u16),
    /// Ask the pool's executor to release cached memory.
    ReleaseCache(DeviceId, PoolId),
    /// Whether all orders have been read.
    OrdersKnown(bool),
    /// An operator ordered this worker to drain.
    DrainOrdered,
}

/// What is to be done with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Acknowledged: all of its jobs have their outcome, so a redelivery of the message needs no work.
    Answered,
    /// Acknowledged: some of its jobs have left it, as messages that may have its very name and body.
    SentOn,
    Requeue,
}

/// Why no device of this worker can run a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The devices that meet its requirements are out of service.
    NoDevice,
    TooLarge(DemandTooLarge),
}
