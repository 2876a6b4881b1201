//! The dead: jobs that nobody will try again, kept in a queue with the reason for a person to judge.
//!
//! Looking takes the letters out one after the other and gives them back in the end; in between another look finds fewer.

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

/// Letters in hand at most, their bodies forgotten: some kilobytes each, here and in the broker. Where there are more, giving back
/// changes their order: the broker puts them behind those that somebody had in hand before.
pub const LETTERS_MAX: usize = 20_000;

/// Bodies of letters in hand at most.
pub const BODIES_BYTES_MAX: usize = 256 << 20;

/// Letters that may be on their way with their bodies, of 16 MiB each at most. More than these are in hand by subscribing again,
/// which costs some round trips.
const WINDOW: u16 = 16;

/// What the queue said it has comes at once, but for 16 MiB over a thin line.
const NEXT_LETTER: Duration = Duration::from_secs(30);

/// Headers that tell of a job's way so far.
const FORGOTTEN: [&str; 9] = [
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

/// Dead letters, taken in hand one after the other, the oldest first. Dropping it gives back what is left, in any order;
/// [`DeadBox::give_back`] does so in theirs.
#[derive(Debug)]
pub struct DeadBox {
    fleet: Fleet,
    /// By their order. What was settled has gone.
    letters: Vec<Option<InHand>>,
    unseen: usize,
    has_company: bool,
    in_hand: usize,
    bodies: Bodies,
    /// Jobs that were submitted again.
    replayed: HashSet<JobId>,
    consumer: Consumer,
    /// Counts subscriptions.
    window: usize,
    /// Letters in hand that came with the present subscription.
    in_window: u16,
}

#[derive(Debug)]
struct InHand {
    letter: DeadLetter,
    body: Option<Vec<u8>>,
    properties: Properties,
    acker: Acker,
    window: usize,
}

/// What was submitted for a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// These new jobs.
    As(Vec<JobId>),
    /// A body that can't be read went back as it is, for a worker that can.
    AsItWas,
    /// Nothing: the jobs lay there twice, and were submitted for another letter.
    Before,
}

/// Why something could not be done about the dead.
#[derive(Debug, thiserror::Error)]
pub enum DeadError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error("the other {missing} dead-lettered messages did not arrive within {} s", NEXT_LETTER.as_secs())]
    Silent { missing: usize },
    /// What was in hand went back.
    #[error("the dead-lettered messages returned to their queue: {reason}")]
    Interrupted { reason: String },
    #[error("queue {DEAD_QUEUE} does not exist; workers and the recorder declare it")]
    NoDeadQueue,
    #[error("pool {pool} has no queue: no worker has ever served it, or its queue was deleted")]
    NoQueue { pool: PoolName },
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The letter is still there, and what was to be its replacement may be submitted.
    #[error("the message is still in the dead-letter queue, and may have been submitted as {}", ids(.jobs))]
    Unknown { jobs: Vec<JobId>, source: PublishError },
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error("the connection broke; the message is still in the dead-letter queue")]
    Stale,
    /// It was submitted, and could not be taken out.
    #[error("the message was submitted as {}, but is still in the dead-letter queue", ids(.jobs))]
    StillThere { jobs: Vec<JobId> },
    #[error("the message has been replayed or dropped already")]
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
    #[error("the task of job {job_id} is invalid")]
    Invalid { job_id: JobId, source: Invalid },
    #[error("the new task would be {}, but a message carries at most {} MiB", Size(*.bytes), MESSAGE_BYTES_MAX >> 20)]
    TooLarge { bytes: u64 },
}

impl Fleet {
    /// Looks at the dead letters, the oldest first. Cancelling is harmless.
    pub async fn dead(&self) -> Result<DeadBox, DeadError> {
        let broker = self.connection.broker();
        let depth = broker.queue_depth(DEAD_QUEUE).await?.ok_or(DeadError::NoDeadQueue)?;
        Ok(DeadBox {
            fleet: self.clone(),
            letters: Vec::new(),
            unseen: depth.messages as usize,
            has_company: depth.consumers > 0,
            in_hand: 0,
            bodies: Bodies::at_most(BODIES_BYTES_MAX),
            replayed: HashSet::new(),
            consumer: broker.consume(DEAD_QUEUE.to_owned(), WINDOW),
            window: 0,
            in_window: 0,
        })
    }
}

