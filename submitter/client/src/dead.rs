//! Dead-lettered messages: jobs that are not tried again. A queue keeps them, with the reason, for an operator.
//!
//! Reading takes the messages from the queue one after the other and requeues them at the end. Meanwhile, another
//! reader finds fewer of them.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use gpufleet_schema::{
    Encoding, JobId, MessageId, PoolName, Size, Submitted, Task,
    bounds::MESSAGE_BYTES_MAX,
    check::Invalid,
    event::JobInfo,
    topology::{
        self, DEAD_QUEUE, HEADER_ATTEMPT, HEADER_DELIVERIES, HEADER_FORWARDING_WAITS, HEADER_FORWARDS, HEADER_LOSSES,
        HEADER_ORIGIN, HEADER_REASON, HEADER_UNAVAILABLE, HEADER_USER,
    },
};
use gpufleet_transport::{
    Acker, Consumer, Delivery, Incoming, Message, Properties, PublishError, QueueError, SettleError, Settled,
};

use crate::{Fleet, submission::now_ms};

mod bodies;
mod letter;
mod renewal;
#[cfg(test)]
mod tests;

use bodies::Bodies;
pub use letter::DeadLetter;
pub use renewal::REPLAY_LABEL;

/// Maximum number of letters that are fetched at once. Without its body, a letter takes some kilobytes, here and in the broker. If the
/// queue has more letters, requeueing changes their order: the broker puts the fetched letters behind those that were delivered before.
pub const LETTERS_MAX: usize = 20_000;

/// Maximum total size of the bodies that are kept with the fetched letters, in bytes.
pub const BODIES_BYTES_MAX: usize = 256 << 20;

/// Prefetch: letters that the broker may send ahead, with bodies of up to 16 MiB each. To fetch more, the client subscribes again, which
/// costs some round trips.
const WINDOW: u16 = 16;

/// Time limit for the next letter. A letter that is in the queue arrives at once, except for 16 MiB over a slow link.
const NEXT_LETTER: Duration = Duration::from_secs(30);

/// Time limit for requeued letters to be in their queue again, and the interval between two checks, because the broker does not report it.
const REQUEUED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Headers about earlier attempts and deliveries, which a new job does not inherit.
const HISTORY_HEADERS: [&str; 9] = [
    HEADER_ATTEMPT,
    HEADER_LOSSES,
    HEADER_UNAVAILABLE,
    HEADER_DELIVERIES,
    HEADER_FORWARDS,
    HEADER_FORWARDING_WAITS,
    HEADER_REASON,
    HEADER_ORIGIN,
    HEADER_USER,
];

/// The dead-lettered messages, fetched one after the other, the oldest first.
///
/// [`DeadLetters::requeue`] returns the rest to the queue in their order. Dropping this returns them in any order.
#[derive(Debug)]
pub struct DeadLetters {
    fleet: Fleet,
    /// The fetched letters in their order; `None` after one was replayed or discarded.
    letters: Vec<Option<FetchedLetter>>,
    unseen: usize,
    has_other_consumers: bool,
    /// Letters that are not settled.
    fetched: usize,
    bodies: Bodies,
    /// Jobs that were submitted again.
    replayed: HashSet<JobId>,
    consumer: Consumer,
    /// The number of the current subscription.
    window: usize,
    /// Letters of the current subscription that are not settled.
    in_window: u16,
}

#[derive(Debug)]
struct FetchedLetter {
    letter: DeadLetter,
    body: Option<Vec<u8>>,
    properties: Properties,
    acker: Acker,
    window: usize,
}

/// The result of replaying a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// Submitted as new jobs with these ids.
    As(Vec<JobId>),
    /// Submitted with the same body, because the client can't read it. A newer worker may be able to.
    Unchanged,
    /// Not submitted, because the jobs were already submitted for another letter.
    Duplicate,
}

