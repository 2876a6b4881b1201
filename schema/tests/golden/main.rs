//! Examples of every kind of body, which are kept for ever. Programs in other languages test against the same files.
//!
//! Each example must decode to the value in this file. `GPUFLEET_GOLDEN=write` adds the files of new examples; a file
//! that exists is never rewritten, because released producers send such messages.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod events;
mod replies;
mod tasks;

use std::{collections::BTreeMap, fs, path::PathBuf};

use gpufleet_schema::{
    Announcement, Arg, Command, Count, Data, DeviceClass, Dtype, Encoding, Grid, Inline, JobId, Number, OneOrMany,
    Order, Printed, Progress, Reply, Selection, Stage, Task, encoding,
};

use crate::{
    events::{
        events, events_action, events_blobs, events_devices, events_kept, events_printf, events_ran_on, events_session,
        events_session_progress, events_started_ms, events_takes_programs, events_takes_sessions, events_traceparent,
        events_user, events_weights,
    },
    replies::{blob_reply, failed, host_reply, printed_reply, succeeded, unreadable},
    tasks::{
        blake3_task, blob_task, catalog_task, container_task, host_task, kept_task, launches_task, ptx_task,
        session_task, sharing_task, signed_task, source_task, traced_task,
    },
};

fn id(last: u8) -> JobId {
    format!("0190a5b8-7c00-7000-8000-0000000000{last:02x}").parse().unwrap()
}

fn file(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(format!("{name}.{extension}"))
}

/// The bytes of a golden file. `GPUFLEET_GOLDEN=write` creates a missing file.
fn golden(name: &str, extension: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = file(name, extension);
    if !path.exists() && std::env::var("GPUFLEET_GOLDEN").as_deref() == Ok("write") {
        fs::write(&path, make()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; GPUFLEET_GOLDEN=write adds it", path.display()))
}

fn check_tasks(name: &str, tasks: &OneOrMany<Task<'static>>) {
    for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
        let body = golden(name, extension, || match encoding {
            // One field on each line, for people.
            Encoding::Json => serde_json::to_vec_pretty(tasks).unwrap(),
            Encoding::MessagePack => encoding.encode_tasks(tasks).unwrap(),
        });
        let decoded = encoding.decode_tasks(&body).unwrap();
        assert_eq!(&decoded, tasks, "{name}.{extension}");
        for task in decoded.iter() {
            task.check().unwrap();
        }
    }
}

fn check_replies(name: &str, replies: &OneOrMany<Reply<'static>>) {
    for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
        let body = golden(name, extension, || match encoding {
            Encoding::Json => serde_json::to_vec_pretty(replies).unwrap(),
            Encoding::MessagePack => encoding.encode_replies(replies).unwrap(),
        });
        assert_eq!(&encoding.decode_replies(&body).unwrap(), replies, "{name}.{extension}");
    }
}

#[test]
fn golden_tasks_of_version_1_decode_to_their_values() {
    check_tasks("task-catalog", &OneOrMany::One(catalog_task()));
    check_tasks("task-source", &OneOrMany::One(source_task()));
    check_tasks("task-ptx", &OneOrMany::One(ptx_task()));
    check_tasks("task-signed", &OneOrMany::One(signed_task()));
    check_tasks("task-blob", &OneOrMany::One(blob_task()));
    check_tasks("task-blake3", &OneOrMany::One(blake3_task()));
    check_tasks("task-keep", &OneOrMany::One(kept_task()));
    check_tasks("task-session", &OneOrMany::One(session_task()));
    check_tasks("task-host", &OneOrMany::One(host_task()));
    check_tasks("task-image", &OneOrMany::One(container_task()));
    check_tasks("task-share", &OneOrMany::One(sharing_task()));
    check_tasks("task-traceparent", &OneOrMany::One(traced_task()));
    check_tasks("task-launches", &OneOrMany::One(launches_task()));
    check_tasks("task-list", &OneOrMany::Many(vec![catalog_task(), ptx_task()]));
}

