//! Declares the exchanges and queues that [`gpufleet_schema::topology`] names.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{ClassKey, ClientName, PoolName, topology as names};
use lapin::{
    Channel, ExchangeKind,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::time::Instant;
use tracing::debug;

use crate::{
    DeclareError, Delivery, Options, QueueError, ReplyQueue,
    link::{
        Link, NoSession, OpenChannel, is_channel_level, is_locked, is_not_found, missing_exchange, queued, reason_of,
    },
};

mod forwarded;
mod mismatch;
mod tasks;

/// The result of a passive declare of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages ready for delivery, without unacknowledged ones.
    pub messages: u32,
    pub consumers: u32,
}

impl QueueDepth {
    /// The subscriptions to the queues of one pool: those of the queue that has the fewest, of the queues that have any. A worker
    /// subscribes to each of them, and the broker counts an ended subscription until its last message is settled.
    pub fn consumers_of_pool(depths: &[Self]) -> u32 {
        depths.iter().map(|depth| depth.consumers).filter(|consumers| *consumers > 0).min().unwrap_or(0)
    }
}

/// The limit for one set of declarations, including a reconnection. A cluster needs some hundred milliseconds for each quorum queue.
const DECLARE_DEADLINE: Duration = Duration::from_secs(30);
/// The limit for declaring bindings again, which is repeated anyway.
const BIND_DEADLINE: Duration = Duration::from_secs(5);
/// The pause between checks of a queue that exists but does not answer yet.
const QUEUE_PAUSE: Duration = Duration::from_millis(250);
/// The limit for one query about a queue.
const QUESTION_DEADLINE: Duration = Duration::from_secs(10);

/// A set of exchanges and queues that is declared together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declaration {
    /// All exchanges and shared queues, which workers declare.
    Base,
    /// The part of the base that the recorder reads and writes.
    Ledger,
    Pool(PoolName),
    /// A pool's queues for jobs with large inputs.
    AffinitySlots(PoolName),
    /// A pool's queue of sessions.
    Sessions(PoolName),
    /// A pool's queue of host programs.
    Programs(PoolName),
    Replies(ClientName),
    /// A pool's queues for jobs that are forwarded to a device class.
    Forwarded(PoolName, ClassKey),
    /// The exchange of progress. The worker of an earlier release may lack the permission for it, so it is not in the base.
    Progress,
}

/// The queues that a pool has beside those of its priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoreQueues {
    /// One for each affinity slot and priority.
    pub slots: bool,
    pub sessions: bool,
    pub programs: bool,
}

impl MoreQueues {
    pub(crate) fn declarations(self, pool: &PoolName) -> impl Iterator<Item = Declaration> {
        let slots = self.slots.then(|| Declaration::AffinitySlots(pool.clone()));
        let sessions = self.sessions.then(|| Declaration::Sessions(pool.clone()));
        let programs = self.programs.then(|| Declaration::Programs(pool.clone()));
        slots.into_iter().chain(sessions).chain(programs)
    }
}

/// One step of a declaration, with its name in errors.
struct Step {
    what: String,
    action: Action,
}

enum Action {
    Exchange {
        name: &'static str,
        kind: ExchangeKind,
        arguments: FieldTable,
    },
    Queue {
        name: String,
        arguments: FieldTable,
    },
    Bind {
        queue: String,
        exchange: &'static str,
        key: String,
    },
    /// Without the binding nothing happens.
    Unbind {
        queue: String,
        exchange: &'static str,
    },
}

impl Declaration {
    /// The declaration that a queue belongs to, by its name. `None` for queues that gpufleet did not name.
    pub(crate) fn of_queue(queue: &str) -> Option<Self> {
        let below = |prefix: &str| queue.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
        if let Some(key) = below(names::TASKS) {
            let slots = names::parse_slot_key(key).map(|(pool, ..)| Self::AffinitySlots(pool));
            let sessions = names::parse_session_key(key).map(Self::Sessions);
            let programs = names::parse_program_key(key).map(Self::Programs);
            return slots
                .or(sessions)
                .or(programs)
                .or_else(|| names::parse_task_key(key).map(|(pool, _)| Self::Pool(pool)));
        }
        if let Some(client) = below(names::REPLIES) {
            return client.parse().ok().map(Self::Replies);
        }
        if let Some(key) = below(names::FORWARDED) {
            return names::parse_forwarded_key(key).map(|(pool, class, _)| Self::Forwarded(pool, class));
        }
        if [names::LEDGER_QUEUE, names::DROPPED_QUEUE, names::DEAD_QUEUE].contains(&queue) {
            return Some(Self::Ledger);
        }
        let shared = [names::UNCLAIMED_QUEUE, names::CONTROL_QUEUE, names::CANCELLATIONS_QUEUE];
        let is_rung = names::RETRY_LADDER.iter().any(|rung| rung.name == queue);
        (shared.contains(&queue) || is_rung).then_some(Self::Base)
    }

