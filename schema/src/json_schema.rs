//! The wire types as JSON Schema (draft 2020-12), for producers in other languages and for tools.
//!
//! Most schemas are derived from the types. The schemas of types that have more than one form are written here, and
//! `gpufleet-docs` tests all schemas against the golden files. A schema describes what a reader accepts: it allows
//! fields of later minor versions, and fields with a default may be missing.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema, transform::Transform};
use serde_json::{Map, Value};

use crate::{
    ActionId, Arg, BlobDigest, ClassKey, ClientName, Dtype, Event, Inline, JobId, MessageId, Number, Order, OutputData,
    PoolName, Progress, Reply, Task, TraceContext, WorkerName,
    bounds::{ARGUMENT_ALIGN_MAX, NAME_BYTES_MAX, TASKS_PER_MESSAGE_MAX},
};

/// The body of a task message: a task, or a list of tasks.
pub fn task() -> Schema {
    one_or_many::<Task<'_>>(
        "gpufleet task",
        "The body of a message to the tasks exchange: one task, or a list of tasks.",
    )
}

/// The body of a reply message, which has the form of the task message that it answers.
pub fn reply() -> Schema {
    one_or_many::<Reply<'_>>(
        "gpufleet reply",
        "The body of a reply: one reply, or a list with one for each task of the list.",
    )
}

/// The body of an event message. On the wire it is MessagePack.
pub fn events() -> Schema {
    document(
        "gpufleet event batch",
        "The body of an event message: a list of events, always in MessagePack.",
        |generator| {
            let event = generator.subschema_for::<Event>();
            json_schema!({ "type": "array", "items": event })
        },
    )
}

/// The body of an order message, which is always JSON.
pub fn order() -> Schema {
    document("gpufleet order", "The body of an order to the workers, always in JSON.", |generator| {
        let order = generator.subschema_for::<Order>();
        json_schema!({ "allOf": [order] })
    })
}

/// The body of a message about a running job. On the wire it is MessagePack.
pub fn progress() -> Schema {
    document("gpufleet progress", "The body of a message about a running job, always in MessagePack.", |generator| {
        let progress = generator.subschema_for::<Progress>();
        json_schema!({ "allOf": [progress] })
    })
}

fn one_or_many<T: JsonSchema>(title: &str, description: &str) -> Schema {
    document(title, description, |generator| {
        let item = generator.subschema_for::<T>();
        json_schema!({
            "if": { "type": "array" },
            "then": { "type": "array", "items": item, "maxItems": TASKS_PER_MESSAGE_MAX },
            "else": item,
        })
    })
}

fn document(title: &str, description: &str, body: impl FnOnce(&mut SchemaGenerator) -> Schema) -> Schema {
    let mut generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut body = body(&mut generator).to_value();
    let mut document = Map::new();
    document.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("title".to_owned(), title.into());
    document.insert("description".to_owned(), description.into());
    document.append(body.as_object_mut().expect("bodies are objects"));
    document.insert("$defs".to_owned(), Value::Object(generator.take_definitions(true)));
    let mut schema = Schema::from(document);
    Plain.transform(&mut schema);
    schema
}

/// Turns rustdoc's links in descriptions into plain text, and joins their lines.
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = plain(text);
        }
        schemars::transform::transform_subschemas(self, schema);
    }
}

