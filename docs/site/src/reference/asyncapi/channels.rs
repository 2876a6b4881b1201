//! The exchanges and queues.

use gpufleet_schema::topology::{self as names, Priority};
use serde_json::{Value, json};

use super::{BINDING, object};

/// The words that addresses contain.
const PARAMETERS: [(&str, &str); 4] = [
    ("pool", "The pool that runs the job: letters, digits, `-` and `_`."),
    ("client", "A name that no other producer uses: letters, digits, `-` and `_`."),
    (
        "slot",
        "A digit from 0 to 7: the last byte of the SHA-256 digest of the job's largest input from the blob store, modulo 8.",
    ),
    ("deviceClass", "16 hexadecimal digits that name a class of equal devices."),
];

const TASKS: &[&str] = &["task", "taskMessagePack"];
const REPLIES: &[&str] = &["reply", "replyMessagePack"];
const DEAD: &[&str] = &["deadLetter"];
const EVENTS: &[&str] = &["events"];
const ORDERS: &[&str] = &["order"];

pub fn all() -> Value {
    let mut all = producers();
    all.extend(workers());
    all.extend(retries());
    object(all)
}

/// What a producer in another language meets.
fn producers() -> Vec<(String, Value)> {
    let queue_of_pool = format!("{}.{{pool}}.{{priority}}", names::TASKS);
    let slot = "{pool}.{slot}.{priority}";
    let queue_of_slot = format!("{}.{slot}", names::TASKS);
    let queue_of_client = format!("{}.{{client}}", names::REPLIES);
    vec![
        exchange("tasks", names::TASKS, "topic", "{pool}.{priority}", TASKS, "Tasks on their way to a pool."),
        queue(
            "taskQueue",
            &queue_of_pool,
            TASKS,
            "Tasks of one pool and priority. The pool's workers declare and consume it.",
        ),
        exchange(
            "slotTasks",
            names::TASKS,
            "topic",
            slot,
            TASKS,
            "Tasks on their way to the worker that probably has their largest input. Optional for producers; only a pool whose workers offer \
             affinity has queues for them.",
        ),
        queue(
            "slotQueue",
            &queue_of_slot,
            TASKS,
            "Tasks of one pool, affinity slot and priority. All workers of the pool that offer affinity consume it, one of them first.",
        ),
        exchange("replies", names::REPLIES, "topic", "{client}", REPLIES, "Replies on their way to the client."),
        queue(
            "replyQueue",
            &queue_of_client,
            REPLIES,
            &format!(
                "Replies to one client, who declares it with `x-expires` = {} and binds it to `{}` with its name.",
                names::REPLY_QUEUE_EXPIRES_MS,
                names::REPLIES
            ),
        ),
        exchange("clientOrders", names::CONTROL_CLIENT, "fanout", "", ORDERS, "Cancellations of a client's own jobs."),
        exchange(
            "clientEvents",
            names::EVENTS_CLIENT,
            "topic",
            "submitted.{pool}",
            EVENTS,
            "Submissions that clients report. Operators also report actions, with the key `action`.",
        ),
        queue(
            "unclaimedReplies",
            names::UNCLAIMED_QUEUE,
            REPLIES,
            &format!("Replies whose client had left, for {} hours.", names::UNCLAIMED_TTL_MS / 3_600_000),
        ),
    ]
}

