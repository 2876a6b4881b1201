//! Every name on the broker. The `v1` in them is [`crate::VERSION`].

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AffinitySlot, ClassKey, ClientName, JobId, MessageId, PoolName, WorkerName};

/// Topic: routes a task by pool and priority, and perhaps by [`AffinitySlot`]. RabbitMQ checks routing keys on topic exchanges alone, and so can
/// confine a producer to its pools.
pub const TASKS: &str = "gpufleet.v1.tasks";
/// Topic: dead-lettered jobs that an operator submits again, routed like [`TASKS`]. Workers trust the operator's [`HEADER_USER`] because
/// RabbitMQ's permissions keep producers from this exchange.
pub const TASKS_OPERATOR: &str = "gpufleet.v1.tasks.operator";
/// Topic: routes a reply by client, so that a client can bind nothing but its own name. A reply without a queue goes to
/// [`UNCLAIMED_EXCHANGE`].
pub const REPLIES: &str = "gpufleet.v1.replies";
/// Topic: how far running jobs are ([`progress_key`]). The broker drops what no client follows.
pub const PROGRESS: &str = "gpufleet.v1.progress";
/// Topic: events that clients publish. The recorder takes submissions from it and nothing else.
pub const EVENTS_CLIENT: &str = "gpufleet.v1.events.client";
/// Topic: events that workers publish: starts, outcomes, heartbeats.
pub const EVENTS_WORKER: &str = "gpufleet.v1.events.worker";
/// Direct: dead-lettered jobs.
pub const DEAD: &str = "gpufleet.v1.dead";
/// Fanout: operators' orders, into [`CONTROL_QUEUE`]. None of the exchanges has a queue's name: to bind a queue, a
/// worker needs write permission on that name.
pub const CONTROL_OPERATOR: &str = "gpufleet.v1.control.operator";
/// Fanout: clients' cancellations of their own jobs, into [`CANCELLATIONS_QUEUE`].
pub const CONTROL_CLIENT: &str = "gpufleet.v1.control.client";
/// Fanout: workers' marks and announcements, into [`CONTROL_QUEUE`] and [`CANCELLATIONS_QUEUE`].
pub const CONTROL_WORKER: &str = "gpufleet.v1.control.worker";
/// A stream of operators' orders. Every worker reads it from its beginning, so that cancellations also apply to workers
/// that start later.
pub const CONTROL_QUEUE: &str = "gpufleet.v1.control";
/// Stream of the cancellations that clients order. A stream discards its oldest messages when it is full, so orders of clients must
/// not share one with those of operators.
pub const CANCELLATIONS_QUEUE: &str = "gpufleet.v1.cancellations";
/// Exclusive queues without messages, one for each connected worker. RabbitMQ lets no second worker declare its name.
pub const WORKERS: &str = "gpufleet.v1.workers";
/// Fanout: the alternate exchange of [`REPLIES`].
pub const UNCLAIMED_EXCHANGE: &str = "gpufleet.v1.unclaimed";
/// Replies to clients whose queue does not exist any more, kept for [`UNCLAIMED_TTL_MS`].
pub const UNCLAIMED_QUEUE: &str = "gpufleet.v1.unclaimed";
/// Fanout: replies that [`UNCLAIMED_QUEUE`] dropped, because it was full or they were too old.
pub const DROPPED_EXCHANGE: &str = "gpufleet.v1.dropped";
/// Dropped replies on their way to the recorder, which counts them.
pub const DROPPED_QUEUE: &str = "gpufleet.v1.dropped";
pub const LEDGER_QUEUE: &str = "gpufleet.v1.ledger";
pub const DEAD_QUEUE: &str = "gpufleet.v1.dead";
/// The routing key of workers' event batches.
pub const EVENTS_KEY: &str = "batch";
/// The routing key of actions, which only operators may report.
pub const EVENTS_ACTION_KEY: &str = "action";
/// The binding of the ledger's queue.
pub const EVENTS_BINDING: &str = "#";
pub const DEAD_KEY: &str = "dead";

