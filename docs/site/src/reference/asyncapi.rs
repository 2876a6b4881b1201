//! `asyncapi.json`: exchanges, queues and messages as an AsyncAPI 3.0 document, from the names of the contract.
//!
//! A channel is an exchange with its routing keys, or a queue. The operations are those of a producer. What passes between gpufleet's own
//! programs has channels and no operations.

use gpufleet_schema::{VERSION, bounds::MESSAGE_BYTES_MAX, topology as names};
use serde_json::{Map, Value, json};

mod channels;
mod messages;

/// The version of the AMQP bindings.
const BINDING: &str = "0.3.0";

pub fn document() -> String {
    let document = json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "gpufleet",
            "version": format!("{VERSION}.0.0"),
            "description": description(),
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "defaultContentType": "application/json",
        "servers": {
            "broker": {
                "host": "localhost:5672",
                "protocol": "amqp",
                "protocolVersion": "0.9.1",
                "description": "RabbitMQ. `amqps` on port 5671 for TLS.",
            },
        },
        "channels": channels::all(),
        "operations": operations(),
        "components": { "messages": messages::all() },
    });
    format!("{document:#}\n")
}

fn description() -> String {
    format!(
        "CUDA kernel jobs through RabbitMQ. A producer publishes tasks and receives one reply for each. Bodies are JSON or MessagePack \
         and at most {} MiB long. `x-amqp-properties` lists the AMQP properties of a message, for which the AMQP bindings have no place.",
        MESSAGE_BYTES_MAX >> 20
    )
}

fn operations() -> Value {
    let persistent = json!({ "amqp": { "deliveryMode": 2, "mandatory": true, "bindingVersion": BINDING } });
    json!({
        "sendTask": {
            "action": "send",
            "channel": reference("tasks"),
            "summary": "Submit a job, or a list of jobs.",
            "description": "A job counts as submitted once the broker has confirmed the message and has not returned it.",
            "messages": [message("tasks", "task"), message("tasks", "taskMessagePack")],
            "reply": {
                "channel": reference("replyQueue"),
                "messages": [message("replyQueue", "reply"), message("replyQueue", "replyMessagePack")],
            },
            "bindings": persistent,
        },
        "receiveReply": {
            "action": "receive",
            "channel": reference("replyQueue"),
            "summary": "Receive the outcome of each job.",
            "description": "Acknowledge each reply. It has the encoding and the `correlation_id` of the task's message.",
            "messages": [message("replyQueue", "reply"), message("replyQueue", "replyMessagePack")],
            "bindings": { "amqp": { "ack": true, "bindingVersion": BINDING } },
        },
        "cancelJobs": {
            "action": "send",
            "channel": reference("clientOrders"),
            "summary": "Cancel jobs of one's own, by ids or labels.",
            "description": "Workers honour the orders `cancel` of a client for jobs that the same broker user published.",
            "messages": [message("clientOrders", "order")],
            "bindings": persistent,
        },
        "sendSubmitted": {
            "action": "send",
            "channel": reference("clientEvents"),
            "summary": "Tell the ledger that a job was submitted.",
            "description": "Optional. Without it the ledger learns of the job from its worker.",
            "messages": [message("clientEvents", "events")],
            "bindings": persistent,
        },
        "receiveUnclaimedReply": {
            "action": "receive",
            "channel": reference("unclaimedReplies"),
            "summary": "Receive replies whose client had left.",
            "description": format!("The broker keeps them for {} hours.", names::UNCLAIMED_TTL_MS / 3_600_000),
            "messages": [message("unclaimedReplies", "reply"), message("unclaimedReplies", "replyMessagePack")],
            "bindings": { "amqp": { "ack": true, "bindingVersion": BINDING } },
        },
    })
}

fn reference(channel: &str) -> Value {
    json!({ "$ref": format!("#/channels/{channel}") })
}

fn message(channel: &str, message: &str) -> Value {
    json!({ "$ref": format!("#/channels/{channel}/messages/{message}") })
}

/// Entries that come in pairs as an object.
fn object(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(entries.into_iter().collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests;