    fn what(&self) -> String {
        match self {
            Self::Base => "exchanges and shared queues".to_owned(),
            Self::Ledger => "exchanges and queues of the ledger".to_owned(),
            Self::Pool(pool) => format!("pool {pool}"),
            Self::AffinitySlots(pool) => format!("affinity slots of pool {pool}"),
            Self::Sessions(pool) => format!("sessions of pool {pool}"),
            Self::Programs(pool) => format!("host programs of pool {pool}"),
            Self::Replies(client) => format!("reply queue of {client}"),
            Self::Forwarded(pool, class) => format!("queues of pool {pool} for device class {class}"),
            Self::Progress => "exchange of progress".to_owned(),
        }
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        match self {
            Self::Base => base(),
            Self::Ledger => ledger(),
            Self::Pool(pool) => tasks::of_pool(pool),
            Self::AffinitySlots(pool) => tasks::of_slots(pool),
            Self::Sessions(pool) => tasks::of_sessions(pool),
            Self::Programs(pool) => tasks::of_programs(pool),
            Self::Replies(client) => reply_queue(client, options),
            Self::Forwarded(pool, class) => forwarded::steps(pool, *class),
            Self::Progress => vec![exchange(names::PROGRESS, ExchangeKind::Topic, [])],
        }
    }

    /// All steps except those for other queues with a subscriber, because each subscriber declares its own queue.
    fn steps_for(&self, queue: &str, options: &Options) -> Vec<Step> {
        let mut steps = self.steps(options);
        steps.retain(|step| step.action.queue().is_none_or(|name| name == queue || !self.has_subscriber(name)));
        steps
    }

    /// Whether a worker, a recorder or a client subscribes to the queue for as long as it runs.
    pub(crate) fn has_subscriber(&self, queue: &str) -> bool {
        match self {
            Self::Base => {
                [names::CONTROL_QUEUE, names::CANCELLATIONS_QUEUE].contains(&queue)
                    || Self::Ledger.has_subscriber(queue)
            }
            Self::Ledger => queue == names::LEDGER_QUEUE || queue == names::DROPPED_QUEUE,
            Self::Progress => false,
            Self::Pool(_)
            | Self::AffinitySlots(_)
            | Self::Sessions(_)
            | Self::Programs(_)
            | Self::Replies(_)
            | Self::Forwarded(..) => true,
        }
    }
}

/// Declares everything, waiting for a connection if there is none. Cancelling leaves a part declared, which is harmless.
pub(crate) async fn declare(link: &Link, declaration: &Declaration) -> Result<(), DeclareError> {
    let waited = match declaration {
        // The first submission waits for it, and has the deadline of every submission.
        Declaration::Replies(_) => link.options.confirm_deadline,
        _ => DECLARE_DEADLINE,
    };
    perform(link, declaration.what(), declaration.steps(&link.options), waited).await
}

/// Declares the exchanges and bindings again, and no queue: a subscriber declares its own.
pub(crate) async fn bind_again(link: &Link, declaration: &Declaration) -> Result<(), DeclareError> {
    let mut steps = declaration.steps(&link.options);
    steps.retain(|step| matches!(step.action, Action::Exchange { .. } | Action::Bind { .. }));
    perform(link, format!("bindings of {}", declaration.what()), steps, BIND_DEADLINE).await
}

/// Declares one queue, its exchanges and bindings, and the queues of the declaration that have no subscriber.
pub(crate) async fn declare_queue(link: &Link, declaration: &Declaration, queue: &str) -> Result<(), DeclareError> {
    let steps = declaration.steps_for(queue, &link.options);
    perform(link, format!("queue {queue}"), steps, DECLARE_DEADLINE).await
}

