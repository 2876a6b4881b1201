use std::{collections::BTreeSet, fs, path::PathBuf};

use gpufleet_schema::{Encoding, Progress, encoding};
use jsonschema::Validator;
use serde_json::{Value, json};

use super::*;
use crate::reference::tests::root;

fn validator(file: &str) -> Validator {
    let (_, text) = files().into_iter().find(|(name, _)| *name == file).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("{file}: {error}"));
    jsonschema::draft202012::new(&schema).unwrap()
}

fn golden_files(extension: &str) -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("schema/golden/v1")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
}

fn golden(name: &str) -> Value {
    let text = fs::read_to_string(root().join("schema/golden/v1").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn kind(path: &std::path::Path) -> &str {
    path.file_name().unwrap().to_str().unwrap().split(['-', '.']).next().unwrap()
}

#[test]
fn every_golden_json_file_is_valid() {
    let mut kinds = BTreeSet::new();
    for path in golden_files("json") {
        let validator = validator(&format!("{}.schema.json", kind(&path)));
        let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if let Err(error) = validator.validate(&value) {
            panic!("{}: {error} at {}", path.display(), error.instance_path());
        }
        kinds.insert(kind(&path).to_owned());
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["order", "reply", "task"]);
}

#[test]
fn every_golden_messagepack_file_is_valid_once_it_is_json() {
    let (mut checked, tasks, replies, events) =
        (0, validator("task.schema.json"), validator("reply.schema.json"), validator("event.schema.json"));
    let progress = validator("progress.schema.json");
    for path in golden_files("msgpack") {
        let body = fs::read(&path).unwrap();
        let (validator, value) = match kind(&path) {
            "task" => (&tasks, serde_json::to_value(Encoding::MessagePack.decode_tasks(&body).unwrap())),
            "reply" => (&replies, serde_json::to_value(Encoding::MessagePack.decode_replies(&body).unwrap())),
            "progress" => (&progress, serde_json::to_value(Progress::decode(&body).unwrap())),
            _ => (&events, serde_json::to_value(encoding::decode_events(&body).unwrap())),
        };
        let value = value.unwrap();
        assert!(validator.is_valid(&value), "{}: {:?}", path.display(), validator.validate(&value));
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
}

/// A change that no reader of the contract accepts either.
fn broken(mut value: Value, pointer: &str, change: Option<Value>) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match (change, parent) {
        (Some(changed), Value::Object(fields)) => drop(fields.insert(field.to_owned(), changed)),
        (None, Value::Object(fields)) => drop(fields.remove(field).expect(pointer)),
        (Some(changed), Value::Array(items)) => items[field.parse::<usize>().unwrap()] = changed,
        (None, other) => panic!("{pointer}: {other}"),
        (_, other) => panic!("{pointer}: {other}"),
    }
    value
}

#[test]
fn broken_tasks_are_rejected_by_the_schema_and_by_the_reader() {
    let validator = validator("task.schema.json");
    let broken_tasks = [
        ("task-source.json", "/version", Some(json!("1"))),
        ("task-source.json", "/version", Some(json!(2))),
        ("task-source.json", "/job_id", None),
        ("task-source.json", "/job_id", Some(json!("no uuid"))),
        ("task-source.json", "/program", None),
        ("task-source.json", "/program/source/code", Some(json!(7))),
        ("task-source.json", "/program", Some(json!({ "fortran": "x" }))),
        ("task-source.json", "/buffers/0/dtype", Some(json!("float32"))),
        ("task-source.json", "/buffers/0/shape", None),
        ("task-source.json", "/buffers/0/shape/0", Some(json!(-1))),
        ("task-source.json", "/buffers/0/data", Some(json!({ "file": "x.npy" }))),
        ("task-source.json", "/buffers/0/data/fill", Some(json!("many"))),
        ("task-source.json", "/launches/0/entry", None),
        ("task-source.json", "/launches/0/grid/cover", None),
        ("task-source.json", "/launches/0/grid/blocks", Some(json!([1]))),
        ("task-source.json", "/launches/0/grid/spread", Some(json!(true))),
        ("task-source.json", "/launches/0/block/threads", Some(json!("all"))),
        ("task-source.json", "/launches/0/args/0", Some(json!({ "float": 1 }))),
        ("task-source.json", "/launches/0/args/0", Some(json!({ "u32": 1, "offset": 1 }))),
        ("task-source.json", "/limits/time_limit_ms", Some(json!("10s"))),
        ("task-source.json", "/requires/compute_capability_min", Some(json!([8]))),
        ("task-source.json", "/labels/team", Some(json!(1))),
        ("task-source.json", "/reply", Some(json!("a.b"))),
        ("task-blob.json", "/buffers/0/data/blob", Some(json!("blake3:12"))),
        ("task-blob.json", "/large_outputs", Some(json!("maybe"))),
        ("task-list.json", "/1/program", None),
    ];
    for (file, pointer, change) in broken_tasks {
        let task = broken(golden(file), pointer, change.clone());
        assert!(!validator.is_valid(&task), "{file} {pointer} {change:?} passes the schema");
        let body = task.to_string();
        assert!(Encoding::Json.decode_tasks(body.as_bytes()).is_err(), "{file} {pointer} {change:?} is read");
    }
}

#[test]
fn broken_replies_events_and_orders_are_rejected() {
    let (replies, orders) = (validator("reply.schema.json"), validator("order.schema.json"));
    let broken_replies = [
        ("reply-failed.json", "/state", Some(json!(7))),
        ("reply-failed.json", "/attempt", None),
        ("reply-failed.json", "/failure/code", Some(json!(["compile"]))),
        ("reply-failed.json", "/failure/verdict", None),
        ("reply-succeeded.json", "/outputs/0/data", Some(json!(true))),
        ("reply-succeeded.json", "/timings/total_us", Some(json!("5 s"))),
    ];
    for (file, pointer, change) in broken_replies {
        let reply = broken(golden(file), pointer, change);
        assert!(!replies.is_valid(&reply), "{file} {pointer}");
        assert!(Encoding::Json.decode_replies(reply.to_string().as_bytes()).is_err(), "{file} {pointer} is read");
    }
    let order = broken(golden("order-drain.json"), "/command/drain/worker", None);
    assert!(!orders.is_valid(&order) && encoding::decode_order(order.to_string().as_bytes()).is_err());
    let events = validator("event.schema.json");
    let body = fs::read(root().join("schema/golden/v1/events.msgpack")).unwrap();
    let good = serde_json::to_value(encoding::decode_events(&body).unwrap()).unwrap();
    assert!(events.is_valid(&good) && !events.is_valid(&good[0]), "always a list");
    let pointer = "/0/submitted/job/pool";
    assert!(!events.is_valid(&broken(good.clone(), pointer, None)));
    assert!(!events.is_valid(&broken(good, pointer, Some(json!("a.b")))));
}

#[test]
fn fields_of_a_later_minor_version_are_allowed() {
    let mut task = golden("task-catalog.json");
    task["tomorrow"] = json!(1);
    task["limits"]["tomorrow"] = json!([1]);
    assert!(validator("task.schema.json").is_valid(&task));
    assert!(Encoding::Json.decode_tasks(task.to_string().as_bytes()).is_ok());
}
