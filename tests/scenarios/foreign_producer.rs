//! A producer in another language with a plain AMQP client: JSON and MessagePack tasks from Python's pika
//! get replies in the same encoding, on the queue that `reply_to` names.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, BlobDigest, Encoding, FailureCode, JobId, OutputData,
    bounds::{BLOB_BYTES_MIN, MESSAGE_BYTES_MAX},
};
use gpufleet_tests::{Ground, WAIT, dead_letters, memory_bytes, run_python};

use crate::confined::python;

const PRODUCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/producer.py");
const PUBLISH_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/publish_file.py");
const DAMAGED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/damaged.py");
const GOLDEN_ID: &str = "0190a5b8-7c00-7000-8000-000000000001";
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/golden/v1");

/// Publishes the file's bytes with this content type. Returns the content type and the body of the reply.
async fn ask(ground: &Ground, task: &Path, content_type: &str, job_id: JobId) -> (String, Vec<u8>) {
    let arguments = [PUBLISH_FILE, task.to_str().unwrap(), content_type, &job_id.to_string()];
    let text = python(&ground.node_url(), WAIT, &arguments).await;
    let (content_type, body) = text.trim().split_once(' ').expect("a content type and a body");
    let bytes = (0..body.len()).step_by(2).map(|at| u8::from_str_radix(&body[at..at + 2], 16).unwrap());
    (content_type.to_owned(), bytes.collect())
}