/// Without the link targets: ``[`a`](b)`` and ``[`a`]`` become `` `a` ``.
fn plain(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
        out.extend(["`", name, "`", rest]);
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Implements the trait for a type whose serde code is written by hand.
macro_rules! described {
    ($($type:ty, $name:literal: |$generator:ident| $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

described! {
    JobId, "JobId": |_generator| uuid("Names one job permanently. The producer chooses it; UUID version 7 sorts by time.");
    ActionId, "ActionId": |_generator| uuid("Names one action of a person.");
    MessageId, "MessageId": |_generator| uuid("Names one message on the broker.");
    PoolName, "PoolName": |_generator| name("The name of a pool.");
    ClientName, "ClientName": |_generator| name("A producer's name on the replies exchange.");
    WorkerName, "WorkerName": |_generator| name("A worker's name.");
    BlobDigest, "BlobDigest": |_generator| json_schema!({
        "description": "Names a blob by the BLAKE3 or SHA-256 of its bytes.",
        "type": "string",
        "pattern": "^(blake3|sha256):[0-9a-f]{64}$",
    });
    TraceContext, "TraceContext": |_generator| json_schema!({
        "description": "A span in W3C Trace Context's form. Readers ignore a text that they can't read.",
        "type": "string",
        "examples": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    });
    ClassKey, "ClassKey": |_generator| json_schema!({
        "description": "Names a device class.",
        "type": "string",
        "pattern": "^[0-9a-f]{16}$",
    });
    Number, "Number": |_generator| json_schema!({
        "description": "A number or a boolean. JSON has no word for the special floats, so they are strings. A string of digits is a number too.",
        "anyOf": [
            { "type": ["number", "boolean"] },
            { "enum": ["NaN", "Infinity", "-Infinity"] },
            { "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?$" },
        ],
    });
    Inline<'_>, "Inline": |generator| json_schema!({
        "description": "Little-endian elements as base64 (`bin` in MessagePack), or a list of numbers.",
        "anyOf": [
            { "type": "string", "contentEncoding": "base64" },
            { "type": "array", "items": generator.subschema_for::<Number>() },
        ],
    });
    OutputData<'_>, "OutputData": |generator| json_schema!({
        "description": "An output's bytes, or the name of a blob that has them.",
        "anyOf": [
            generator.subschema_for::<Inline<'_>>(),
            {
                "type": "object",
                "properties": { "blob": generator.subschema_for::<BlobDigest>() },
                "required": ["blob"],
            },
        ],
    });
    Arg, "Arg": |generator| arg(generator);
}

fn uuid(description: &str) -> Schema {
    json_schema!({
        "description": description,
        "type": "string",
        "format": "uuid",
        "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    })
}

fn name(description: &str) -> Schema {
    json_schema!({
        "description": description,
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]+$",
        "maxLength": NAME_BYTES_MAX,
    })
}

fn arg(generator: &mut SchemaGenerator) -> Schema {
    let number = generator.subschema_for::<Number>();
    let scalars: Map<String, Value> =
        Dtype::ALL.into_iter().map(|dtype| (dtype.name().to_owned(), number.clone().to_value())).collect();
    json_schema!({
        "description": "One kernel argument: a buffer, a scalar under the name of its dtype, a structure by value, or a progress counter.",
        "anyOf": [
            {
                "title": "Buffer",
                "type": "object",
                "properties": {
                    "buffer": { "description": "The name of a buffer, which passes its device address.", "type": "string" },
                    "offset": {
                        "description": "The element whose address is passed.",
                        "type": "integer",
                        "minimum": 0,
                        "default": 0,
                    },
                },
                "required": ["buffer"],
                "additionalProperties": false,
            },
            {
                "title": "Scalar",
                "type": "object",
                "properties": scalars,
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false,
            },
            {
                "title": "Structure",
                "type": "object",
                "properties": {
                    "bytes": generator.subschema_for::<Inline<'_>>(),
                    "align": {
                        "description": "The structure's alignment in bytes, a power of two.",
                        "type": "integer",
                        "minimum": 1,
                        "maximum": ARGUMENT_ALIGN_MAX,
                        "default": 1,
                    },
                },
                "required": ["bytes"],
                "additionalProperties": false,
            },
            {
                "title": "Progress",
                "type": "object",
                "properties": {
                    "progress": {
                        "description": "Passes the address of a 64-bit counter that the kernels increment. This is its value when all work is done.",
                        "type": "integer",
                        "minimum": 1,
                    },
                },
                "required": ["progress"],
                "additionalProperties": false,
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_rustdoc_become_plain_words() {
        assert_eq!(plain("cut to [`A`], see [`b`](crate::b)\nor `c`"), "cut to `A`, see `b` or `c`");
    }

    #[test]
    fn every_reference_within_a_schema_has_a_definition() {
        for schema in [task(), reply(), events(), order(), progress()] {
            let text = schema.as_value().to_string();
            let definitions = schema.get("$defs").unwrap().as_object().unwrap();
            for reference in text.split("\"#/$defs/").skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(definitions.contains_key(name), "{name}");
            }
        }
    }
}