async fn perform(link: &Link, whole: String, steps: Vec<Step>, waited: Duration) -> Result<(), DeclareError> {
    let deadline = Instant::now() + waited;
    loop {
        let session = link.session(deadline).await.map_err(|none| match none {
            NoSession::Closed => DeclareError::Closed { what: whole.clone() },
            NoSession::Timeout(last) => DeclareError::Timeout { what: whole.clone(), waited, last },
        })?;
        let _user = session.user();
        let mut asked = &whole;
        let attempt = async {
            // The broker closes the channel of a refused declaration, so each set uses a channel of its own.
            let channel = session.consume_channel().await.map_err(|error| (whole.clone(), error))?;
            // All requests leave before the first answer comes. The broker performs them in order and stops at the first that it refuses,
            // so the first answer that is an error names the refused step.
            let requests: Vec<_> = steps.iter().map(|step| (step, queued(step.action.perform(&channel)))).collect();
            for (step, answer) in requests {
                asked = &step.what;
                answer.await.map_err(|error| (step.what.clone(), error))?;
            }
            Ok(())
        };
        match tokio::time::timeout_at(deadline, attempt).await {
            Ok(Ok(())) => return Ok(()),
            // A client binds its queue to an exchange that workers declare.
            Ok(Err((what, error))) if let Some(exchange) = missing_exchange(&error) => {
                return Err(DeclareError::NoExchange { what, exchange });
            }
            // No exchange is missing, so the broker knows the queue but has not started it yet, as happens for some
            // moments after the broker's start.
            Ok(Err((what, error))) if is_not_found(&error) => {
                let reason = reason_of(&error);
                debug!(what, reason, "queue is not up yet, declaring it again");
                if tokio::time::timeout_at(deadline, tokio::time::sleep(QUEUE_PAUSE)).await.is_err() {
                    return Err(DeclareError::Timeout { what, waited, last: Some(reason) });
                }
            }
            Ok(Err((what, error))) if is_channel_level(&error) => return Err(mismatch::explain(what, &error)),
            Ok(Err((what, error))) => {
                debug!(what, %error, "declaration interrupted");
                session.fail(reason_of(&error));
            }
            Err(_) => {
                return Err(DeclareError::Timeout { what: asked.clone(), waited, last: link.trouble() });
            }
        }
    }
}

/// `None` if the queue does not exist. Cancelling is harmless.
pub(crate) async fn depth(link: &Link, queue: &str) -> Result<Option<QueueDepth>, QueueError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let question =
        |channel: OpenChannel| async move { channel.queue_declare(queue.into(), options, FieldTable::default()).await };
    let found = ask(link, queue, question).await?;
    Ok(found.map(|queue| QueueDepth { messages: queue.message_count(), consumers: queue.consumer_count() }))
}

/// Declares an exclusive queue, which the broker deletes at the end of this connection. Returns whether this connection has it. It can be
/// repeated, and cancelling is harmless.
pub(crate) async fn claim(link: &Link, queue: &str) -> Result<bool, QueueError> {
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let question = |channel: OpenChannel| async move {
        // A vhost may have another default.
        let classic = table([("x-queue-type", text("classic"))]);
        match channel.queue_declare(queue.into(), options, classic).await {
            Ok(_declared) => Ok(true),
            Err(error) if is_locked(&error) => Ok(false),
            Err(error) => Err(error),
        }
    };
    Ok(ask(link, queue, question).await?.unwrap_or(false))
}

/// Declares a queue that is gone if it is not declared again within this time. It can be repeated.
pub(crate) async fn mark(link: &Link, queue: &str, expires_ms: u32) -> Result<(), QueueError> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let question = |channel: OpenChannel| async move {
        let expires = AMQPValue::LongUInt(expires_ms);
        let arguments = table([("x-queue-type", text("classic")), ("x-expires", expires)]);
        channel.queue_declare(queue.into(), options, arguments).await
    };
    ask(link, queue, question).await.map(drop)
}