/// How long an unclaimed reply is kept, in milliseconds: a day is long enough to fetch a result later and short enough not to fill a disk.
pub const UNCLAIMED_TTL_MS: u32 = 24 * 3600 * 1000;
/// Maximum size of [`UNCLAIMED_QUEUE`] in bytes: sixty-four of the largest replies. If it is full, the broker drops the oldest replies,
/// because a worker must never wait for clients that have left.
pub const UNCLAIMED_BYTES_MAX: u32 = 1 << 30;
/// Maximum size of [`DROPPED_QUEUE`] in bytes: four of the largest replies. If the recorder is late, further replies are dropped uncounted.
pub const DROPPED_BYTES_MAX: u32 = 64 << 20;
/// Maximum size of the ledger's queue in bytes: events of about four million jobs. If it is full, the broker refuses events; workers keep
/// their messages unacknowledged and try again, so nothing is lost. Without the bound, a full disk would block every publisher, also those
/// of replies.
pub const LEDGER_BYTES_MAX: i64 = 4 << 30;

/// A queue in which a job waits before its retry. Its name is also that of the fanout exchange in front of it, so that
/// a message keeps the routing key with which it returns to the exchange of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    pub seconds: u32,
    pub name: &'static str,
}

/// Longer waits for jobs that lost more attempts. The times are fixed, because a quorum queue expires only the message
/// at its head.
pub const RETRY_LADDER: [Rung; 5] = [
    Rung { seconds: 1, name: "gpufleet.v1.retry.1" },
    Rung { seconds: 5, name: "gpufleet.v1.retry.5" },
    Rung { seconds: 30, name: "gpufleet.v1.retry.30" },
    Rung { seconds: 120, name: "gpufleet.v1.retry.120" },
    Rung { seconds: 600, name: "gpufleet.v1.retry.600" },
];

/// The rung for a job that has lost this many attempts, at least one.
pub fn retry_rung(losses: u32) -> Rung {
    let index = (losses.saturating_sub(1) as usize).min(RETRY_LADDER.len() - 1);
    RETRY_LADDER[index]
}

/// The time for which the streams keep orders. A job that waits longer in a queue is not cancelled any more.
pub const CONTROL_MAX_AGE: &str = "7D";
/// [`CONTROL_MAX_AGE`] in days.
pub const CONTROL_MAX_AGE_DAYS: u64 = 7;
/// Size of a segment of the order streams in bytes; small, because a stream discards whole segments.
pub const CONTROL_SEGMENT_BYTES: u32 = 1 << 20;
/// Maximum size of each order stream in bytes: room for hundreds of thousands of orders.
pub const CONTROL_BYTES_MAX: u32 = 64 << 20;
/// Time after which the broker deletes a reply queue without a consumer, in milliseconds.
pub const REPLY_QUEUE_EXPIRES_MS: u32 = 10 * 60 * 1000;

/// Time after which the broker deletes the mark of a host program that no worker declares again, in milliseconds. The worker that runs the
/// program declares it at intervals.
pub const PROGRAM_MARK_EXPIRES_MS: u32 = 24 * 3600 * 1000;

/// Header with the number of the next attempt at this message's jobs, minus the broker's own delivery count.
pub const HEADER_ATTEMPT: &str = "gpufleet-attempt";
/// Header with the number of executors that the job has lost.
pub const HEADER_LOSSES: &str = "gpufleet-losses";
/// Header with the number of attempts that could not read or write the blob store.
pub const HEADER_UNAVAILABLE: &str = "gpufleet-unavailable";
/// Header with the number of deliveries of earlier copies of the message, which the broker does not count for this copy.
pub const HEADER_DELIVERIES: &str = "gpufleet-deliveries";
/// Header with the number of times that workers forwarded the job because none of their devices met its requirements.
pub const HEADER_FORWARDS: &str = "gpufleet-forwards";
/// Header with the number of times that the job waited because no worker met its requirements.
pub const HEADER_FORWARDING_WAITS: &str = "gpufleet-forwarding-waits";
/// Header of a dead-lettered message: the reason.
pub const HEADER_REASON: &str = "gpufleet-reason";
/// Header of a dead-lettered message: its original queue.
pub const HEADER_ORIGIN: &str = "gpufleet-origin";
/// Header of a dead-lettered message of which only the beginning is kept: its original length in bytes.
pub const HEADER_BODY_BYTES: &str = "gpufleet-body-bytes";
/// The user that the broker validated when the message was first published. It is trusted only in a message that comes
/// from a worker's own user, by the broker's validation, or from an operator, by its exchange ([`TASKS_OPERATOR`]).
pub const HEADER_USER: &str = "gpufleet-user";
/// Header with the form in which a producer wants replies; see [`REPLIES_IN_LISTS`].
pub const HEADER_REPLIES: &str = "gpufleet-replies";
/// The value of [`HEADER_REPLIES`] by which the producer says that it reads lists of replies. Replies that are ready at the same time then
/// share messages.
pub const REPLIES_IN_LISTS: &str = "lists";
/// Header with a secret of the client in a task's message, which workers copy into the replies. It shows the client that a reply answers
/// its own task, because other users can learn its name and the ids of its jobs, and submit tasks with them.
pub const HEADER_REPLY_TOKEN: &str = "gpufleet-reply-token";
pub const HEADER_TRACEPARENT: &str = "traceparent";

