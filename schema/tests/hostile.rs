//! No body makes decoding panic or take more memory than a small multiple of the body's size.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod allocation;

use gpufleet_schema::{
    BlobDigest, Data, DecodeError, Encoding, Inline, OneOrMany, OutputData, Task, bounds::TASKS_PER_MESSAGE_MAX,
    encoding,
};
use proptest::prelude::*;

use allocation::peak_of;

/// The memory for error texts and a few small fields.
const SLACK_BYTES: isize = 64 << 10;
/// Decoding takes at most three times the size of the body.
const FACTOR: isize = 3;

fn decode_everything(body: &[u8]) {
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let (taken, ()) = peak_of(|| {
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
        });
        assert!(taken <= SLACK_BYTES + FACTOR * body.len() as isize, "{taken} bytes for a body of {}", body.len());
    }
}

/// A JSON body in every encoding.
fn in_each_encoding(json: &str) -> [(Encoding, Vec<u8>); 2] {
    let packed = rmp_serde::to_vec_named(&serde_json::from_str::<serde_json::Value>(json).unwrap()).unwrap();
    [(Encoding::Json, json.as_bytes().to_vec()), (Encoding::MessagePack, packed)]
}

fn golden_bodies() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1");
    std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_prefix_of_every_golden_body_is_refused_or_read_without_harm() {
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
fn the_error_of_a_body_of_another_version_names_the_version() {
    let json = r#"{"version": 7, "job_id": "0190a5b8-7c00-7000-8000-000000000001", "program": 3}"#;
    for (encoding, body) in in_each_encoding(json) {
        assert!(matches!(encoding.decode_tasks(&body), Err(DecodeError::UnsupportedVersion { found: 7 })));
        let heads = encoding.decode_heads(&body);
        assert_eq!(heads[0].job_id.unwrap().to_string(), "0190a5b8-7c00-7000-8000-000000000001");
    }
}

#[test]
fn a_list_of_millions_yields_at_most_as_many_heads_as_a_message_may_have_tasks() {
    let mut body = vec![0xdd];
    body.extend(1_000_000_u32.to_be_bytes());
    body.resize(body.len() + 1_000_000, 0x80);
    assert_eq!(Encoding::MessagePack.decode_heads(&body).len(), TASKS_PER_MESSAGE_MAX);
}

#[test]
fn the_client_is_read_from_any_version_despite_invalid_fields() {
    let id = "0190a5b8-7c00-7000-8000-000000000001";
    let reply = |value: &str| {
        let json = format!(r#"[{{"version": 7, "reply": {value}, "job_id": "{id}"}}]"#);
        let clients = in_each_encoding(&json).map(|(encoding, body)| {
            let heads = encoding.decode_heads(&body);
            assert_eq!(heads[0].job_id.unwrap().to_string(), id, "{value}");
            heads[0].reply.as_ref().map(ToString::to_string)
        });
        assert_eq!(clients[0], clients[1]);
        clients.into_iter().next().unwrap()
    };
    assert_eq!(reply(r#""anna""#).as_deref(), Some("anna"));
    for no_client in ["null", "true", "5", "-5", "0.5", r#""a b/c""#, r#"["anna", [1]]"#, r#"{"anna": {"b": 1}}"#] {
        assert_eq!(reply(no_client), None, "{no_client}");
    }
}

#[test]
fn a_head_has_all_readable_fields_despite_invalid_ones() {
    let id = "0190a5b8-7c00-7000-8000-000000000001";
    for broken in ["null", "true", "-5", "0.5", r#""no UUID""#, "[1, [2]]", r#"{"a": {"b": 1}}"#] {
        let json = format!(r#"{{"version": 7, "job_id": {broken}, "reply": "anna"}}"#);
        for (encoding, body) in in_each_encoding(&json) {
            let heads = encoding.decode_heads(&body);
            assert_eq!((heads[0].version, heads[0].job_id), (Some(7), None), "{broken}");
            assert_eq!(heads[0].reply.as_ref().unwrap().as_str(), "anna");
        }
        let json = format!(r#"{{"version": {broken}, "job_id": "{id}"}}"#);
        for (encoding, body) in in_each_encoding(&json) {
            let heads = encoding.decode_heads(&body);
            assert_eq!((heads[0].version, heads[0].job_id), (None, Some(id.parse().unwrap())), "{broken}");
        }
    }
}

/// The decoded form of an output's `data` in every encoding.
fn output_data(data: &str) -> [Result<OutputData<'static>, String>; 2] {
    let id = "0190a5b8-7c00-7000-8000-000000000001";
    let output = format!(r#"{{"name": "y", "dtype": "u8", "shape": [3], "data": {data}}}"#);
    let json =
        format!(r#"{{"version": 1, "job_id": "{id}", "attempt": 1, "state": "succeeded", "outputs": [{output}]}}"#);
    in_each_encoding(&json).map(|(encoding, body)| match encoding.decode_replies(&body) {
        Ok(replies) => Ok(replies.as_slice()[0].clone().into_owned().outputs.remove(0).data),
        Err(error) => Err(error.to_string()),
    })
}

#[test]
fn an_output_is_bytes_or_a_map_with_a_blob_and_perhaps_other_keys() {
    let digest = BlobDigest::of(b"abc");
    let deep = format!("{}{}", "[".repeat(20), "]".repeat(20));
    for data in [
        format!(r#"{{"blob": "{digest}"}}"#),
        format!(r#"{{"bytes": 3, "blob": "{digest}"}}"#),
        format!(r#"{{"blob": "{digest}", "store": {{"blob": "sha256:00", "bytes": [1, null]}}, "": {deep}}}"#),
    ] {
        assert_eq!(output_data(&data), [Ok(OutputData::Blob(digest)), Ok(OutputData::Blob(digest))], "{data}");
    }
    let inline = || Ok(OutputData::Inline(Inline::from(b"abc".to_vec())));
    assert_eq!(output_data(r#""YWJj""#), [inline(), inline()]);
}

#[test]
fn the_error_of_an_output_without_a_blob_names_the_missing_field() {
    for data in ["{}", r#"{"inline": "YWJj"}"#, r#"{"Blob": 1, "blobs": []}"#] {
        for refusal in output_data(data) {
            let problem = refusal.unwrap_err();
            assert!(problem.contains("missing field `blob`"), "{data}: {problem}");
        }
    }
    for data in ["null", "true", "7"] {
        for refusal in output_data(data) {
            let problem = refusal.unwrap_err();
            assert!(problem.contains("or a blob name"), "{data}: {problem}");
        }
    }
}

/// Malformed digests in JSON.
fn malformed_digests() -> Vec<String> {
    let good = BlobDigest::of(b"abc").to_string();
    let texts = [
        String::new(),
        "sha256:".to_owned(),
        good["blake3:".len()..].to_owned(),
        good[..good.len() - 1].to_owned(),
        format!("{good}0"),
        good.replace("blake3", "sha512"),
        good.replace("blake3:", "blake3:../"),
        good.to_uppercase(),
        format!(" {good}"),
        "ü".repeat(10_000),
    ];
    texts.iter().map(|text| serde_json::to_string(text).unwrap()).collect()
}

const DIGEST_LOOKS: &str = "blake3: or sha256: followed by 64 lower-case hexadecimal digits";

#[test]
fn the_error_of_a_malformed_digest_in_an_output_shows_the_form_of_a_digest() {
    for digest in malformed_digests() {
        for refusal in output_data(&format!(r#"{{"blob": {digest}}}"#)) {
            let problem = refusal.unwrap_err();
            assert!(problem.contains(DIGEST_LOOKS), "{digest}: {problem}");
        }
    }
    for other in ["null", "7", "[1, 2]", r#"{"sha256": "00"}"#] {
        for refusal in output_data(&format!(r#"{{"blob": {other}}}"#)) {
            assert!(refusal.is_err(), "{other}");
        }
    }
}

#[test]
fn the_error_of_a_malformed_digest_in_a_task_shows_the_form_of_a_digest() {
    let id = "0190a5b8-7c00-7000-8000-000000000001";
    let decode = |digest: &str| {
        let buffer = format!(r#"{{"name": "x", "dtype": "u8", "shape": [3], "data": {{"blob": {digest}}}}}"#);
        let program = r#"{"catalog": "saxpy"}"#;
        let json = format!(r#"{{"version": 1, "job_id": "{id}", "program": {program}, "buffers": [{buffer}]}}"#);
        in_each_encoding(&json).map(|(encoding, body)| match encoding.decode_tasks(&body) {
            Ok(tasks) => Ok(tasks.as_slice()[0].clone().into_owned().buffers.remove(0).data),
            Err(error) => Err((encoding.decode_heads(&body)[0].job_id.unwrap().to_string(), error.to_string())),
        })
    };
    let good = BlobDigest::of(b"abc");
    assert_eq!(decode(&format!(r#""{good}""#)), [Ok(Data::Blob(good)), Ok(Data::Blob(good))]);
    for digest in malformed_digests() {
        for refusal in decode(&digest) {
            let (whom, problem) = refusal.unwrap_err();
            assert_eq!(whom, id, "the reply can name the job and its client");
            assert!(problem.contains(DIGEST_LOOKS), "{digest}: {problem}");
        }
    }
    for other in ["null", "7", "[1, 2]", r#"{"sha256": "00"}"#] {
        for refusal in decode(other) {
            assert!(refusal.is_err(), "{other}");
        }
    }
}

#[test]
fn inline_bytes_are_borrowed_from_the_body() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/task-catalog.msgpack");
    let body = std::fs::read(path).unwrap();
    let OneOrMany::One(task) = Encoding::MessagePack.decode_tasks(&body).unwrap() else { panic!("one task") };
    let Data::Inline(Inline::Bytes(bytes)) = &task.buffers[0].data else { panic!("{:?}", task.buffers[0]) };
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
fn an_owned_task_equals_the_borrowed_one() {
    for body in golden_bodies() {
        if let Ok(OneOrMany::One(task)) = Encoding::MessagePack.decode_tasks(&body) {
            let owned: Task<'static> = task.clone().into_owned();
            assert_eq!(owned, task);
        }
    }
}