/// Takes up to `messages_max` messages out of a queue without subscribing to it, so that the broker counts no consumer. If cancelled or
/// failed, the broker redelivers the messages that had arrived.
pub(crate) async fn get(link: &Link, queue: &str, messages_max: u16) -> Result<Vec<Delivery>, QueueError> {
    let got = ask(link, queue, |channel| async move {
        let channel = Arc::new(channel);
        let mut deliveries = Vec::new();
        while deliveries.len() < usize::from(messages_max) {
            let options = BasicGetOptions { no_ack: false };
            let Some(message) = channel.basic_get(queue.into(), options).await? else { break };
            deliveries.push(Delivery::new(message.delivery, Arc::clone(&channel)));
        }
        Ok(deliveries)
    });
    Ok(got.await?.unwrap_or_default())
}

/// Deletes a queue with its messages; a missing queue is no error. If cancelled, the queue may or may not have been deleted.
pub(crate) async fn delete(link: &Link, queue: &str) -> Result<(), QueueError> {
    let question =
        |channel: OpenChannel| async move { channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await };
    ask(link, queue, question).await.map(|_| ())
}

/// Asks again over another connection if one was lost, which is harmless for each of these questions.
async fn ask<T, A>(link: &Link, queue: &str, question: impl Fn(OpenChannel) -> A) -> Result<Option<T>, QueueError>
where
    A: Future<Output = lapin::Result<T>>,
{
    let deadline = Instant::now() + QUESTION_DEADLINE;
    let timeout = |last| QueueError::Timeout { queue: queue.to_owned(), waited: QUESTION_DEADLINE, last };
    loop {
        let session = link.session(deadline).await.map_err(|none| match none {
            NoSession::Closed => QueueError::Closed { queue: queue.to_owned() },
            NoSession::Timeout(last) => timeout(last),
        })?;
        let _user = session.user();
        let answer = async { question(session.consume_channel().await?).await };
        match tokio::time::timeout_at(deadline, answer).await {
            Err(_) => return Err(timeout(link.trouble())),
            Ok(Ok(answer)) => return Ok(Some(answer)),
            Ok(Err(error)) if is_not_found(&error) => return Ok(None),
            Ok(Err(error)) if is_channel_level(&error) => {
                return Err(QueueError::Refused { queue: queue.to_owned(), reason: reason_of(&error) });
            }
            Ok(Err(error)) => {
                debug!(queue, %error, "question about a queue interrupted");
                session.fail(reason_of(&error));
            }
        }
    }
}

impl Action {
    /// The queue that the step declares or binds.
    fn queue(&self) -> Option<&str> {
        match self {
            Self::Exchange { .. } => None,
            Self::Queue { name: queue, .. } | Self::Bind { queue, .. } | Self::Unbind { queue, .. } => Some(queue),
        }
    }

    async fn perform(&self, channel: &Channel) -> lapin::Result<()> {
        match self {
            Self::Exchange { name, kind, arguments } => {
                let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
                channel.exchange_declare((*name).into(), kind.clone(), options, arguments.clone()).await
            }
            Self::Queue { name, arguments } => {
                let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(name.as_str().into(), options, arguments.clone()).await.map(|_| ())
            }
            Self::Bind { queue, exchange, key } => {
                let options = QueueBindOptions::default();
                channel
                    .queue_bind(
                        queue.as_str().into(),
                        (*exchange).into(),
                        key.as_str().into(),
                        options,
                        FieldTable::default(),
                    )
                    .await
            }
            Self::Unbind { queue, exchange } => {
                channel.queue_unbind(queue.as_str().into(), (*exchange).into(), "".into(), FieldTable::default()).await
            }
        }
    }
}

fn base() -> Vec<Step> {
    let mut steps = ledger();
    steps.extend([
        exchange(names::UNCLAIMED_EXCHANGE, ExchangeKind::Fanout, []),
        exchange(names::TASKS, ExchangeKind::Topic, []),
        exchange(names::TASKS_OPERATOR, ExchangeKind::Topic, []),
        exchange(names::REPLIES, ExchangeKind::Topic, [("alternate-exchange", text(names::UNCLAIMED_EXCHANGE))]),
    ]);
    steps.extend(bound(names::UNCLAIMED_QUEUE.into(), unclaimed(), names::UNCLAIMED_EXCHANGE, String::new()));
    for rung in names::RETRY_LADDER {
        steps.push(exchange(rung.name, ExchangeKind::Fanout, []));
        steps.extend(bound(rung.name.into(), delaying(rung.seconds), rung.name, String::new()));
    }
    let orders = [names::CONTROL_OPERATOR, names::CONTROL_CLIENT, names::CONTROL_WORKER];
    steps.extend(orders.map(|name| exchange(name, ExchangeKind::Fanout, [])));
    for (stream, senders) in [
        (names::CONTROL_QUEUE, [names::CONTROL_OPERATOR, names::CONTROL_WORKER]),
        (names::CANCELLATIONS_QUEUE, [names::CONTROL_CLIENT, names::CONTROL_WORKER]),
    ] {
        steps.push(queue(stream.into(), log()));
        steps.extend(senders.map(|exchange| bind(stream.into(), exchange, String::new())));
    }
    // Earlier releases had one stream for all orders.
    steps.push(unbind(names::CONTROL_QUEUE.into(), names::CONTROL_CLIENT));
    steps
}

