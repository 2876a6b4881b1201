//! What the dispatcher learns.

use std::collections::BTreeMap;

use gpufleet_schema::{Failure, JobId, MessageId, Order, topology::Speaker};

use super::{JobNo, MessageKey, MessageNo, QueueLimit};
use crate::{
    disposition::{Ending, RetryHistory},
    scheduler::{Change, Demand},
};

#[derive(Debug)]
pub(crate) enum Input {
    /// The broker delivered a message.
    Delivered(MessageNo, Box<Letter>),
    /// A message was decoded, and the preparation of its jobs has begun.
    Decoded(MessageNo, Decoded),
    /// A message can't be decoded.
    Unreadable(MessageNo, Box<Failure>),
    /// The code that handles a message has panicked.
    Broken(MessageNo),
    /// A job can run on a device that meets the demand. Its outputs and printed text take this much of a reply.
    Prepared {
        job: JobNo,
        demand: Demand,
        reply_bytes: u64,
    },
    /// A started job has left its executor; what it returns is still being stored. The time is what its pool is charged for, if that is known.
    Stopped {
        job: JobNo,
        used_us: Option<u64>,
    },
    Ended(JobNo, Box<AttemptEnd>),
    /// The code that handles a job has panicked.
    JobBroken(JobNo),
    /// The replies and messages of the last portion are confirmed, or will not be.
    Answered(MessageNo, Result<(), PublishFailure>),
    /// The events of a portion are confirmed, or will not be.
    Recorded(MessageNo, Result<(), PublishFailure>),
    /// What was published for a message as a whole is confirmed, or will not be.
    Published(MessageNo, Result<(), PublishFailure>),
    /// The settlement was sent. If it did not reach the broker, the body's digest says which message comes again.
    Settled {
        message: MessageNo,
        unreached: Option<blake3::Hash>,
    },
    /// Whether other workers that consume the message's queue are idle.
    Looked {
        message: MessageNo,
        others_idle: bool,
    },
    /// The channel of the delivery is closed: the broker delivers the message again.
    Lost(MessageNo),
    /// A queue is consumed with a new prefetch.
    Subscribed {
        queue: usize,
        prefetch: u16,
    },
    /// Something happened to a device, its memory or an executor.
    Devices(Change),
    Order(Box<ReadOrder>),
    /// The log of orders was interrupted; this mark is written behind everything that was ordered meanwhile.
    OrdersInterrupted {
        mark: MessageId,
    },
    /// Whether all orders of clients have been read, which have a stream of their own.
    ClientOrdersKnown(bool),
    /// The worker leaves: nothing starts any more.
    Drain,
}

impl Input {
    /// The message that it is about.
    pub(crate) fn message(&self) -> Option<MessageNo> {
        match self {
            Self::Delivered(message, _)
            | Self::Decoded(message, _)
            | Self::Unreadable(message, _)
            | Self::Broken(message)
            | Self::Answered(message, _)
            | Self::Recorded(message, _)
            | Self::Published(message, _)
            | Self::Settled { message, .. }
            | Self::Looked { message, .. }
            | Self::Lost(message) => Some(*message),
            Self::Prepared { job, .. } | Self::Stopped { job, .. } | Self::Ended(job, _) | Self::JobBroken(job) => {
                Some(job.message)
            }
            Self::Subscribed { .. }
            | Self::Devices(_)
            | Self::Order(_)
            | Self::OrdersInterrupted { .. }
            | Self::ClientOrdersKnown(_)
            | Self::Drain => None,
        }
    }
}

/// A message without its body.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// The index of its queue.
    pub(crate) queue: usize,
    pub(crate) key: MessageKey,
    /// Identifies the message if it comes again. Only of one that was delivered before.
    pub(crate) digest: Option<blake3::Hash>,
    /// A worker, perhaps this one, has received it or an earlier copy of it before.
    pub(crate) redelivered: bool,
    pub(crate) attempt: u32,
    /// How often the broker has delivered this message before. At its limit, the broker dead-letters the message.
    pub(crate) redeliveries: u64,
    /// The number of earlier deliveries of this message and its copies.
    pub(crate) delivery_count: u64,
    /// It was delivered before, and the broker does not count how often.
    pub(crate) uncounted: bool,
    pub(crate) past: RetryHistory,
    /// Why it must not run here, by its provenance or its user.
    pub(crate) inadmissible: Option<String>,
    /// What is wrong with its properties.
    pub(crate) unreadable: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) is_list: bool,
    pub(crate) body_bytes: usize,
    pub(crate) jobs: Vec<NewJob>,
}

#[derive(Debug)]
pub(crate) struct NewJob {
    pub(crate) subject: Subject,
    pub(crate) attempts_max: u32,
    pub(crate) limit: Option<QueueLimit>,
    pub(crate) preparation: Preparation,
}

/// How far a job is when its message has been decoded.
#[derive(Debug)]
pub(crate) enum Preparation {
    Ready {
        demand: Demand,
        reply_bytes: u64,
    },
    /// It needs a compiler, the blob store or another worker.
    Underway,
    /// It can't run.
    Ended(Ending),
}

/// The properties of a job by which a cancellation selects it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) job: JobId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) submitted_ms: i64,
    /// The user that the broker validated at submission. No client can cancel a job without one.
    pub(crate) user: Option<String>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct AttemptEnd {
    pub(crate) ending: Ending,
    /// What it takes of a portion of its list's replies.
    pub(crate) bytes: usize,
    /// It returns outputs or printed text, which take room until they are answered.
    pub(crate) returns: bool,
    /// As in [`Input::Stopped`].
    pub(crate) used_us: Option<u64>,
}

/// Why the broker does not have what was published.
#[derive(Debug, Clone)]
pub(crate) struct PublishFailure {
    pub(crate) reason: String,
    /// The broker rejected it, for a reason that an operator can remove.
    pub(crate) is_refusal: bool,
}

/// An order from the log, or what could not be read as one.
#[derive(Debug)]
pub(crate) struct ReadOrder {
    pub(crate) offset: Option<i64>,
    pub(crate) order: Option<Order>,
    /// The sender, as validated by the broker.
    pub(crate) speaker: Option<Speaker>,
    pub(crate) user: Option<String>,
}