impl DeadBox {
    /// Keeps at most so many bytes of bodies, not [`BODIES_BYTES_MAX`], of the letters that come.
    pub fn keep_at_most(&mut self, bytes_max: usize) {
        self.bodies.bound(bytes_max);
    }

    /// Takes the next letter in hand and tells its index. `None` when all have been in hand that were there at first, or
    /// [`LETTERS_MAX`] are. Cancelled, a letter may be in hand that nobody can name.
    pub async fn next(&mut self) -> Result<Option<usize>, DeadError> {
        if self.unseen == 0 || self.in_hand == LETTERS_MAX {
            return Ok(None);
        }
        if self.in_window == WINDOW {
            self.consumer.set_prefetch(WINDOW).await;
            self.window += 1;
            self.in_window = 0;
        }
        let delivery = self.delivery().await?;
        self.unseen -= 1;
        self.take(delivery);
        Ok(Some(self.letters.len() - 1))
    }

    /// Letters that were there at first and have not been in hand.
    pub fn unseen(&self) -> usize {
        self.unseen
    }

    /// Whether somebody else had letters in hand, or might have, when this look began.
    pub fn has_company(&self) -> bool {
        self.has_company
    }

    /// The letters in hand.
    pub fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter().flatten().map(|held| &held.letter)
    }

    /// A letter in hand.
    pub fn letter(&self, index: usize) -> Option<&DeadLetter> {
        self.held(index).map(|held| &held.letter)
    }

    /// The body of a letter, and its content type.
    pub fn body(&self, index: usize) -> Option<(&[u8], Option<&str>)> {
        let held = self.held(index)?;
        Some((held.body.as_deref()?, held.properties.content_type.as_deref()))
    }

    /// Makes room for other bodies. A letter without its body can be thrown away and not replayed.
    pub fn forget_body(&mut self, index: usize) {
        if let Some(held) = self.letters.get_mut(index).and_then(Option::as_mut) {
            self.bodies.forget(held.body.take());
        }
    }

    /// Submits the letter's tasks again, as new jobs that carry the old one's id in the label [`REPLAY_LABEL`]: the outcome of a
    /// job never changes, and dead is one. The letter is gone then. Jobs that were submitted for another letter are left out.
    /// A letter that is refused stays in hand.
    ///
    /// Cancelled, the letter may be both submitted and still there.
    pub async fn replay(&mut self, index: usize) -> Result<Replayed, DeadError> {
        let (message, infos) = match self.renewal(index)? {
            Some(renewal) => renewal,
            None => {
                self.settle(index).await?;
                return Ok(Replayed::Before);
            }
        };
        let old = self.letter(index).map(|letter| letter.jobs.clone()).unwrap_or_default();
        let jobs: Vec<JobId> = infos.iter().map(|info| info.job_id).collect();
        self.publish(message, &infos).await?;
        self.replayed.extend(old);
        let at_ms = now_ms();
        self.fleet.connection.record_now(infos.into_iter().map(|job| Submitted { job, at_ms })).await;
        match self.settle(index).await {
            Ok(()) if jobs.is_empty() => Ok(Replayed::AsItWas),
            Ok(()) => Ok(Replayed::As(jobs)),
            Err(_) => Err(DeadError::StillThere { jobs }),
        }
    }

    /// Throws a letter away. Cancelled, it may still be there.
    pub async fn discard(&mut self, index: usize) -> Result<(), DeadError> {
        self.settle(index).await
    }

    /// Gives the letters back, in their order. What breaks here gives them back as well. Cancelled, they go back in any order.
    pub async fn give_back(mut self) {
        self.consumer.stop().await;
        let mut ackers: VecDeque<Acker> = self.letters.into_iter().flatten().map(|held| held.acker).collect();
        // What came in the meantime was behind them.
        while let Some(incoming) = self.consumer.next().await {
            if let Incoming::Delivery(delivery) = incoming {
                ackers.push_back(delivery.acker);
            }
        }
        while let Some(acker) = ackers.pop_front() {
            if !matches!(acker.requeue().await, Ok(Settled::Sent)) {
                return;
            }
        }
    }

    fn held(&self, index: usize) -> Option<&InHand> {
        self.letters.get(index)?.as_ref()
    }

    async fn delivery(&mut self) -> Result<Delivery, DeadError> {
        loop {
            match tokio::time::timeout(NEXT_LETTER, self.consumer.next()).await {
                Ok(Some(Incoming::Delivery(delivery))) => return Ok(delivery),
                // Nothing was in hand yet, and the subscription mends itself.
                Ok(Some(Incoming::Interrupted { .. })) if self.letters.is_empty() => {}
                Ok(Some(Incoming::Interrupted { reason })) => return Err(DeadError::Interrupted { reason }),
                Ok(None) => return Err(DeadError::Interrupted { reason: "the connection was closed".to_owned() }),
                Err(_) => return Err(DeadError::Silent { missing: self.unseen }),
            }
        }
    }

    fn take(&mut self, delivery: Delivery) {
        let letter = DeadLetter::of(&delivery);
        let (body, properties, acker) = delivery.into_parts();
        let body = self.bodies.keep(body);
        self.in_hand += 1;
        self.in_window += 1;
        self.letters.push(Some(InHand { letter, body, properties, acker, window: self.window }));
    }

    /// The letter's message as new jobs; `None` where all were submitted before.
    fn renewal(&self, index: usize) -> Result<Option<(Message, Vec<JobInfo>)>, DeadError> {
        let held = self.held(index).ok_or(DeadError::Gone)?;
        let letter = &held.letter;
        let (pool, priority) =
            letter.destination().ok_or_else(|| DeadError::NoTask { origin: letter.origin.clone() })?;
        if letter.is_cut() {
            return Err(DeadError::Cut { bytes: letter.bytes, kept_bytes: letter.kept_bytes });
        }
        let body = held.body.as_deref().ok_or(DeadError::NotKept)?;
        // Whoever replays a job is its user.
        let user_id = self.fleet.connection.user_id();
        let mut properties = Properties { user_id, ..held.properties.clone() };
        properties.headers.retain(|name, _| !name.starts_with("x-") && !FORGOTTEN.contains(&name.as_str()));
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
        Ok(Some((Message { exchange: topology::TASKS, routing_key, body, properties, mandatory: true }, infos)))
    }

    async fn publish(&self, message: Message, infos: &[JobInfo]) -> Result<(), DeadError> {
        let pool = topology::parse_task_key(&message.routing_key).map(|(pool, _)| pool);
        let published = self.fleet.connection.broker().publish(message).await;
        published.map_err(|source| match source {
            PublishError::Unroutable { .. } => {
                DeadError::NoQueue { pool: pool.expect("the key was made of a pool's name") }
            }
            PublishError::Unknown { .. } => {
                DeadError::Unknown { jobs: infos.iter().map(|info| info.job_id).collect(), source }
            }
            source => DeadError::Publish(source),
        })
    }

    /// Has the broker forget a letter.
    async fn settle(&mut self, index: usize) -> Result<(), DeadError> {
        let held = self.letters.get_mut(index).and_then(Option::take).ok_or(DeadError::Gone)?;
        self.in_hand -= 1;
        self.bodies.forget(held.body);
        if held.window == self.window {
            self.in_window -= 1;
        }
        match held.acker.ack().await? {
            Settled::Sent => Ok(()),
            Settled::Stale => Err(DeadError::Stale),
        }
    }
}

impl DeadError {
    /// Whether it is this letter's own fault, and the next one may fare better.
    pub fn is_of_the_letter(&self) -> bool {
        match self {
            Self::NoTask { .. }
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