/// Why dead letters could not be fetched, replayed or discarded.
#[derive(Debug, thiserror::Error)]
pub enum DeadError {
    #[error("{0}")]
    Queue(#[from] QueueError),
    #[error("the other {missing} dead-lettered messages did not arrive within {} s", NEXT_LETTER.as_secs())]
    Silent { missing: usize },
    /// The subscription broke, and the broker requeued the fetched letters.
    #[error("the dead-lettered messages returned to their queue: {reason}")]
    Interrupted { reason: String },
    #[error("queue {DEAD_QUEUE} does not exist; workers and the recorder declare it")]
    NoDeadQueue,
    #[error("pool {pool} has no queue: no worker has ever served it, or its queue was deleted")]
    NoQueue { pool: PoolName },
    #[error("{0}")]
    Publish(#[from] PublishError),
    /// The broker did not confirm the new jobs, so they may or may not have been submitted. The letter is still there.
    #[error("the message is still in the dead-letter queue, and may have been submitted as {}", ids(.jobs))]
    Unknown { jobs: Vec<JobId>, source: PublishError },
    #[error("{0}")]
    Settle(#[from] SettleError),
    #[error("the connection broke; the message is still in the dead-letter queue")]
    Stale,
    /// The new jobs were submitted, but the letter could not be removed.
    #[error("the message was submitted as {}, but is still in the dead-letter queue", ids(.jobs))]
    StillThere { jobs: Vec<JobId> },
    #[error("the message was already replayed or discarded")]
    Gone,
    #[error("the message is not a task; it came from {}", named(.origin))]
    NoTask { origin: String },
    #[error("the message has only the first {} of a task of {}", Size(*.kept_bytes), Size(*.bytes))]
    Cut { bytes: u64, kept_bytes: u64 },
    #[error(
        "the body of the message was not kept: at most {} MiB of bodies are read at once; give fewer ids",
        BODIES_BYTES_MAX >> 20
    )]
    NotKept,
    #[error("the task of job {job_id} has no room for the label {REPLAY_LABEL}")]
    LabelsFull { job_id: JobId },
    /// The program of a session ran on the machine of the client, and only that can start it again.
    #[error("the message is the request of a session, whose program ran on the machine that requested it")]
    Session,
    /// A host program may have had effects, and its output and files may have been taken.
    #[error(
        "the message is a host program, which may have run already; to run it again, give its command to gpufleet run --on-worker"
    )]
    HostProgram,
    #[error("the task of job {job_id} is invalid")]
    Invalid { job_id: JobId, source: Invalid },
    #[error("the new task would be {}, but a message carries at most {} MiB", Size(*.bytes), MESSAGE_BYTES_MAX >> 20)]
    TooLarge { bytes: u64 },
}

impl Fleet {
    /// Returns the number of messages in the dead-letter queue; `None` if there is no such queue yet. Cancelling the future is harmless.
    pub async fn dead_depth(&self) -> Result<Option<u64>, DeadError> {
        let depth = self.connection.broker().queue_depth(DEAD_QUEUE).await?;
        Ok(depth.map(|depth| u64::from(depth.messages)))
    }

    /// Subscribes to the dead-letter queue. The result yields the letters that the queue has now, the oldest first.
    ///
    /// Cancelling the future is harmless.
    pub async fn dead(&self) -> Result<DeadLetters, DeadError> {
        let broker = self.connection.broker();
        let depth = broker.queue_depth(DEAD_QUEUE).await?.ok_or(DeadError::NoDeadQueue)?;
        Ok(DeadLetters {
            fleet: self.clone(),
            letters: Vec::new(),
            unseen: depth.messages as usize,
            has_other_consumers: depth.consumers > 0,
            fetched: 0,
            bodies: Bodies::at_most(BODIES_BYTES_MAX),
            replayed: HashSet::new(),
            consumer: broker.consume(DEAD_QUEUE.to_owned(), WINDOW),
            window: 0,
            in_window: 0,
        })
    }
}

impl DeadLetters {
    /// Sets how many bytes of bodies are kept of further letters. The default is [`BODIES_BYTES_MAX`].
    pub fn limit_body_bytes(&mut self, bytes_max: usize) {
        self.bodies.limit(bytes_max);
    }

    /// Fetches the next letter and returns its index. Returns `None` after the last letter that the queue had when [`Fleet::dead`] was
    /// called, or while [`LETTERS_MAX`] letters are fetched.
    ///
    /// If the future is cancelled, a letter may have been fetched whose index the caller does not know.
    pub async fn next(&mut self) -> Result<Option<usize>, DeadError> {
        if self.unseen == 0 || self.fetched == LETTERS_MAX {
            return Ok(None);
        }
        if self.in_window == WINDOW {
            self.consumer.set_prefetch(WINDOW).await;
            self.window += 1;
            self.in_window = 0;
        }
        let delivery = self.delivery().await?;
        self.unseen -= 1;
        self.keep(delivery);
        Ok(Some(self.letters.len() - 1))
    }

    /// Returns how many of the letters that the queue had when [`Fleet::dead`] was called have not been fetched.
    pub fn unseen(&self) -> usize {
        self.unseen
    }

    /// Returns whether the queue had another consumer when [`Fleet::dead`] was called, which may have fetched letters.
    pub fn has_other_consumers(&self) -> bool {
        self.has_other_consumers
    }

