//! Older readers accept what later releases of one version may add, as `docs/src/stability.md` promises.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, path::PathBuf};

use gpufleet_schema::{AttemptState, Encoding, Event, encoding};
use serde_json::{Value, json};

fn golden(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The same body with a field of a later release in the object at each of the paths.
fn with_later_fields(mut body: Value, paths: &[&str]) -> Value {
    for path in paths {
        let object =
            body.pointer_mut(path).and_then(Value::as_object_mut).unwrap_or_else(|| panic!("no object {path}"));
        object.insert("of_a_later_release".to_owned(), json!({ "a": [1, "b", null] }));
    }
    body
}

fn bytes(body: &Value, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => serde_json::to_vec(body).unwrap(),
        Encoding::MessagePack => rmp_serde::to_vec_named(body).unwrap(),
    }
}

#[test]
fn a_field_of_a_later_release_is_ignored_in_a_task() {
    let body = golden("task-source.json");
    let later =
        with_later_fields(body.clone(), &["", "/program/source", "/buffers/0", "/launches/0", "/limits", "/requires"]);
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        let (old, new) = (bytes(&body, encoding), bytes(&later, encoding));
        assert_eq!(encoding.decode_tasks(&new).unwrap(), encoding.decode_tasks(&old).unwrap());
    }
}

#[test]
fn a_trace_context_that_cannot_be_read_is_ignored() {
    let body = golden("task-traceparent.json");
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        let read = |text: &str| {
            let mut body = body.clone();
            body["traceparent"] = text.into();
            let encoded = bytes(&body, encoding);
            encoding.decode_tasks(&encoded).unwrap().as_slice()[0].traceparent
        };
        assert!(read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").is_some());
        assert_eq!([read(""), read("of a later release")], [None, None]);
    }
}

#[test]
fn a_field_of_a_later_release_is_refused_in_a_grid() {
    let later = with_later_fields(golden("task-source.json"), &["/launches/0/grid"]);
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        let refused = encoding.decode_tasks(&bytes(&later, encoding)).unwrap_err().to_string();
        assert!(refused.contains("of_a_later_release"), "{refused}");
    }
}

#[test]
fn a_field_of_a_later_release_is_ignored_in_a_reply() {
    let cases =
        [("reply-succeeded.json", &["", "/outputs/0", "/timings", "/ran_on"][..]), ("reply-failed.json", &[""])];
    for (name, paths) in cases {
        let body = golden(name);
        let later = with_later_fields(body.clone(), paths);
        for encoding in [Encoding::Json, Encoding::MessagePack] {
            let (old, new) = (bytes(&body, encoding), bytes(&later, encoding));
            assert_eq!(encoding.decode_replies(&new).unwrap(), encoding.decode_replies(&old).unwrap(), "{name}");
        }
    }
}

#[test]
fn a_field_of_a_later_release_is_ignored_in_an_order() {
    let body = golden("order-cancel.json");
    let later = with_later_fields(body.clone(), &["", "/command/cancel"]);
    let decode = |body: &Value| encoding::decode_order(&bytes(body, Encoding::Json)).unwrap();
    assert_eq!(decode(&later), decode(&body));
}

/// A body of a made-up next release, which has every kind of addition.
fn next_release(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/next").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_reply_of_the_next_release_is_read_with_its_words() {
    let body = next_release("reply.json");
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        let replies = bytes(&body, encoding);
        let replies = encoding.decode_replies(&replies).unwrap();
        let reply = &replies.as_slice()[0];
        assert_eq!(reply.state, AttemptState::of("preempted"));
        let failure = reply.failure.as_ref().unwrap();
        assert_eq!((failure.verdict.name(), failure.code.name()), ("neighbour", "device_preempted"));
        assert_eq!(failure.detail.as_deref(), Some("pid 7 took the device\nadvice: submit it again\nsince_ms: 12"));
        assert_eq!(replies, encoding.decode_replies(&encoding.encode_replies(&replies).unwrap()).unwrap());
    }
}

#[test]
fn events_of_the_next_release_are_read_with_their_words() {
    let body = bytes(&next_release("events.json"), Encoding::MessagePack);
    let events = encoding::decode_events(&body).unwrap();
    let [Event::Later(lease), Event::AttemptFinished(finished), Event::WorkerSeen(seen), Event::Later(pause)] =
        events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert_eq!((lease.kind.as_str(), pause.kind.as_str()), ("job_leased", "fleet_paused"));
    assert_eq!(lease.text(200), r#"{"job_leased":{"at_ms":1720000000125,"to":{"worker":"w1"}}}"#);
    assert_eq!((finished.state.name(), finished.state.job_state().is_final()), ("preempted", true));
    assert_eq!(finished.failure.as_ref().unwrap().code.name(), "device_preempted");
    assert_eq!(seen.devices[0].utilization_by.unwrap().name(), "cupti");
}