/// Topic: routes a forwarded job by pool, device class and priority ([`forwarded_key`]).
pub const FORWARDED: &str = "gpufleet.v1.forwarded";
/// Time after which a forwarded job returns to its task queue, in milliseconds. Workers requeue the jobs of a class without workers within
/// minutes, so this limit only applies to classes that no worker knows any more.
pub const FORWARDED_TTL_MS: u32 = 24 * 3600 * 1000;

/// Maximum number of messages in a queue of progress. If its client is slow, the broker drops the oldest.
pub const PROGRESS_MESSAGES_MAX: u32 = 1024;

/// The AMQP `type` of each kind of body.
pub const TYPE_TASK: &str = "gpufleet.task";
pub const TYPE_REPLY: &str = "gpufleet.reply";
/// The offer of a session ([`SessionOffer`](crate::SessionOffer)), in a reply queue.
pub const TYPE_OFFER: &str = "gpufleet.offer";
pub const TYPE_ORDER: &str = "gpufleet.order";
pub const TYPE_EVENTS: &str = "gpufleet.events";
pub const TYPE_PROGRESS: &str = "gpufleet.progress";

/// The priority of a job, which selects one of its pool's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a priority; use high, normal or low")]
pub struct UnknownPriority(String);

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, UnknownPriority> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownPriority(text.chars().take(32).collect()))
    }
}

pub fn task_key(pool: &PoolName, priority: Priority) -> String {
    format!("{pool}.{priority}")
}

pub fn task_queue(pool: &PoolName, priority: Priority) -> String {
    format!("{TASKS}.{pool}.{priority}")
}

/// The pool and priority of a routing key, if it is one of [`task_key`]'s or [`slot_key`]'s.
pub fn parse_task_key(key: &str) -> Option<(PoolName, Priority)> {
    if let Some((pool, _, priority)) = parse_slot_key(key) {
        return Some((pool, priority));
    }
    let (pool, priority) = key.rsplit_once('.')?;
    Some((pool.parse().ok()?, priority.parse().ok()?))
}

/// The routing key of a task for the workers that probably have its largest input.
pub fn slot_key(pool: &PoolName, slot: AffinitySlot, priority: Priority) -> String {
    format!("{pool}.{slot}.{priority}")
}

/// The queue of an affinity slot, in a pool whose workers offer affinity.
pub fn slot_queue(pool: &PoolName, slot: AffinitySlot, priority: Priority) -> String {
    format!("{TASKS}.{}", slot_key(pool, slot, priority))
}

/// The pool, affinity slot and priority of a routing key, if it is one of [`slot_key`]'s.
pub fn parse_slot_key(key: &str) -> Option<(PoolName, AffinitySlot, Priority)> {
    let (rest, priority) = key.rsplit_once('.')?;
    let (pool, slot) = rest.rsplit_once('.')?;
    Some((pool.parse().ok()?, slot.parse().ok()?, priority.parse().ok()?))
}

/// Stands for the client in the key of a job without one.
const NO_CLIENT: &str = "-";
/// The last word of [`session_key`].
const SESSION: &str = "session";

/// The routing key of sessions. It is not a task key, so a producer needs a permission of its own for it.
pub fn session_key(pool: &PoolName) -> String {
    format!("{pool}.{SESSION}")
}

/// The queue of sessions that wait for a worker of the pool.
pub fn session_queue(pool: &PoolName) -> String {
    format!("{TASKS}.{}", session_key(pool))
}

/// The last word of [`program_key`].
const PROGRAM: &str = "program";

