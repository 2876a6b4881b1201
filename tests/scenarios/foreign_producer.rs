//! A producer in another language, with an AMQP client that knows nothing of us: JSON and MessagePack tasks from Python's pika
//! are answered in kind, on the queue that `reply_to` names.

use std::process::Stdio;

use gpufleet_local::setup;
use gpufleet_schema::Encoding;
use gpufleet_tests::{Ground, WAIT};
use tokio::process::Command;

const PRODUCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/producer.py");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/golden/v1");

/// Runs the Python producer: it publishes the file's bytes under the content type and prints the reply's content type and body, in
/// hexadecimal.
async fn ask(ground: &Ground, file: &str, content_type: &str) -> (String, Vec<u8>) {
    let output = Command::new("python3")
        .arg(PRODUCER)
        .args([&ground.endpoints().amqp_url, &format!("{GOLDEN}/{file}"), content_type])
        .env("PYTHONPATH", setup::pika_folder())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WAIT, output).await.expect("the producer ends").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (content_type, body) = text.trim().split_once(' ').expect("a content type and a body");
    let bytes = (0..body.len()).step_by(2).map(|at| u8::from_str_radix(&body[at..at + 2], 16).unwrap());
    (content_type.to_owned(), bytes.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn pika_is_answered_in_the_encoding_of_its_task() {
    let ground = Ground::shared("pika").await;
    let _worker = ground.worker().await;
    let cases = [
        ("task-catalog.json", "application/json", Encoding::Json),
        ("task-catalog.msgpack", "application/msgpack", Encoding::MessagePack),
    ];
    for (file, content_type, encoding) in cases {
        let (answered_in, body) = ask(&ground, file, content_type).await;
        assert_eq!(answered_in, content_type);
        let replies = encoding.decode_replies(&body).unwrap();
        let output = &replies.as_slice()[0].outputs[0];
        let y = output.data.resolve(output.dtype).unwrap();
        let y: Vec<f32> = y.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(y, [2.5 * 1.0 + 0.5, 2.5 * 2.0 - 0.5, 2.5 * 3.0], "{file}");
    }
    // Both files describe the same job, which therefore has one outcome.
    ground.check_history(1).await;
}