/// Copies a golden task with a new job id. The golden task has its id as text or as the bytes of the UUID.
fn with_an_id_of_its_own(file: &str, folder: &Path) -> (JobId, PathBuf) {
    let mut body = fs::read(Path::new(GOLDEN).join(file)).unwrap();
    let job_id = JobId::new();
    let golden_id: JobId = GOLDEN_ID.parse().unwrap();
    let place = |id: &[u8]| body.windows(id.len()).position(|window| window == id);
    let (at, id) = match place(GOLDEN_ID.as_bytes()) {
        Some(at) => (at, job_id.to_string().into_bytes()),
        None => {
            let at = place(golden_id.as_uuid().as_bytes()).expect("the golden task has its id");
            (at, job_id.as_uuid().as_bytes().to_vec())
        }
    };
    body[at..at + id.len()].copy_from_slice(&id);
    let path = folder.join(file);
    fs::write(&path, body).unwrap();
    (job_id, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_other_languages_prints_the_result_or_says_what_failed() {
    let (ground, _worker) = Ground::with_worker("pika-example").await;
    assert_eq!(python(&ground.node_url(), WAIT, &[PRODUCER, "2", "1,2,3", "10,20,30"]).await, "[12.0, 24.0, 36.0]\n");
    let refused = async |arguments: &[&str]| {
        let output = run_python(&ground.node_url(), WAIT, arguments).await;
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let unequal = refused(&[PRODUCER, "2", "1,2,3", "10"]).await;
    assert!(unequal.contains("ended as failed: invalid_task: ") && unequal.contains("sets n to"), "{unequal}");
    let unserved = refused(&[PRODUCER, "2", "1", "1", "unserved"]).await;
    assert_eq!(unserved, "pool unserved has no queue: no worker has ever served it\n");
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pika_gets_its_reply_in_the_encoding_of_its_task() {
    let (ground, _worker) = Ground::with_worker("pika").await;
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("task-catalog.json", "application/json", Encoding::Json),
        ("task-catalog.msgpack", "application/msgpack", Encoding::MessagePack),
        ("task-binary-id.msgpack", "application/msgpack", Encoding::MessagePack),
    ];
    for (file, content_type, encoding) in cases {
        let (job_id, task) = with_an_id_of_its_own(file, folder.path());
        let (answered_in, body) = ask(&ground, &task, content_type, job_id).await;
        assert_eq!(answered_in, content_type);
        let replies = encoding.decode_replies(&body).unwrap();
        assert_eq!(replies.as_slice()[0].job_id, Some(job_id));
        let output = &replies.as_slice()[0].outputs[0];
        let OutputData::Inline(y) = &output.data else { panic!("{output:?}") };
        let y = y.resolve(output.dtype).unwrap();
        let y: Vec<f32> = y.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(y, [2.5 * 1.0 + 0.5, 2.5 * 2.0 - 0.5, 2.5 * 3.0], "{file}");
    }
    ground.check_history(3).await;
}

/// The documentation tells producers in other languages to pass large arrays as files in the blob store.
#[tokio::test(flavor = "multi_thread")]
async fn pika_passes_large_arrays_as_files_named_by_their_digest() {
    const COUNT: u64 = BLOB_BYTES_MIN / 4;
    let store = tempfile::tempdir().unwrap();
    let ground = Ground::with_environment("pika-blobs", &[("GPUFLEET_BLOBS", store.path().to_str().unwrap())]).await;
    let _worker = ground.worker().await;
    let bytes: Vec<u8> = (0..COUNT).flat_map(|index| (index as f32).to_le_bytes()).collect();
    // As the documentation says, because every language has SHA-256.
    let mut hasher = format!("sha256:{}", "0".repeat(64)).parse::<BlobDigest>().unwrap().hasher();
    hasher.update(&bytes);
    let digest = hasher.finish();
    fs::write(store.path().join(".part-x"), bytes).unwrap();
    fs::rename(store.path().join(".part-x"), store.path().join(digest.file_name())).unwrap();
    let (folder, job_id) = (tempfile::tempdir().unwrap(), JobId::new());
    let array = format!(r#""dtype": "f32", "shape": [{COUNT}], "data": {{"blob": "{digest}"}}"#);
    let task = format!(
        r#"{{"version": 1, "job_id": "{job_id}", "program": {{"catalog": "saxpy"}}, "arguments": {{"a": 2.0}},
            "buffers": [{{"name": "x", {array}}}, {{"name": "y", {array}}}], "large_outputs": "blob"}}"#
    );
    let path = folder.path().join("task.json");
    fs::write(&path, task).unwrap();
    let (_, body) = ask(&ground, &path, "application/json", job_id).await;
    let replies = Encoding::Json.decode_replies(&body).unwrap();
    let OutputData::Blob(returned) = replies.as_slice()[0].outputs[0].data else { panic!("{replies:?}") };
    let y = fs::read(store.path().join(returned.file_name())).unwrap();
    let y = y.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(y.eq((0..COUNT).map(|index| 3.0 * index as f32)));
    ground.check_history(1).await;
}

/// The broker accepts larger messages than the contract allows. gpufleet's own client never sends one.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_task_gets_a_reply_and_its_beginning_is_dead_lettered() {
    let (ground, _worker) = Ground::with_worker("oversized").await;
    let folder = tempfile::tempdir().unwrap();
    let job_id = JobId::new();
    let path = folder.path().join("large.json");
    let beginning = format!(r#"{{"version": 1, "job_id": "{job_id}", "padding": ""#);
    fs::write(&path, beginning.clone() + &"x".repeat(MESSAGE_BYTES_MAX)).unwrap();
    let (_, body) = ask(&ground, &path, "application/json", job_id).await;
    let replies = Encoding::Json.decode_replies(&body).unwrap();
    let reply = &replies.as_slice()[0];
    assert_eq!((reply.job_id, reply.state), (Some(job_id), AttemptState::Dead));
    let failure = reply.failure.as_ref().unwrap();
    assert_eq!(failure.code, FailureCode::MalformedTask);
    assert!(failure.message.contains("the message limit of 16 MiB"), "{}", failure.message);
    // The letter says that it was cut, and can't be replayed.
    let id = job_id.to_string();
    let letter = ground.gpufleet(folder.path(), &["dead", "show", &id, "-o", "json"]).await.json();
    assert_eq!(letter["bytes"], (beginning.len() + MESSAGE_BYTES_MAX) as u64);
    assert!(letter["kept_bytes"].as_u64().unwrap() < MESSAGE_BYTES_MAX as u64, "{letter}");
    let retried = ground.gpufleet(folder.path(), &["retry", &id]).await;
    assert_eq!(retried.code, 3, "{}{}", retried.stdout, retried.stderr);
    assert!(retried.stderr.contains("only the first"), "{}", retried.stderr);
    let letters = dead_letters(&ground, 1).await;
    assert!(letters[0].body.starts_with(beginning.as_bytes()) && letters[0].body.len() < MESSAGE_BYTES_MAX);
    assert_eq!(letters[0].reason, failure.message);
    ground.check_history(1).await;
}

/// The task is a dictionary that Python's `json` wrote: keys in any order, and bytes as a list of numbers.
#[tokio::test(flavor = "multi_thread")]
async fn pika_launches_a_template_with_a_structure_and_a_part_of_a_buffer() {
    let (ground, _worker) = Ground::with_worker("pika-launches").await;
    let (folder, job_id) = (tempfile::tempdir().unwrap(), JobId::new());
    let task = format!(
        r#"{{"launches": [{{"args": [{{"align": 4, "bytes": [2, 0, 0, 0, 5, 0, 0, 0]}}, {{"offset": 2, "buffer": "x"}}],
                           "block": {{"threads": [4]}}, "entry": "k<int, 3>",
                           "grid": {{"cooperative": true, "blocks": [1]}}}}],
            "program": {{"source": {{"code": "struct P {{ int a, b; }}; template <class T, int N> __global__ void k(P p, T *x) {{ x[threadIdx.x] = p.a * p.b + N; }}",
                                   "options": ["-D", "UNUSED", "--split-compile=4"]}}}},
            "buffers": [{{"shape": [8], "name": "x", "dtype": "i32"}}], "outputs": ["x"],
            "job_id": "{job_id}", "version": 1}}"#
    );
    let path = folder.path().join("task.json");
    fs::write(&path, task).unwrap();
    let (_, body) = ask(&ground, &path, "application/json", job_id).await;
    let replies = Encoding::Json.decode_replies(&body).unwrap();
    let reply = &replies.as_slice()[0];
    assert_eq!(reply.state, AttemptState::Succeeded, "{reply:?}");
    let OutputData::Inline(x) = &reply.outputs[0].data else { panic!("{reply:?}") };
    let x = x.resolve(reply.outputs[0].dtype).unwrap();
    let x: Vec<i32> = x.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(x, [0, 0, 13, 13, 13, 13, 0, 0]);
    ground.check_history(1).await;
}