    /// Returns the fetched letters, without those that were replayed or discarded.
    pub fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter().flatten().map(|fetched| &fetched.letter)
    }

    /// Returns a fetched letter; `None` after it was replayed or discarded.
    pub fn letter(&self, index: usize) -> Option<&DeadLetter> {
        self.fetched(index).map(|fetched| &fetched.letter)
    }

    /// Returns the body of a letter and its content type; `None` if the body was not kept.
    pub fn body(&self, index: usize) -> Option<(&[u8], Option<&str>)> {
        let fetched = self.fetched(index)?;
        Some((fetched.body.as_deref()?, fetched.properties.content_type.as_deref()))
    }

    /// Drops the body of a letter, to make room for others. A letter without its body can be discarded but not
    /// replayed.
    pub fn forget_body(&mut self, index: usize) {
        if let Some(fetched) = self.letters.get_mut(index).and_then(Option::as_mut) {
            self.bodies.forget(fetched.body.take());
        }
    }

    /// Submits the letter's tasks again and removes the letter. The tasks become new jobs, because dead is a final outcome; the label
    /// [`REPLAY_LABEL`] has the old job's id. Jobs that were already submitted for another letter are left out. After an error for which
    /// [`DeadError::concerns_one_letter`] is true, the letter can still be discarded.
    ///
    /// If the future is cancelled, the tasks may have been submitted although the letter is still there.
    pub async fn replay(&mut self, index: usize) -> Result<Replayed, DeadError> {
        let (message, infos) = match self.renewal(index)? {
            Some(renewal) => renewal,
            None => {
                self.settle(index).await?;
                return Ok(Replayed::Duplicate);
            }
        };
        let old = self.letter(index).map(|letter| letter.jobs.clone()).unwrap_or_default();
        let jobs: Vec<JobId> = infos.iter().map(|info| info.job_id).collect();
        self.publish(message, &infos).await?;
        self.replayed.extend(old);
        let at_ms = now_ms();
        self.fleet.connection.record_now(infos.into_iter().map(|job| Submitted { job, at_ms })).await;
        match self.settle(index).await {
            Ok(()) if jobs.is_empty() => Ok(Replayed::Unchanged),
            Ok(()) => Ok(Replayed::As(jobs)),
            Err(_) => Err(DeadError::StillThere { jobs }),
        }
    }

    /// Removes a letter from the queue. If the future is cancelled, the letter may still be there.
    pub async fn discard(&mut self, index: usize) -> Result<(), DeadError> {
        self.settle(index).await
    }

    /// Returns the letters to the queue in their order, and waits until the queue has them. If the connection breaks or the
    /// future is cancelled, the broker requeues them in any order.
    pub async fn requeue(mut self) {
        self.consumer.stop().await;
        let mut ackers: VecDeque<Acker> = self.letters.into_iter().flatten().map(|fetched| fetched.acker).collect();
        // Deliveries that were not fetched yet come after the fetched letters.
        while let Some(incoming) = self.consumer.next().await {
            if let Incoming::Delivery(delivery) = incoming {
                ackers.push_back(delivery.acker);
            }
        }
        let requeued = ackers.len() as u64;
        while let Some(acker) = ackers.pop_front() {
            if !matches!(acker.requeue().await, Ok(Settled::Sent)) {
                return;
            }
        }
        if !self.has_other_consumers {
            wait_for_letters(&self.fleet, requeued).await;
        }
    }

    fn fetched(&self, index: usize) -> Option<&FetchedLetter> {
        self.letters.get(index)?.as_ref()
    }

    async fn delivery(&mut self) -> Result<Delivery, DeadError> {
        loop {
            match tokio::time::timeout(NEXT_LETTER, self.consumer.next()).await {
                Ok(Some(Incoming::Delivery(delivery))) => return Ok(delivery),
                // No letter was fetched yet, and the consumer subscribes again by itself.
                Ok(Some(Incoming::Interrupted { .. })) if self.letters.is_empty() => {}
                Ok(Some(Incoming::Interrupted { reason })) => return Err(DeadError::Interrupted { reason }),
                Ok(None) => return Err(DeadError::Interrupted { reason: "the connection was closed".to_owned() }),
                Err(_) => return Err(DeadError::Silent { missing: self.unseen }),
            }
        }
    }

    fn keep(&mut self, delivery: Delivery) {
        let letter = DeadLetter::of(&delivery);
        let (body, properties, acker) = delivery.into_parts();
        let body = self.bodies.keep(body);
        self.fetched += 1;
        self.in_window += 1;
        self.letters.push(Some(FetchedLetter { letter, body, properties, acker, window: self.window }));
    }

    /// The message with the letter's tasks as new jobs; `None` if all of them were already submitted for another
    /// letter.
    fn renewal(&self, index: usize) -> Result<Option<(Message, Vec<JobInfo>)>, DeadError> {
        let fetched = self.fetched(index).ok_or(DeadError::Gone)?;
        let letter = &fetched.letter;
        if letter.is_of_session() {
            return Err(DeadError::Session);
        }
        if letter.is_of_host_program() {
            return Err(DeadError::HostProgram);
        }
        let (pool, priority) =
            letter.destination().ok_or_else(|| DeadError::NoTask { origin: letter.origin.clone() })?;
        if letter.is_cut() {
            return Err(DeadError::Cut { bytes: letter.bytes, kept_bytes: letter.kept_bytes });
        }
        let body = fetched.body.as_deref().ok_or(DeadError::NotKept)?;
        let user_id = self.fleet.connection.user_id();
        let mut properties = Properties { user_id, ..fetched.properties.clone() };
        properties.headers.retain(|name, _| !name.starts_with("x-") && !HISTORY_HEADERS.contains(&name.as_str()));
        // The new jobs belong to the user of the old ones, or else to the user who replays them.
        properties.headers.extend(letter.user.clone().map(|user| (HEADER_USER.to_owned(), user.into())));
        let encoding = properties.content_type.as_deref().and_then(Encoding::of_content_type);
        let renewed = encoding.and_then(|encoding| Some((encoding, renewal::renewed(encoding, body, &self.replayed)?)));
        let (body, infos) = match renewed {
            Some((encoding, tasks)) => {
                let tasks = tasks?;
                if tasks.is_empty() {
                    return Ok(None);
                }
                let info = |task: &Task<'_>| {
                    JobInfo::of(task, pool.clone(), priority, task.reply.as_ref().map(ToString::to_string))
                };
                let infos: Vec<JobInfo> = tasks.iter().map(info).collect();
                properties.message_id = Some(match infos.as_slice() {
                    [only] => only.job_id.to_string(),
                    _ => MessageId::new().to_string(),
                });
                (renewal::encode(encoding, &tasks)?, infos)
            }
            None => (body.to_vec(), Vec::new()),
        };
        let routing_key = topology::task_key(&pool, priority);
        Ok(Some((Message { exchange: topology::TASKS_OPERATOR, routing_key, body, properties }, infos)))
    }

    async fn publish(&self, message: Message, infos: &[JobInfo]) -> Result<(), DeadError> {
        let pool = topology::parse_task_key(&message.routing_key).map(|(pool, _)| pool);
        let published = self.fleet.connection.broker().publish(message).await;
        published.map_err(|source| match source {
            PublishError::Unroutable { .. } => {
                DeadError::NoQueue { pool: pool.expect("the key was made from a pool's name") }
            }
            PublishError::Unknown { .. } => {
                DeadError::Unknown { jobs: infos.iter().map(|info| info.job_id).collect(), source }
            }
            source => DeadError::Publish(source),
        })
    }

    /// Acknowledges a letter, which removes it from the queue.
    async fn settle(&mut self, index: usize) -> Result<(), DeadError> {
        let fetched = self.letters.get_mut(index).and_then(Option::take).ok_or(DeadError::Gone)?;
        self.fetched -= 1;
        self.bodies.forget(fetched.body);
        if fetched.window == self.window {
            self.in_window -= 1;
        }
        match fetched.acker.ack().await? {
            Settled::Sent => Ok(()),
            Settled::Stale => Err(DeadError::Stale),
        }
    }
}