fn ledger() -> Vec<Step> {
    let events = [names::EVENTS_CLIENT, names::EVENTS_WORKER];
    let mut steps = vec![
        exchange(names::DEAD, ExchangeKind::Direct, []),
        exchange(names::DROPPED_EXCHANGE, ExchangeKind::Fanout, []),
    ];
    steps.extend(events.map(|name| exchange(name, ExchangeKind::Topic, [])));
    let bytes_max = ("x-max-length-bytes", AMQPValue::LongLongInt(names::LEDGER_BYTES_MAX));
    steps.push(queue(names::LEDGER_QUEUE.into(), quorum_that_buries([bytes_max])));
    steps.extend(events.map(|name| bind(names::LEDGER_QUEUE.into(), name, names::EVENTS_BINDING.into())));
    steps.extend(bound(names::DEAD_QUEUE.into(), kept(), names::DEAD, names::DEAD_KEY.into()));
    steps.extend(bound(names::DROPPED_QUEUE.into(), dropped(), names::DROPPED_EXCHANGE, String::new()));
    steps
}

/// A classic queue belongs to one node, and nothing can declare or use it while that node is down. So replies that are kept for long are
/// replicated, and so are those of a client of several nodes, which outlives each. Other clients have the faster classic queue.
fn reply_queue(client: &ClientName, options: &Options) -> Vec<Step> {
    let arguments = match options.reply_queue {
        ReplyQueue::Brief => {
            let expires = [("x-expires", AMQPValue::LongUInt(names::REPLY_QUEUE_EXPIRES_MS))];
            if options.urls.is_cluster() { quorum(expires) } else { table(expires) }
        }
        ReplyQueue::Kept(time) => {
            let ms = AMQPValue::LongUInt(u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
            quorum([
                ("x-expires", ms.clone()),
                // While its client is connected the queue does not expire, so replies that its program never takes must.
                ("x-message-ttl", ms),
                ("x-single-active-consumer", AMQPValue::Boolean(true)),
                // Each connection of the client takes and requeues the replies that its program does not ask for.
                ("x-delivery-limit", AMQPValue::LongInt(LOOKS_MAX)),
            ])
        }
    };
    bound(names::reply_queue(client), arguments, names::REPLIES, client.to_string()).into()
}

fn exchange(
    name: &'static str,
    kind: ExchangeKind,
    arguments: impl IntoIterator<Item = (&'static str, AMQPValue)>,
) -> Step {
    Step { what: format!("exchange {name}"), action: Action::Exchange { name, kind, arguments: table(arguments) } }
}

fn bound(name: String, arguments: FieldTable, exchange: &'static str, key: String) -> [Step; 2] {
    [queue(name.clone(), arguments), bind(name, exchange, key)]
}

fn queue(name: String, arguments: FieldTable) -> Step {
    Step { what: format!("queue {name}"), action: Action::Queue { name, arguments } }
}

fn bind(queue: String, exchange: &'static str, key: String) -> Step {
    Step { what: format!("queue {queue}"), action: Action::Bind { queue, exchange, key } }
}

fn unbind(queue: String, exchange: &'static str) -> Step {
    Step { what: format!("queue {queue}"), action: Action::Unbind { queue, exchange } }
}

fn dead_letters() -> [(&'static str, AMQPValue); 2] {
    [("x-dead-letter-exchange", text(names::DEAD)), ("x-dead-letter-routing-key", text(names::DEAD_KEY))]
}

/// Deliveries after which the broker dead-letters an unsettled message, such as one that crashes its worker. It is the
/// default of RabbitMQ 4; 3.x has none.
const DELIVERY_LIMIT: i32 = 20;

/// A quorum queue that dead-letters at least once, so no message is lost. That strategy requires reject-publish and a quorum queue.
fn quorum_that_buries(more: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
    let arguments = [
        ("x-delivery-limit", AMQPValue::LongInt(DELIVERY_LIMIT)),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-strategy", text("at-least-once")),
    ];
    quorum(dead_letters().into_iter().chain(arguments).chain(more))
}

fn quorum(arguments: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
    table([("x-queue-type", text("quorum"))].into_iter().chain(arguments))
}

/// Delivery limit of queues whose messages are listed. Listing dead-lettered jobs or unread replies delivers and requeues them; RabbitMQ 4
/// counts these deliveries and would drop a job at its default limit.
const LOOKS_MAX: i32 = i32::MAX;

fn kept() -> FieldTable {
    quorum([("x-delivery-limit", AMQPValue::LongInt(LOOKS_MAX))])
}

/// Holds messages for a time and then returns them to the exchange of tasks, under their original routing key.
fn delaying(seconds: u32) -> FieldTable {
    quorum([
        ("x-message-ttl", AMQPValue::LongUInt(seconds * 1000)),
        ("x-dead-letter-exchange", text(names::TASKS)),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-strategy", text("at-least-once")),
    ])
}

/// A queue that drops its oldest message when full, so that it never delays a publisher. The recorder counts dropped messages.
fn unclaimed() -> FieldTable {
    quorum([
        ("x-message-ttl", AMQPValue::LongUInt(names::UNCLAIMED_TTL_MS)),
        ("x-max-length-bytes", AMQPValue::LongUInt(names::UNCLAIMED_BYTES_MAX)),
        ("x-overflow", text("drop-head")),
        ("x-dead-letter-exchange", text(names::DROPPED_EXCHANGE)),
    ])
}

fn dropped() -> FieldTable {
    quorum([("x-max-length-bytes", AMQPValue::LongUInt(names::DROPPED_BYTES_MAX)), ("x-overflow", text("drop-head"))])
}

/// A stream, from which every reader gets every message.
fn log() -> FieldTable {
    table([
        ("x-queue-type", text("stream")),
        ("x-max-age", text(names::CONTROL_MAX_AGE)),
        ("x-max-length-bytes", AMQPValue::LongLongInt(names::CONTROL_BYTES_MAX.into())),
        ("x-stream-max-segment-size-bytes", AMQPValue::LongLongInt(names::CONTROL_SEGMENT_BYTES.into())),
    ])
}

fn table(arguments: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert(name.into(), value);
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_every_declared_queue_leads_to_its_declaration() {
        let all = [
            Declaration::Base,
            Declaration::Ledger,
            Declaration::Pool("team-a".parse().unwrap()),
            Declaration::AffinitySlots("team-a".parse().unwrap()),
            Declaration::Replies("anna_1".parse().unwrap()),
            Declaration::Forwarded("team-a".parse().unwrap(), "0123456789abcdef".parse().unwrap()),
        ];
        let options = Options::new("amqp://broker".parse().unwrap(), "a test");
        for declaration in all {
            let steps = declaration.steps(&options);
            let queues: Vec<_> = steps
                .iter()
                .filter_map(|step| match &step.action {
                    Action::Queue { name, .. } => Some(name),
                    _ => None,
                })
                .collect();
            assert!(!queues.is_empty());
            for queue in queues {
                let made_again_by = Declaration::of_queue(queue).unwrap();
                // Workers declare the recorder's queues, and the recorder declares them again.
                assert!([&declaration, &Declaration::Ledger].contains(&&made_again_by), "{queue}: {made_again_by:?}");
                let alone = declaration.steps_for(queue, &options);
                let made = |step: &&Step| matches!(&step.action, Action::Queue { .. });
                let made: Vec<_> = alone.iter().filter(made).map(|step| step.action.queue()).collect();
                let others = made.iter().flatten().filter(|made| **made != queue);
                assert!(made.contains(&Some(queue.as_str())));
                assert!(others.copied().all(|other| !declaration.has_subscriber(other)), "{made:?}");
            }
        }
        assert_eq!(Declaration::of_queue("someone.elses"), None);
        assert_eq!(Declaration::of_queue("gpufleet.v1.tasks.nonsense"), None);
    }
}