/// A foreign producer learns only from the reply that its task is unreadable.
#[tokio::test(flavor = "multi_thread")]
async fn every_damaged_task_gets_exactly_one_reply_under_its_correlation_id() {
    const COUNT: u64 = 2000;
    const SEED: &str = "13";
    let (ground, worker) = Ground::with_worker("pika-damaged").await;
    let golden = |file: &str| format!("{GOLDEN}/{file}");
    let (json, packed) = (golden("task-catalog.json"), golden("task-catalog.msgpack"));
    let told = python(&ground.node_url(), 3 * WAIT, &[DAMAGED, &COUNT.to_string(), SEED, &json, &packed]).await;
    let tally: serde_json::Value = serde_json::from_str(&told).expect(&told);
    assert_eq!(tally["answered"], COUNT, "{tally}");
    for kind in ["with_id", "without_id", "empty"] {
        assert_ne!(tally[kind], 0, "every kind of damage occurs: {tally}");
    }
    assert!(worker.is_alive());
}

/// A decoder that builds a value for each number would need thirty times the memory of the message.
#[tokio::test(flavor = "multi_thread")]
async fn decoding_a_list_of_numbers_takes_at_most_three_times_its_message() {
    /// The memory for buffers that the connection keeps.
    const SLACK_BYTES: u64 = 16 << 20;
    const COUNT: usize = 15 << 20;
    let ground = Ground::shared("pika-numbers").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("task");
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        // Each message gets a new worker, because the peak memory of a process never decreases.
        let worker = ground.worker().await;
        let job_id = JobId::new();
        let count = if encoding == Encoding::Json { COUNT / 2 } else { COUNT };
        let body = task_with_ones(encoding, job_id, count);
        let bytes = body.len() as u64;
        assert!((15 << 20..MESSAGE_BYTES_MAX as u64).contains(&bytes));
        fs::write(&path, body).unwrap();
        let before = memory_bytes(worker.pid(), "VmRSS").unwrap();
        let (_, reply) = ask(&ground, &path, encoding.content_type(), job_id).await;
        let grown = memory_bytes(worker.pid(), "VmHWM").unwrap().saturating_sub(before);
        let replies = encoding.decode_replies(&reply).unwrap();
        let reply = &replies.as_slice()[0];
        assert_eq!(reply.job_id, Some(job_id));
        // The worker read all numbers, and did not allocate memory for them.
        assert_eq!(reply.failure.as_ref().unwrap().code, FailureCode::UnknownKernel);
        println!("{encoding}: {grown} bytes for a message of {bytes}");
        assert!(grown <= 3 * bytes + SLACK_BYTES, "{encoding}: grew by {grown} bytes for a message of {bytes}");
        assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    }
    ground.check_history(2).await;
}

/// Returns a task with a buffer of `count` ones, whose dtype and shape follow the numbers.
fn task_with_ones(encoding: Encoding, job_id: JobId, count: usize) -> Vec<u8> {
    let head = format!(
        r#"{{"version":1,"job_id":"{job_id}","program":{{"catalog":"no-such-kernel"}},"buffers":[{{"data":{{"inline":["#
    );
    let tail = format!(r#"]}},"name":"x","dtype":"f64","shape":[{count}]}}]}}"#);
    match encoding {
        Encoding::Json => [head.as_bytes(), "1,".repeat(count - 1).as_bytes(), b"1", tail.as_bytes()].concat(),
        Encoding::MessagePack => {
            let text = |text: &str| [&[0xa0 | text.len() as u8], text.as_bytes()].concat();
            let count = u32::try_from(count).unwrap().to_be_bytes();
            [
                &[0x84],
                &*text("version"),
                &[1],
                &text("job_id"),
                &[0xc4, 16],
                job_id.as_uuid().as_bytes(),
                &text("program"),
                &[0x81],
                &text("catalog"),
                &text("no-such-kernel"),
                &text("buffers"),
                &[0x91, 0x84],
                &text("data"),
                &[0x81],
                &text("inline"),
                &[0xdd],
                &count,
                &vec![1; u32::from_be_bytes(count) as usize],
                &text("name"),
                &text("x"),
                &text("dtype"),
                &text("f64"),
                &text("shape"),
                &[0x91, 0xce],
                &count,
            ]
            .concat()
        }
    }
}
