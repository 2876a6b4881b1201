//! The inputs of the dispatcher: everything that happens outside it.

use std::collections::BTreeMap;

use gpufleet_schema::{Failure, JobId, MessageId, Order, topology::Speaker};

use super::{JobNo, MessageKey, MessageNo, QueueLimit};
use crate::{
    disposition::{Ending, RetryHistory},
    scheduler::{Change, Demand},
};

/// An event for the dispatcher. `M` and `J` are as in [`super::Dispatcher`].
#[derive(Debug)]
pub(crate) enum Input<M, J> {
    /// The broker delivered a message.
    Delivered(Box<MessageInfo>, M),
    /// A message was decoded, and the preparation of its jobs has begun.
    Decoded(MessageNo, Decoded<M, J>),
    /// A message can't be decoded.
    Unreadable(MessageNo, Box<Failure>),
    /// The code that handles a message has panicked.
    Broken(MessageNo),
    /// A job can run on a device that meets the demand. Its outputs and printed text take `reply_bytes` of a reply.
    Prepared {
        job: JobNo,
        demand: Demand,
        reply_bytes: u64,
        held: J,
    },
    /// A started job has left its executor; its outputs are still being stored. `used_us` is the device time to charge to its pool in
    /// microseconds, if known.
    Stopped {
        job: JobNo,
        used_us: Option<u64>,
    },
    /// A session has used its device for this long since the last such input.
    Used {
        job: JobNo,
        used_us: u64,
    },
    /// A job did not start after all, because the train that it rode in was disbanded.
    Returned {
        job: JobNo,
        held: J,
    },
    /// An attempt has ended.
    Ended(JobNo, Box<AttemptEnd>, J),
    /// The code that handles a job has panicked.
    JobBroken(JobNo),
    /// The replies and messages of the last portion are confirmed, or publishing them failed.
    Answered(MessageNo, Result<(), PublishFailure>),
    /// The events of a portion are confirmed, or publishing them failed.
    Recorded(MessageNo, Result<(), PublishFailure>),
    /// The publication for a message as a whole is confirmed, or it failed.
    Published(MessageNo, Result<(), PublishFailure>),
    /// The settlements of these messages were sent. For a settlement that did not reach the broker, there is the digest by which the
    /// redelivery will be recognised.
    Settled(Vec<(MessageNo, Option<blake3::Hash>)>),
    /// Answers whether other workers that consume the message's queue are idle.
    Looked {
        message: MessageNo,
        others_idle: bool,
    },
    /// The channel of the delivery is closed: the broker will deliver the message again.
    Lost(MessageNo),
    /// A queue is now consumed with a new prefetch.
    Subscribed {
        queue: usize,
        prefetch: u16,
    },
    /// Something happened to a device, its memory or an executor.
    Devices(Change),
    Order(Box<ReadOrder>),
    /// The control stream was interrupted. The worker has written this mark behind every order that it may have missed.
    OrdersInterrupted {
        mark: MessageId,
    },
    /// Whether all orders of clients have been read, which are in a stream of their own.
    ClientOrdersKnown(bool),
    /// The worker drains: no job starts any more.
    Drain,
}

impl<M, J> Input<M, J> {
    /// Returns the message in flight that the input is about.
    pub(crate) fn message(&self) -> Option<MessageNo> {
        match self {
            Self::Decoded(message, _)
            | Self::Unreadable(message, _)
            | Self::Broken(message)
            | Self::Answered(message, _)
            | Self::Recorded(message, _)
            | Self::Published(message, _)
            | Self::Looked { message, .. }
            | Self::Lost(message) => Some(*message),
            Self::Prepared { job, .. }
            | Self::Stopped { job, .. }
            | Self::Used { job, .. }
            | Self::Returned { job, .. }
            | Self::Ended(job, ..)
            | Self::JobBroken(job) => Some(job.message),
            Self::Delivered(..)
            | Self::Settled(_)
            | Self::Subscribed { .. }
            | Self::Devices(_)
            | Self::Order(_)
            | Self::OrdersInterrupted { .. }
            | Self::ClientOrdersKnown(_)
            | Self::Drain => None,
        }
    }
}

/// The part of a message that the dispatcher needs.
#[derive(Debug, Clone)]
pub(crate) struct MessageInfo {
    /// The index of the queue that it came from.
    pub(crate) queue: usize,
    pub(crate) key: MessageKey,
    /// Recognises the message if it is delivered again; only set for a message that was delivered before.
    pub(crate) digest: Option<blake3::Hash>,
    /// Whether a worker, perhaps this one, has received the message or an earlier copy of it before.
    pub(crate) redelivered: bool,
    pub(crate) attempt: u32,
    /// How often the broker has delivered this message before. At its limit, the broker dead-letters the message.
    pub(crate) redeliveries: u64,
    /// The number of earlier deliveries of this message and its copies.
    pub(crate) delivery_count: u64,
    pub(crate) past: RetryHistory,
    /// Why the message must not run here because of its provenance or its user.
    pub(crate) inadmissible: Option<String>,
    /// What is wrong with the message's properties.
    pub(crate) unreadable: Option<String>,
}

/// The contents of a decoded message.
#[derive(Debug)]
pub(crate) struct Decoded<M, J> {
    pub(crate) is_list: bool,
    pub(crate) body_bytes: usize,
    /// Replaces what was kept with the message.
    pub(crate) held: M,
    pub(crate) jobs: Vec<NewJob<J>>,
}

/// A job of a decoded message.
#[derive(Debug)]
pub(crate) struct NewJob<J> {
    pub(crate) held: J,
    pub(crate) subject: Subject,
    pub(crate) attempts_max: u32,
    pub(crate) limit: Option<QueueLimit>,
    pub(crate) preparation: Preparation,
}

/// How far the preparation of a job is when its message has been decoded.
#[derive(Debug)]
pub(crate) enum Preparation {
    Ready {
        demand: Demand,
        reply_bytes: u64,
    },
    /// The job needs a compiler, the blob store or another worker.
    Underway,
    /// The job can't run.
    Ended(Ending),
}

/// The properties of a job by which a cancellation selects it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) job: JobId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) submitted_ms: i64,
    /// The user that the broker validated at submission. Without one, no client can cancel the job.
    pub(crate) user: Option<String>,
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptEnd {
    pub(crate) ending: Ending,
    /// The bytes that it takes in a portion of its list's replies.
    pub(crate) bytes: usize,
    /// Whether it returns outputs or printed text, which take room until they are answered.
    pub(crate) returns: bool,
    /// The device time to charge in microseconds, as in [`Input::Stopped`].
    pub(crate) used_us: Option<u64>,
}

/// Why publishing failed.
#[derive(Debug, Clone)]
pub(crate) struct PublishFailure {
    pub(crate) reason: String,
}

/// A message of the control stream; `order` is empty if it is not a readable order.
#[derive(Debug)]
pub(crate) struct ReadOrder {
    pub(crate) offset: Option<i64>,
    pub(crate) order: Option<Order>,
    /// The sender, as validated by the broker.
    pub(crate) speaker: Option<Speaker>,
    pub(crate) user: Option<String>,
}