/// Waits until the queue has this many letters, because the broker requeues with a delay, and a reader would find none until then. Gives up
/// after a while, because another client may have taken letters.
async fn wait_for_letters(fleet: &Fleet, count: u64) {
    let wait = async {
        while let Ok(Some(depth)) = fleet.dead_depth().await
            && depth < count
        {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    _ = tokio::time::timeout(REQUEUED_WITHIN, wait).await;
}

impl DeadError {
    /// Returns whether the error concerns one letter only, so that other letters may still succeed.
    pub fn concerns_one_letter(&self) -> bool {
        match self {
            Self::NoTask { .. }
            | Self::Session
            | Self::HostProgram
            | Self::Cut { .. }
            | Self::NotKept
            | Self::LabelsFull { .. }
            | Self::Invalid { .. }
            | Self::TooLarge { .. }
            | Self::NoQueue { .. } => true,
            Self::Publish(problem) => !matches!(problem, PublishError::Timeout { .. } | PublishError::Closed),
            Self::Queue(_)
            | Self::NoDeadQueue
            | Self::Silent { .. }
            | Self::Interrupted { .. }
            | Self::Unknown { .. }
            | Self::Settle(_)
            | Self::Stale
            | Self::StillThere { .. }
            | Self::Gone => false,
        }
    }
}

fn ids(jobs: &[JobId]) -> String {
    match jobs {
        [] => "it was".to_owned(),
        jobs => jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn named(origin: &str) -> &str {
    if origin.is_empty() { "no queue that it names" } else { origin }
}
