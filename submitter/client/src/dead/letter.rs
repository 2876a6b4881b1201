//! The description of a dead letter.

use gpufleet_schema::{
    Encoding, JobId,
    topology::{self, HEADER_BODY_BYTES, HEADER_ORIGIN, HEADER_REASON, HEADER_USER},
};
use gpufleet_transport::{Death, Delivery, Properties};

/// A description of a dead letter, as far as it can be read.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// The jobs in the message. Empty if the body can't be read or is not a task.
    pub jobs: Vec<JobId>,
    pub message_id: Option<String>,
    /// Why a worker, the recorder or the broker dead-lettered the message.
    pub reason: String,
    /// The routing key or the queue that the message came from. Empty if unknown.
    pub origin: String,
    /// The user whose jobs these are. None if the broker moved a letter that a worker had republished, or if no user was validated.
    pub user: Option<String>,
    /// The AMQP property `type`.
    pub kind: Option<String>,
    /// The length of the original body in bytes.
    pub bytes: u64,
    /// The length of the letter's body in bytes. It is smaller than `bytes` if only the beginning was kept.
    pub kept_bytes: u64,
    /// The AMQP property `timestamp`, in seconds since 1970.
    pub timestamp: Option<u64>,
}

impl DeadLetter {
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self::read(&delivery.properties, &delivery.deaths(), &delivery.body)
    }

    pub(super) fn read(properties: &Properties, deaths: &[Death], body: &[u8]) -> Self {
        let encoding = properties.content_type.as_deref().and_then(Encoding::of_content_type);
        // Other producers may leave out the type.
        let is_task = properties.kind.as_deref() != Some(topology::TYPE_EVENTS);
        let heads = encoding.filter(|_| is_task).map(|encoding| encoding.decode_heads(body)).unwrap_or_default();
        let death = last_death(deaths);
        // A letter that the broker moved has its producer's headers, which are untrusted.
        let header = |name| properties.header_text(name).filter(|_| deaths.is_empty()).map(str::to_owned);
        let kept_bytes = body.len() as u64;
        let bytes = properties.header_int(HEADER_BODY_BYTES).and_then(|bytes| u64::try_from(bytes).ok());
        Self {
            jobs: heads.into_iter().filter_map(|head| head.job_id).collect(),
            message_id: properties.message_id.clone(),
            reason: header(HEADER_REASON)
                .or_else(|| death.map(|death| format!("dead-lettered by the broker: {}", death.reason)))
                .unwrap_or_else(|| "no reason was given".to_owned()),
            origin: header(HEADER_ORIGIN).or_else(|| death.map(|death| death.queue.clone())).unwrap_or_default(),
            user: user(properties, deaths),
            kind: properties.kind.clone(),
            bytes: bytes.unwrap_or(kept_bytes).max(kept_bytes),
            kept_bytes,
            timestamp: properties.timestamp,
        }
    }

    /// Returns whether only the beginning of the body was kept.
    pub fn is_cut(&self) -> bool {
        self.kept_bytes < self.bytes
    }

    /// Whether the letter came from a queue of sessions.
    pub(super) fn is_of_session(&self) -> bool {
        topology::parse_session_key(origin_key(&self.origin)).is_some()
    }

    /// Whether the letter came from a queue of host programs.
    pub(super) fn is_of_host_program(&self) -> bool {
        topology::parse_program_key(origin_key(&self.origin)).is_some()
    }

    /// The pool and priority of the task queue that the letter came from; `None` if it came from another queue.
    pub(super) fn destination(&self) -> Option<(gpufleet_schema::PoolName, gpufleet_schema::Priority)> {
        topology::parse_task_key(origin_key(&self.origin))
    }
}

/// Returns the user of the jobs: the header that a worker wrote, or `user-id` if the broker moved the letter and it has no such header.
/// Only workers publish to the dead-letter queue.
fn user(properties: &Properties, deaths: &[Death]) -> Option<String> {
    let written = properties.header_text(HEADER_USER);
    let user = match deaths {
        [] => written,
        _ => properties.user_id.as_deref().filter(|_| written.is_none()),
    };
    user.map(str::to_owned)
}

/// The latest death in a task queue. The deaths in retry queues don't count: each wait there ends with one.
fn last_death(deaths: &[Death]) -> Option<&Death> {
    let in_a_task_queue = |death: &&Death| {
        let key = origin_key(&death.queue);
        topology::parse_task_key(key).is_some()
            || topology::parse_session_key(key).is_some()
            || topology::parse_program_key(key).is_some()
    };
    deaths.iter().find(in_a_task_queue).or_else(|| deaths.first())
}

/// The routing key of an origin. Workers write a routing key, and the broker writes a queue name.
fn origin_key(origin: &str) -> &str {
    origin.strip_prefix(topology::TASKS).and_then(|rest| rest.strip_prefix('.')).unwrap_or(origin)
}