/// An old reader has [`Grid`] alone, without clusters and cooperative launches.
#[test]
fn an_old_reader_refuses_clusters_and_does_not_ignore_them() {
    for more in [r#""cluster": [2]"#, r#""cooperative": true"#] {
        let whole: serde_json::Value = serde_json::from_str(&format!(r#"{{"blocks": [8], {more}}}"#)).unwrap();
        assert!(serde_json::from_value::<Grid>(whole.clone()).is_err(), "{whole}");
        let packed = rmp_serde::to_vec_named(&whole).unwrap();
        assert!(rmp_serde::from_slice::<Grid>(&packed).is_err(), "{whole}");
    }
    assert_eq!(serde_json::from_str::<Grid>(r#"{"blocks": [8]}"#).unwrap(), Grid::Blocks(vec![8]));
}

#[test]
fn golden_replies_of_version_1_decode_to_their_values() {
    check_replies("reply-succeeded", &OneOrMany::One(succeeded()));
    check_replies("reply-failed", &OneOrMany::One(failed()));
    check_replies("reply-blob", &OneOrMany::One(blob_reply()));
    check_replies("reply-printf", &OneOrMany::One(printed_reply()));
    check_replies("reply-host", &OneOrMany::One(host_reply()));
    check_replies("reply-unreadable", &OneOrMany::One(unreadable()));
    check_replies("reply-list", &OneOrMany::Many(vec![succeeded(), failed()]));
}

#[test]
fn a_golden_message_of_progress_decodes_to_its_value() {
    let progress = Progress {
        version: 1,
        job_id: id(1),
        attempt: 2,
        sequence: 7,
        at_ms: 1_720_000_009_123,
        started_ms: 1_720_000_001_123,
        stage: Stage::Running,
        launches: Some(Count { done: 312, total: 1000 }),
        counter: Some(Count { done: 6_240, total: 20_000 }),
        bytes: None,
        printed: Some(Printed { offset: 12, text: "epoch 3\n".to_owned() }),
        ran_on: None,
    };
    let body = golden("progress", "msgpack", || progress.encode());
    assert_eq!(Progress::decode(&body).unwrap(), progress);
}

/// The body with an id as 16 bytes in place of text, as most MessagePack libraries write a UUID.
fn with_binary_id(body: &[u8], id: JobId) -> Vec<u8> {
    let text = [&[0xd9, 36], id.to_string().as_bytes()].concat();
    let at = body.windows(text.len()).position(|window| window == text).expect("ids are written as text");
    [&body[..at], &[0xc4, 16], id.as_uuid().as_bytes(), &body[at + text.len()..]].concat()
}

#[test]
fn messagepack_ids_of_sixteen_bytes_are_read_like_text() {
    let task = OneOrMany::One(catalog_task());
    let encoded = || Encoding::MessagePack.encode_tasks(&task).unwrap();
    let body = golden("task-binary-id", "msgpack", || with_binary_id(&encoded(), id(1)));
    assert_eq!(Encoding::MessagePack.decode_tasks(&body).unwrap(), task);
    assert_eq!(Encoding::MessagePack.decode_heads(&body)[0].job_id, Some(id(1)));
    let reply = OneOrMany::One(succeeded());
    let encoded = || Encoding::MessagePack.encode_replies(&reply).unwrap();
    let body = golden("reply-binary-id", "msgpack", || with_binary_id(&encoded(), id(1)));
    assert_eq!(Encoding::MessagePack.decode_replies(&body).unwrap(), reply);
}

#[test]
fn golden_events_of_version_1_decode_to_their_values() {
    for (name, events) in [
        ("events", events()),
        ("events-ran-on", events_ran_on()),
        ("events-user", events_user()),
        ("events-devices", events_devices()),
        ("events-printf", events_printf()),
        ("events-started-ms", events_started_ms()),
        ("events-kept", events_kept()),
        ("events-blobs", events_blobs()),
        ("events-weights", events_weights()),
        ("events-traceparent", events_traceparent()),
        ("events-session", events_session()),
        ("events-session-progress", events_session_progress()),
        ("events-takes-sessions", events_takes_sessions()),
        ("events-takes-programs", events_takes_programs()),
        ("events-action", events_action()),
    ] {
        let body = golden(name, "msgpack", || encoding::encode_events(&events).unwrap());
        assert_eq!(encoding::decode_events(&body).unwrap(), events, "{name}");
    }
}

#[test]
fn a_task_by_hand_may_have_numbers_and_leave_out_defaults() {
    let body = golden("task-by-hand", "json", || panic!("this one is written by hand"));
    let batch = Encoding::Json.decode_tasks(&body).unwrap();
    let task = &batch.as_slice()[0];
    task.check().unwrap();
    let Data::Inline(numbers) = &task.buffers[0].data else { panic!("{:?}", task.buffers[0]) };
    assert_eq!(numbers, &Inline::from(vec![Number::Signed(1), Number::Float(2.5), Number::Signed(-3)]));
    let bytes: Vec<u8> = [1.0_f32, 2.5, -3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(*numbers.resolve(Dtype::F32).unwrap(), *bytes);
    assert_eq!(task.buffers[1].data, Data::Zeros);
    let Arg::Scalar(Dtype::F32, special) = task.launches[0].args[2] else { panic!("{:?}", task.launches) };
    assert_eq!(special, Number::Float(f64::INFINITY));
}

fn announcement() -> Announcement {
    let small = DeviceClass::new("NVIDIA L4", [8, 9], 24 << 30, false);
    let large = DeviceClass::new("NVIDIA H200", [9, 0], 141 << 30, true);
    Announcement { pools: vec!["default".parse().unwrap(), "team-a".parse().unwrap()], classes: vec![small, large] }
}

#[test]
fn golden_orders_of_version_1_decode_to_their_values() {
    let labels = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
    let orders = [
        ("order-cancel", Command::Cancel(Selection { jobs: vec![id(1), id(2)], labels })),
        ("order-drain", Command::Drain { worker: "golden-worker".parse().unwrap() }),
        ("order-announce", Command::Announce(announcement())),
        ("order-mark", Command::Mark { id: "0190a5b8-7c00-7000-8000-0000000000ff".parse().unwrap() }),
    ];
    for (name, command) in orders {
        let order = Order::new(1_700_000_000_000, Some("anna@laptop".into()), command);
        let body = golden(name, "json", || encoding::encode_order(&order).unwrap());
        assert_eq!(encoding::decode_order(&body).unwrap(), order, "{name}");
    }
}