/// What passes between gpufleet's own programs.
fn workers() -> Vec<(String, Value)> {
    let forwarded = "{pool}.{deviceClass}.{priority}";
    let forwarded_queue = format!("{}.{forwarded}", names::FORWARDED);
    let of_days = format!("of the last {} days, as a stream that each worker reads.", names::CONTROL_MAX_AGE_DAYS);
    let orders = format!("Orders of operators and workers {of_days}");
    let cancellations = format!("Cancellations by clients {of_days}");
    vec![
        exchange(
            "forwarded",
            names::FORWARDED,
            "topic",
            forwarded,
            TASKS,
            "Jobs that workers forward to a device class.",
        ),
        queue(
            "forwardedQueue",
            &forwarded_queue,
            TASKS,
            "Jobs forwarded to the workers that have a device of the class.",
        ),
        exchange(
            "workerEvents",
            names::EVENTS_WORKER,
            "topic",
            names::EVENTS_KEY,
            EVENTS,
            "Starts, outcomes, heartbeats.",
        ),
        exchange(
            "operatorTasks",
            names::TASKS_OPERATOR,
            "topic",
            "{pool}.{priority}",
            TASKS,
            "Dead-lettered jobs that an operator submits again. The header `gpufleet-user` has their user.",
        ),
        queue("ledgerQueue", names::LEDGER_QUEUE, EVENTS, "Events that `gpufleet-ledger record` consumes."),
        exchange("operatorOrders", names::CONTROL_OPERATOR, "fanout", "", ORDERS, "Orders of operators."),
        exchange("workerOrders", names::CONTROL_WORKER, "fanout", "", ORDERS, "Marks and announcements of workers."),
        queue("orderStream", names::CONTROL_QUEUE, ORDERS, &orders),
        queue("cancellationStream", names::CANCELLATIONS_QUEUE, ORDERS, &cancellations),
        exchange(
            "unclaimed",
            names::UNCLAIMED_EXCHANGE,
            "fanout",
            "",
            REPLIES,
            "Replies that no queue of a client takes.",
        ),
        exchange(
            "dropped",
            names::DROPPED_EXCHANGE,
            "fanout",
            "",
            REPLIES,
            "Unclaimed replies that are too many or too old.",
        ),
        queue("droppedQueue", names::DROPPED_QUEUE, REPLIES, "Dropped replies, which the ledger counts."),
        exchange("dead", names::DEAD, "direct", names::DEAD_KEY, DEAD, "Dead-lettered messages."),
        queue("deadQueue", names::DEAD_QUEUE, DEAD, "Dead-lettered messages, kept for an operator (`gpufleet dead`)."),
    ]
}

/// Each queue has a fanout exchange of its own name in front.
fn retries() -> impl Iterator<Item = (String, Value)> {
    names::RETRY_LADDER.into_iter().map(|rung| {
        let about = format!("Jobs that wait {} s before they are tried again.", rung.seconds);
        queue(&format!("retryAfter{}s", rung.seconds), rung.name, TASKS, &about)
    })
}

fn exchange(channel: &str, name: &str, kind: &str, key: &str, messages: &[&str], about: &str) -> (String, Value) {
    let binding = json!({
        "is": "routingKey",
        "exchange": { "name": name, "type": kind, "durable": true, "autoDelete": false },
        "bindingVersion": BINDING,
    });
    (channel.to_owned(), entry(key, binding, messages, &format!("{about} Exchange `{name}`.")))
}

fn queue(channel: &str, name: &str, messages: &[&str], about: &str) -> (String, Value) {
    let binding = json!({
        "is": "queue",
        "queue": { "name": name, "durable": true, "exclusive": false, "autoDelete": false },
        "bindingVersion": BINDING,
    });
    (channel.to_owned(), entry(name, binding, messages, about))
}

fn entry(address: &str, binding: Value, messages: &[&str], about: &str) -> Value {
    let messages =
        messages.iter().map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/messages/{name}") })));
    let mut entry = json!({
        "address": address,
        "description": about,
        "messages": object(messages),
        "bindings": { "amqp": binding },
    });
    let parameters = parameters(address);
    if !parameters.is_empty() {
        entry["parameters"] = object(parameters);
    }
    entry
}

fn parameters(address: &str) -> Vec<(String, Value)> {
    let priority = json!({
        "description": "Which of the pool's queues takes the job.",
        "enum": Priority::ALL.map(Priority::name),
        "default": Priority::default().name(),
    });
    let described = PARAMETERS.map(|(name, about)| (name.to_owned(), json!({ "description": about })));
    let all = described.into_iter().chain([("priority".to_owned(), priority)]);
    all.filter(|(name, _)| address.contains(&format!("{{{name}}}"))).collect()
}
