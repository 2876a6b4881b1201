//! No body makes decoding panic, and none makes it take more memory than a small multiple of its own size.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use gpufleet_schema::{Batch, DecodeError, Encoding, Task, bounds::TASKS_PER_MESSAGE_MAX, encoding};
use proptest::prelude::*;

/// Counts what the current thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.with(|held| {
        held.set(held.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What error texts and a handful of small fields may take, whatever the body.
const SLACK_BYTES: isize = 64 << 10;
/// A number of one byte in a list becomes a `Number` of 16, and a growing list has its old half beside it.
const FACTOR: isize = 64;

fn decode_everything(body: &[u8]) {
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let before = HELD.get();
        PEAK.set(before);
        if let Ok(tasks) = encoding.decode_tasks(body) {
            for task in tasks.iter() {
                let _ = task.check();
            }
        }
        if let Ok(replies) = encoding.decode_replies(body) {
            for output in replies.iter().flat_map(|reply| &reply.outputs) {
                let _ = output.check();
            }
        }
        let _ = encoding.decode_heads(body);
        let _ = encoding::decode_events(body);
        let taken = PEAK.get() - before;
        assert!(taken <= SLACK_BYTES + FACTOR * body.len() as isize, "{taken} bytes for a body of {}", body.len());
    }
}

fn golden_bodies() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1");
    std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_cut_of_every_golden_body_is_refused_or_read_without_harm() {
    for body in golden_bodies() {
        for end in 0..body.len() {
            decode_everything(&body[..end]);
        }
    }
}

#[test]
fn claimed_lengths_beyond_the_body_take_no_memory() {
    for marker in [0xdd, 0xdf, 0xc6, 0xdb, 0xc9] {
        for depth in 0..8 {
            let mut body = vec![0x91; depth];
            body.extend([marker, 0x7f, 0xff, 0xff, 0xff]);
            decode_everything(&body);
        }
    }
    decode_everything("[".repeat(100_000).as_bytes());
    decode_everything(&[0x91; 100_000]);
    decode_everything(r#"{"a":"#.repeat(100_000).as_bytes());
}

#[test]
fn a_body_of_another_version_is_named_as_such() {
    let json = br#"{"version": 7, "job_id": "0190a5b8-7c00-7000-8000-000000000001", "program": 3}"#;
    assert!(matches!(Encoding::Json.decode_tasks(json), Err(DecodeError::UnsupportedVersion { found: 7 })));
    let heads = Encoding::Json.decode_heads(json);
    assert_eq!(heads[0].job_id.unwrap().to_string(), "0190a5b8-7c00-7000-8000-000000000001");
    let packed = rmp_serde::to_vec_named(&serde_json::from_slice::<serde_json::Value>(json).unwrap()).unwrap();
    assert!(matches!(Encoding::MessagePack.decode_tasks(&packed), Err(DecodeError::UnsupportedVersion { found: 7 })));
}

#[test]
fn of_a_list_of_millions_only_so_many_heads_are_kept_as_a_message_may_carry() {
    let mut body = vec![0xdd];
    body.extend(1_000_000_u32.to_be_bytes());
    body.resize(body.len() + 1_000_000, 0x80);
    assert_eq!(Encoding::MessagePack.decode_heads(&body).len(), TASKS_PER_MESSAGE_MAX);
}

#[test]
fn whom_to_answer_is_read_from_any_version_and_what_names_nobody_hides_nothing() {
    let id = "0190a5b8-7c00-7000-8000-000000000001";
    let reply = |value: &str| {
        let json = format!(r#"[{{"version": 7, "reply": {value}, "job_id": "{id}"}}]"#);
        let packed = rmp_serde::to_vec_named(&serde_json::from_str::<serde_json::Value>(&json).unwrap()).unwrap();
        let bodies = [(Encoding::Json, json.into_bytes()), (Encoding::MessagePack, packed)];
        let clients = bodies.map(|(encoding, body)| {
            let heads = encoding.decode_heads(&body);
            assert_eq!(heads[0].job_id.unwrap().to_string(), id, "{value}");
            heads[0].reply.as_ref().map(ToString::to_string)
        });
        assert_eq!(clients[0], clients[1]);
        clients.into_iter().next().unwrap()
    };
    assert_eq!(reply(r#""anna""#).as_deref(), Some("anna"));
    for nobody in ["null", "true", "5", "-5", "0.5", r#""a b/c""#, r#"["anna", [1]]"#, r#"{"anna": {"b": 1}}"#] {
        assert_eq!(reply(nobody), None, "{nobody}");
    }
}

#[test]
fn inline_bytes_are_borrowed_from_the_body() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/task-catalog.msgpack");
    let body = std::fs::read(path).unwrap();
    let Batch::One(task) = Encoding::MessagePack.decode_tasks(&body).unwrap() else { panic!("one task") };
    let gpufleet_schema::Data::Inline(gpufleet_schema::Inline::Bytes(bytes)) = &task.buffers[0].data else {
        panic!("{:?}", task.buffers[0])
    };
    assert!(body.as_ptr_range().contains(&bytes.as_ptr()), "copied");
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_read_without_harm(body in prop::collection::vec(any::<u8>(), 0..512)) {
        decode_everything(&body);
    }

    #[test]
    fn golden_bodies_with_flipped_bytes_are_refused_or_read_without_harm(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let bodies = golden_bodies();
        let mut body = bodies[which.index(bodies.len())].clone();
        for (at, value) in flips {
            let at = at.index(body.len());
            body[at] = value;
        }
        decode_everything(&body);
    }
}

#[test]
fn a_task_survives_being_made_owned() {
    for body in golden_bodies() {
        if let Ok(Batch::One(task)) = Encoding::MessagePack.decode_tasks(&body) {
            let owned: Task<'static> = task.clone().into_owned();
            assert_eq!(owned, task);
        }
    }
}
