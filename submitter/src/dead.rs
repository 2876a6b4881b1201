//! The dead: jobs that nobody will try again, kept in a queue with the reason for a person to judge.
//!
//! Looking takes the letters out and gives them back when the [`DeadBox`] is dropped; in between another look finds fewer.

use std::time::Duration;

use gpufleet_schema::{
    Batch, Encoding, JobId, MessageId, Submitted, Task,
    event::JobInfo,
    topology::{
        self, DEAD_QUEUE, HEADER_ATTEMPT, HEADER_DELIVERIES, HEADER_HOPS, HEADER_LOSSES, HEADER_MET, HEADER_MET_LATELY,
        HEADER_MET_OF, HEADER_ORIGIN, HEADER_REASON, HEADER_USER,
    },
};
use gpufleet_transport::{
    Broker, Consumer, Delivery, Incoming, Message, Properties, PublishError, QueueError, SettleError,
};

use crate::{Fleet, submission::now_ms};

/// Letters that one look brings at most: the broker sends no more unsettled messages than this.
pub const LETTERS_MAX: u16 = 1000;

/// What the queue said it has should come at once.
const NEXT_LETTER: Duration = Duration::from_secs(5);

/// RabbitMQ's own account, for what it buried by itself.
const BROKERS_REASON: &str = "x-first-death-reason";
const BROKERS_ORIGIN: &str = "x-first-death-queue";

/// Headers that tell of a job's way so far.
const FORGOTTEN: [&str; 10] = [
    HEADER_ATTEMPT,
    HEADER_LOSSES,
    HEADER_DELIVERIES,
    HEADER_HOPS,
    HEADER_MET,
    HEADER_MET_LATELY,
    HEADER_MET_OF,
    HEADER_REASON,
    HEADER_ORIGIN,
    HEADER_USER,
];

/// Label of a job that was made from a dead one.
pub const REPLAY_LABEL: &str = "replay-of";

/// A dead letter, as far as it can be read.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// The jobs in it; none where the body can't be read.
    pub jobs: Vec<JobId>,
    pub message_id: Option<String>,
    pub reason: String,
    /// The routing key or the queue that it came from.
    pub origin: String,
    /// AMQP's `type`.
    pub kind: Option<String>,
    pub bytes: usize,
    /// When the message was made, in seconds since 1970, if it says so.
    pub timestamp: Option<u64>,
}

/// Dead letters in hand.
#[derive(Debug)]
pub struct DeadBox {
    letters: Vec<(DeadLetter, Option<Delivery>)>,
    broker: Broker,
    /// Its end gives back what is left.
    _consumer: Option<Consumer>,
    fleet: Fleet,
}

/// Why something could not be done about the dead.
#[derive(Debug, thiserror::Error)]
pub enum DeadError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error("the dead letters did not come within {} s", NEXT_LETTER.as_secs())]
    Silent,
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// It was settled already, or the connection broke and it went back.
    #[error("the letter is no longer in hand")]
    Gone,
    #[error("it came from {origin:?}, which is no task queue")]
    NoTask { origin: String },
}

impl Fleet {
    /// Takes up to [`LETTERS_MAX`] dead letters in hand, the oldest first. Cancelling gives them back.
    pub async fn dead(&self) -> Result<DeadBox, DeadError> {
        let broker = self.connection.broker().clone();
        let depth = broker.queue_depth(DEAD_QUEUE).await?.map_or(0, |depth| depth.messages);
        let wanted = depth.min(LETTERS_MAX.into()) as usize;
        let mut letters = Vec::new();
        if wanted == 0 {
            return Ok(DeadBox { letters, broker, _consumer: None, fleet: self.clone() });
        }
        let mut consumer = broker.consume(DEAD_QUEUE.to_owned(), LETTERS_MAX);
        while letters.len() < wanted {
            match tokio::time::timeout(NEXT_LETTER, consumer.next()).await {
                Ok(Some(Incoming::Delivery(delivery))) => letters.push((DeadLetter::of(&delivery), Some(delivery))),
                // What was in hand went back and comes again.
                Ok(Some(Incoming::Interrupted { .. })) => letters.clear(),
                // Somebody else took the rest, who looks at the same time.
                Ok(None) | Err(_) if !letters.is_empty() => break,
                Ok(None) | Err(_) => return Err(DeadError::Silent),
            }
        }
        Ok(DeadBox { letters, broker, _consumer: Some(consumer), fleet: self.clone() })
    }
}

impl DeadBox {
    pub fn letters(&self) -> impl ExactSizeIterator<Item = &DeadLetter> {
        self.letters.iter().map(|(letter, _)| letter)
    }

    /// The body of a letter, and its content type.
    pub fn body(&self, index: usize) -> Option<(&[u8], Option<&str>)> {
        let delivery = self.letters.get(index)?.1.as_ref()?;
        Some((&delivery.body, delivery.properties.content_type.as_deref()))
    }

