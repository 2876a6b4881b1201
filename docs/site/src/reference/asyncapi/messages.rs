//! The messages: their bodies by JSON Schema, their properties and headers.

use gpufleet_schema::{Encoding, topology as names};
use serde_json::{Value, json};

use super::{BINDING, object};

/// Headers of a task message that workers publish again. A producer sets none of them.
const ON_TASKS: [(&str, &str, &str); 7] = [
    (names::HEADER_ATTEMPT, "integer", "The number of the next attempt, less the broker's own delivery count."),
    (names::HEADER_LOSSES, "integer", "Executors that the job has lost."),
    (names::HEADER_UNAVAILABLE, "integer", "How often the blob store was unavailable to the job."),
    (names::HEADER_DELIVERIES, "integer", "Deliveries that the broker did not count."),
    (names::HEADER_FORWARDS, "integer", "How often workers without a fitting device forwarded the job."),
    (names::HEADER_FORWARDING_WAITS, "integer", "How often the job waited for a worker with a fitting device."),
    (names::HEADER_USER, "string", "The broker user who first published the message, as a worker saw it."),
];

const ON_DEAD_LETTERS: [(&str, &str, &str); 3] = [
    (names::HEADER_REASON, "string", "Why the message was dead-lettered."),
    (names::HEADER_ORIGIN, "string", "The queue that it came from."),
    (names::HEADER_BODY_BYTES, "integer", "The length of the whole body, if only its beginning is kept."),
];

const TRACE: (&str, &str, &str) = (names::HEADER_TRACEPARENT, "string", "W3C trace context, which a producer may set.");

const REPLIES: (&str, &str, &str) = (
    names::HEADER_REPLIES,
    "string",
    "`lists` if the producer reads lists of replies: replies that are ready at the same time then share messages.",
);

const REPLY_TOKEN: (&str, &str, &str) =
    (names::HEADER_REPLY_TOKEN, "string", "A secret of the producer, which the replies carry back.");

pub fn all() -> Value {
    let (json, messagepack) = (Encoding::Json.content_type(), Encoding::MessagePack.content_type());
    object([
        message("task", "One task, or a list of tasks", json, names::TYPE_TASK, "task", &on_task()),
        message("taskMessagePack", "The same in MessagePack", messagepack, names::TYPE_TASK, "task", &on_task()),
        message("reply", "One reply, or a list of replies", json, names::TYPE_REPLY, "reply", &[REPLY_TOKEN]),
        message("replyMessagePack", "The same in MessagePack", messagepack, names::TYPE_REPLY, "reply", &[REPLY_TOKEN]),
        message("events", "A list of lifecycle events", messagepack, names::TYPE_EVENTS, "event", &[]),
        message("order", "An order to the workers", json, names::TYPE_ORDER, "order", &[]),
        dead_letter(),
    ])
}

fn on_task() -> Vec<(&'static str, &'static str, &'static str)> {
    ON_TASKS.into_iter().chain([REPLIES, REPLY_TOKEN, TRACE]).collect()
}

fn message(
    name: &str,
    summary: &str,
    content_type: &str,
    kind: &str,
    schema: &str,
    headers: &[(&str, &str, &str)],
) -> (String, Value) {
    let mut message = json!({
        "name": name,
        "summary": summary,
        "contentType": content_type,
        "payload": { "$ref": format!("./{schema}.schema.json") },
        "bindings": { "amqp": { "messageType": kind, "bindingVersion": BINDING } },
        "x-amqp-properties": properties(schema, content_type, kind),
    });
    if !headers.is_empty() {
        message["headers"] = schema_of(headers);
    }
    (name.to_owned(), message)
}

/// A dead letter has the body that it had before, which may be anything.
fn dead_letter() -> (String, Value) {
    let message = json!({
        "name": "deadLetter",
        "summary": "A message that could not be processed, with its body as it was",
        "headers": schema_of(&ON_DEAD_LETTERS),
    });
    ("deadLetter".to_owned(), message)
}

fn schema_of(headers: &[(&str, &str, &str)]) -> Value {
    let header =
        |(name, kind, about): &(&str, &str, &str)| ((*name).to_owned(), json!({ "type": kind, "description": about }));
    json!({ "type": "object", "properties": object(headers.iter().map(header)) })
}

fn properties(schema: &str, content_type: &str, kind: &str) -> Value {
    let mut properties = json!({ "content_type": content_type, "type": kind, "delivery_mode": 2 });
    match schema {
        "task" => {
            properties["reply_to"] = "the name of the reply queue, or none for no reply".into();
            properties["correlation_id"] = "up to 255 bytes, which the reply carries back".into();
        }
        "reply" => properties["correlation_id"] = "the task's `correlation_id`, or else its `message_id`".into(),
        _ => {}
    }
    properties
}