/// The routing key of host programs. It is not a task key, so a producer needs a permission of its own for it.
pub fn program_key(pool: &PoolName) -> String {
    format!("{pool}.{PROGRAM}")
}

/// The queue of host programs that wait for a worker of the pool.
pub fn program_queue(pool: &PoolName) -> String {
    format!("{TASKS}.{}", program_key(pool))
}

/// An exclusive queue of the worker that runs a host program, which is gone with the worker's connection.
pub fn program_claim(job_id: JobId) -> String {
    format!("{WORKERS}.program-{job_id}")
}

/// A queue that says that a host program has started somewhere, so that a redelivery of its message is not taken for the first delivery.
/// The broker deletes it after [`PROGRAM_MARK_EXPIRES_MS`] without a declaration.
pub fn program_mark(job_id: JobId) -> String {
    format!("{WORKERS}.started-{job_id}")
}

/// The pool of a routing key, if it is [`program_key`]'s.
pub fn parse_program_key(key: &str) -> Option<PoolName> {
    key.strip_suffix(PROGRAM)?.strip_suffix('.')?.parse().ok()
}

/// The pool of a routing key, if it is [`session_key`]'s.
pub fn parse_session_key(key: &str) -> Option<PoolName> {
    key.strip_suffix(SESSION)?.strip_suffix('.')?.parse().ok()
}

pub fn forwarded_key(pool: &PoolName, class: ClassKey, priority: Priority) -> String {
    format!("{pool}.{class}.{priority}")
}

/// The queue in which jobs of a pool wait for workers with a device of the class.
pub fn forwarded_queue(pool: &PoolName, class: ClassKey, priority: Priority) -> String {
    format!("{FORWARDED}.{}", forwarded_key(pool, class, priority))
}

/// The pool, class and priority of a routing key, if it is one of [`forwarded_key`]'s.
pub fn parse_forwarded_key(key: &str) -> Option<(PoolName, ClassKey, Priority)> {
    let (rest, priority) = key.rsplit_once('.')?;
    let (pool, class) = rest.rsplit_once('.')?;
    Some((pool.parse().ok()?, class.parse().ok()?, priority.parse().ok()?))
}

/// The routing key of submissions that clients report. It has the pool, so that RabbitMQ can confine a producer to its pools.
pub fn submissions_key(pool: &PoolName) -> String {
    format!("submitted.{pool}")
}

/// The routing key of a running job's progress.
pub fn progress_key(pool: &PoolName, client: Option<&ClientName>, job_id: JobId) -> String {
    format!("{pool}.{}.{job_id}", client.map_or(NO_CLIENT, ClientName::as_str))
}

/// The binding of a client that follows its own jobs in a pool.
pub fn progress_of_client(pool: &PoolName, client: &ClientName) -> String {
    format!("{pool}.{client}.*")
}

/// The binding of a client that follows one job in a pool, which another client may have submitted.
pub fn progress_of_job(pool: &PoolName, job_id: JobId) -> String {
    format!("{pool}.*.{job_id}")
}

/// The binding of an operator who follows all jobs of a pool.
pub fn progress_of_pool(pool: &PoolName) -> String {
    format!("{pool}.*.*")
}

/// A queue for the progress that one connection of a client asks for. It has a new name each time, because several connections may use
/// one client name.
pub fn progress_queue(client: &ClientName) -> String {
    format!("{PROGRESS}.{client}.{}", MessageId::new())
}

pub fn reply_queue(client: &ClientName) -> String {
    format!("{REPLIES}.{client}")
}

pub fn worker_queue(worker: &WorkerName) -> String {
    format!("{WORKERS}.{worker}")
}

/// The role that published a message. Its exchange identifies the role, because RabbitMQ's permissions restrict who
/// writes to which exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Client,
    Worker,
    Operator,
}

impl Speaker {
    /// The role that published a batch of events, by its exchange. The default exchange stands for the operator, who
    /// moves messages by hand, because no role's permissions include it.
    pub fn of_events(exchange: &str) -> Option<Self> {
        match exchange {
            EVENTS_CLIENT => Some(Self::Client),
            EVENTS_WORKER => Some(Self::Worker),
            "" => Some(Self::Operator),
            _ => None,
        }
    }

    /// The role that sent an order, by its exchange.
    pub fn of_order(exchange: &str) -> Option<Self> {
        match exchange {
            CONTROL_CLIENT => Some(Self::Client),
            CONTROL_WORKER => Some(Self::Worker),
            CONTROL_OPERATOR => Some(Self::Operator),
            _ => None,
        }
    }