    /// Submits the letter's tasks again, as new jobs that carry the old one's id in the label [`REPLAY_LABEL`]: the outcome of a
    /// job never changes, and dead is one. A body that can't be read goes back as it is, for a worker that can. Returns the new
    /// jobs; the letter is gone then.
    ///
    /// Cancelled, the letter may be both submitted and still there.
    pub async fn replay(&mut self, index: usize) -> Result<Vec<JobId>, DeadError> {
        let (letter, delivery) = self.letters.get_mut(index).ok_or(DeadError::Gone)?;
        let delivery = delivery.take().ok_or(DeadError::Gone)?;
        let Some((pool, priority)) = topology::parse_task_key(origin_key(&letter.origin)) else {
            let origin = letter.origin.clone();
            self.letters[index].1 = Some(delivery);
            return Err(DeadError::NoTask { origin });
        };
        // Whoever replays a job is its user.
        let user_id = self.fleet.connection.user_id();
        let mut properties = Properties { user_id, ..delivery.properties.clone() };
        for name in FORGOTTEN {
            properties.headers.remove(name);
        }
        properties.headers.retain(|name, _| !name.starts_with("x-"));
        let encoding = properties.content_type.as_deref().and_then(Encoding::of_content_type);
        let renewed = encoding.and_then(|encoding| renewed(encoding, &delivery.body).map(|tasks| (encoding, tasks)));
        let (body, infos) = match renewed {
            Some((encoding, tasks)) => {
                let info = |task: &Task<'_>| {
                    JobInfo::of(task, pool.clone(), priority, task.reply.as_ref().map(ToString::to_string))
                };
                let infos: Vec<JobInfo> = tasks.iter().map(info).collect();
                properties.message_id = Some(match infos.as_slice() {
                    [only] => only.job_id.to_string(),
                    _ => MessageId::new().to_string(),
                });
                (encoding.encode_tasks(&tasks).expect("a task that was decoded can be encoded"), infos)
            }
            None => (delivery.body.clone(), Vec::new()),
        };
        let routing_key = topology::task_key(&pool, priority);
        self.broker
            .publish(Message { exchange: topology::TASKS, routing_key, body, properties, mandatory: true })
            .await?;
        delivery.ack().await?;
        let jobs = infos.iter().map(|info| info.job_id).collect();
        let at_ms = now_ms();
        self.fleet.connection.record(infos.into_iter().map(|job| Submitted { job, at_ms }).collect::<Vec<_>>()).await;
        Ok(jobs)
    }

    /// Throws a letter away. Cancelled, it may still be there.
    pub async fn discard(&mut self, index: usize) -> Result<(), DeadError> {
        let delivery = self.letters.get_mut(index).and_then(|(_, delivery)| delivery.take()).ok_or(DeadError::Gone)?;
        delivery.ack().await?;
        Ok(())
    }
}

impl DeadLetter {
    fn of(delivery: &Delivery) -> Self {
        let properties = &delivery.properties;
        let text = |names: [&str; 2]| names.iter().find_map(|name| properties.header_text(name)).map(str::to_owned);
        let encoding = properties.content_type.as_deref().and_then(Encoding::of_content_type);
        let is_task = properties.kind.as_deref() == Some(topology::TYPE_TASK);
        let heads =
            encoding.filter(|_| is_task).map(|encoding| encoding.decode_heads(&delivery.body)).unwrap_or_default();
        Self {
            jobs: heads.into_iter().filter_map(|head| head.job_id).collect(),
            message_id: properties.message_id.clone(),
            reason: text([HEADER_REASON, BROKERS_REASON]).unwrap_or_else(|| "no reason was given".to_owned()),
            origin: text([HEADER_ORIGIN, BROKERS_ORIGIN]).unwrap_or_default(),
            kind: properties.kind.clone(),
            bytes: delivery.body.len(),
            timestamp: properties.timestamp,
        }
    }
}

/// The routing key of what workers and what the broker wrote as the origin.
fn origin_key(origin: &str) -> &str {
    origin.strip_prefix(topology::TASKS).and_then(|rest| rest.strip_prefix('.')).unwrap_or(origin)
}

/// The tasks of a body as new jobs.
fn renewed(encoding: Encoding, body: &[u8]) -> Option<Batch<Task<'_>>> {
    Some(match encoding.decode_tasks(body).ok()? {
        Batch::One(task) => Batch::One(renew(task)),
        Batch::Many(tasks) => Batch::Many(tasks.into_iter().map(renew).collect()),
    })
}

fn renew(task: Task<'_>) -> Task<'_> {
    let mut labels = task.labels;
    labels.insert(REPLAY_LABEL.to_owned(), task.job_id.to_string());
    Task { job_id: JobId::new(), labels, submitted_ms: Some(now_ms()), ..task }
}