    /// The exchange that this speaker's orders go to.
    pub const fn control(self) -> &'static str {
        match self {
            Self::Client => CONTROL_CLIENT,
            Self::Worker => CONTROL_WORKER,
            Self::Operator => CONTROL_OPERATOR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_key_parses_back() {
        let pool: PoolName = "team-a".parse().unwrap();
        assert_eq!(parse_task_key(&task_key(&pool, Priority::Low)), Some((pool, Priority::Low)));
        assert_eq!(parse_task_key("nonsense"), None);
        assert_eq!(parse_task_key("a.b.high"), None);
    }

    #[test]
    fn the_key_of_a_slot_parses_back_and_is_a_task_key() {
        let pool: PoolName = "team-a".parse().unwrap();
        for slot in AffinitySlot::all() {
            let key = slot_key(&pool, slot, Priority::High);
            assert_eq!(parse_slot_key(&key), Some((pool.clone(), slot, Priority::High)));
            assert_eq!(parse_task_key(&key), Some((pool.clone(), Priority::High)));
        }
        assert_eq!(parse_slot_key(&task_key(&pool, Priority::High)), None);
        assert_eq!(parse_task_key("team-a.8.high"), None);
    }

    #[test]
    fn the_key_of_sessions_parses_back_and_is_not_a_task_key() {
        let pool: PoolName = "team-a".parse().unwrap();
        let key = session_key(&pool);
        assert_eq!((parse_session_key(&key), parse_task_key(&key)), (Some(pool.clone()), None));
        assert_eq!(parse_session_key(&task_key(&pool, Priority::High)), None);
        assert_eq!(parse_session_key("session"), None);
        let key = program_key(&pool);
        assert_eq!((parse_program_key(&key), parse_session_key(&key), parse_task_key(&key)), (Some(pool), None, None));
    }

    #[test]
    fn a_client_binds_the_progress_of_its_jobs_or_of_one_job() {
        let (pool, client): (PoolName, ClientName) = ("team-a".parse().unwrap(), "anna-1".parse().unwrap());
        let job: JobId = "0190a5b8-7c00-7000-8000-000000000001".parse().unwrap();
        let key = progress_key(&pool, Some(&client), job);
        assert_eq!(key, "team-a.anna-1.0190a5b8-7c00-7000-8000-000000000001");
        assert_eq!(progress_of_client(&pool, &client), "team-a.anna-1.*");
        assert_eq!(progress_of_job(&pool, job), key.replace("anna-1", "*"));
        assert_eq!(progress_key(&pool, None, job), key.replace("anna-1", "-"));
        assert_eq!(progress_of_pool(&pool), "team-a.*.*");
        assert_ne!(progress_queue(&client), progress_queue(&client));
    }

    #[test]
    fn only_the_exchange_tells_who_spoke() {
        for speaker in [Speaker::Client, Speaker::Worker, Speaker::Operator] {
            assert_eq!(Speaker::of_order(speaker.control()), Some(speaker));
        }
        assert_eq!(Speaker::of_events(EVENTS_CLIENT), Some(Speaker::Client));
        assert_eq!(Speaker::of_events(EVENTS_WORKER), Some(Speaker::Worker));
        for stranger in ["gpufleet.v1.events", CONTROL_QUEUE] {
            assert_eq!((Speaker::of_events(stranger), Speaker::of_order(stranger)), (None, None));
        }
        assert_eq!(Speaker::of_order(""), None, "an order is not moved by hand, but given again");
    }

    #[test]
    fn a_forwarded_key_parses_back_and_is_not_a_task_key() {
        let (pool, class) = ("team-a".parse::<PoolName>().unwrap(), "0123456789abcdef".parse().unwrap());
        let key = forwarded_key(&pool, class, Priority::High);
        assert_eq!(parse_forwarded_key(&key), Some((pool.clone(), class, Priority::High)));
        assert_eq!(parse_task_key(&key), None);
        assert_eq!(parse_forwarded_key(&task_key(&pool, Priority::High)), None);
    }

    #[test]
    fn orders_have_one_age() {
        assert_eq!(CONTROL_MAX_AGE, format!("{CONTROL_MAX_AGE_DAYS}D"));
    }
}
