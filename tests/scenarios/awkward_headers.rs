//! An AMQP client in another language publishes headers that nest as deep as one frame allows, and texts that are not
//! UTF-8. Every process that reads them keeps working. (fault 34)

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use gpufleet_local::setup::Part;
use gpufleet_schema::{
    AttemptState, ClientName, Encoding, JobId, JobState, PoolName, Priority,
    topology::{
        CONTROL_OPERATOR, CONTROL_QUEUE, DEAD_QUEUE, HEADER_ORIGIN, HEADER_REASON, LEDGER_QUEUE, reply_queue,
        task_queue,
    },
};
use gpufleet_tests::{Ground, WAIT, dead_letters, delivered, kernels, poll_until};
use tempfile::TempDir;
use tokio::process::Command;

const PRODUCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/awkward_headers.py");
const SHAPES: [&str; 4] = ["tables", "arrays", "mixed", "texts"];

/// The Python producer, and the folder for the bodies that it sends.
struct Producer<'a> {
    ground: &'a Ground,
    folder: TempDir,
}

/// The properties of a message apart from its awkward headers.
struct Sent<'a> {
    exchange: &'a str,
    routing_key: &'a [u8],
    shape: &'a str,
    body: &'a str,
    message_id: &'a str,
    reply_to: &'a str,
    texts: &'a [String],
}

impl<'a> Sent<'a> {
    fn to_queue(queue: &'a str, shape: &'a str, body: &'a str) -> Self {
        let routing_key = queue.as_bytes();
        Self { exchange: "", routing_key, shape, body, message_id: "awkward", reply_to: "", texts: &[] }
    }
}

impl<'a> Producer<'a> {
    fn new(ground: &'a Ground) -> Self {
        Self { ground, folder: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Publishes the message and waits for the broker's confirmation.
    async fn publish(&self, sent: Sent<'_>) {
        let body: PathBuf = self.folder().join("body");
        fs::write(&body, sent.body).unwrap();
        let output = Command::new("python3")
            .arg(PRODUCER)
            .arg(sent.exchange)
            .arg(OsStr::from_bytes(sent.routing_key))
            .arg(sent.shape)
            .arg(&body)
            .args([sent.message_id, sent.reply_to])
            .args(sent.texts)
            .env("GPUFLEET_AMQP_URL", self.ground.node_url())
            .env("PYTHONPATH", Part::Pika.folder().unwrap())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(WAIT, output).await.expect("the producer ends").unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Returns a JSON task for a catalog kernel.
fn task(job_id: JobId) -> String {
    let array = r#""dtype": "f32", "shape": [2], "data": {"inline": "AACAPwAAAEA="}"#;
    format!(
        r#"{{"version": 1, "job_id": "{job_id}", "program": {{"catalog": "saxpy"}}, "arguments": {{"a": 2.0}},
            "buffers": [{{"name": "x", {array}}}, {{"name": "y", {array}}}]}}"#
    )
}

async fn assert_runs(ground: &Ground) {
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_the_task_and_answers() {
    let (ground, worker) = Ground::with_worker("awkward-task").await;
    let broker = ground.broker().await;
    let client: ClientName = "awkward-asker".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    let mut consumer = broker.consume(reply_queue(&client), 1);
    let (producer, queue) = (Producer::new(&ground), task_queue(&PoolName::default(), Priority::Normal));
    for shape in SHAPES {
        let job_id = JobId::new();
        let (body, id) = (task(job_id), job_id.to_string());
        let reply_to = reply_queue(&client);
        producer.publish(Sent { message_id: &id, reply_to: &reply_to, ..Sent::to_queue(&queue, shape, &body) }).await;
        let delivery = delivered(&mut consumer).await;
        let replies = Encoding::Json.decode_replies(&delivery.body).unwrap();
        assert_eq!(replies.as_slice()[0].job_id, Some(job_id));
        assert_eq!(replies.as_slice()[0].state, AttemptState::Succeeded, "{shape}: {replies:?}");
        let correlation = if shape == "texts" { "caf?" } else { "plain" };
        assert_eq!(delivery.properties.correlation_id.as_deref(), Some(correlation));
        delivery.ack().await.unwrap();
    }
    assert!(worker.is_alive());
    ground.poll_log("the warning", &worker, "dropped header tables").await;
    ground.check_history(SHAPES.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorder_keeps_recording() {
    let (ground, _worker) = Ground::with_worker("awkward-events").await;
    let producer = Producer::new(&ground);
    for shape in SHAPES {
        producer.publish(Sent::to_queue(LEDGER_QUEUE, shape, "no events")).await;
    }
    assert_eq!(
        dead_letters(&ground, SHAPES.len()).await.len(),
        SHAPES.len(),
        "the recorder has dead-lettered each message"
    );
    assert_runs(&ground).await;
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_its_other_replies() {
    let (ground, _worker) = Ground::with_worker("awkward-replies").await;
    let producer = Producer::new(&ground);
    let fleet = ground.client().await;
    // The first job declares the reply queue.
    let mut first = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    first.wait(WAIT).await.unwrap();
    for shape in SHAPES {
        let queue = reply_queue(fleet.client());
        producer.publish(Sent::to_queue(&queue, shape, "no reply")).await;
        let mut handle = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
        assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0], "{shape}");
    }
    ground.check_history(1 + SHAPES.len()).await;
}

/// Each command reads a letter that was not delivered before. RabbitMQ writes the number of deliveries into the
/// headers. It takes 11 s to encode 21,000 tables again, because it measures every table again at each level.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_shown_and_submitted_again() {
    let (ground, _worker) = Ground::with_worker("awkward-dead").await;
    let producer = Producer::new(&ground);
    for shape in SHAPES {
        let job_id = JobId::new();
        let (body, id) = (task(job_id), job_id.to_string());
        let texts = [format!("{HEADER_REASON}=it was awkward"), format!("{HEADER_ORIGIN}=default.normal")];
        let letter = || Sent { message_id: &id, texts: &texts, ..Sent::to_queue(DEAD_QUEUE, shape, &body) };
        producer.publish(letter()).await;
        let list = ground.gpufleet(producer.folder(), &["dead", "list"]).await;
        assert!(list.stdout.contains(&id), "{shape}: {list:?}");
        purge_letters(&ground).await;

        producer.publish(letter()).await;
        let shown = ground.gpufleet(producer.folder(), &["dead", "show", &id, "-o", "json"]).await.json();
        assert_eq!(shown["reason"], "it was awkward", "{shape}");
        purge_letters(&ground).await;

        producer.publish(letter()).await;
        let again = ground.gpufleet(producer.folder(), &["retry", &id]).await;
        assert_eq!(again.code, 0, "{shape}: {again:?}");
        let new = again.stdout.trim().rsplit(' ').next().unwrap();
        assert_eq!(ground.final_job(new.parse().unwrap()).await.job.state, JobState::Succeeded, "{shape}");
    }
    ground.check_history(SHAPES.len()).await;
}

/// Purges the dead-letter queue until it is empty. The broker may requeue letters a moment after the command that
/// fetched them has ended.
async fn purge_letters(ground: &Ground) {
    poll_until("no letters", async || {
        ground.purge_queue(DEAD_QUEUE).await;
        ground.messages_in(DEAD_QUEUE).await == 0
    })
    .await;
}

/// Every worker that starts reads the stream of orders from its beginning.
#[tokio::test(flavor = "multi_thread")]
async fn workers_start_and_run_despite_awkward_orders() {
    let ground = Ground::shared("awkward-orders").await;
    let (early, producer) = (ground.worker().await, Producer::new(&ground));
    for shape in SHAPES {
        producer.publish(Sent::to_queue(CONTROL_QUEUE, shape, "no order")).await;
    }
    let key = b"caf\xe9";
    let sent = Sent { exchange: CONTROL_OPERATOR, routing_key: key, ..Sent::to_queue("", "mixed", "no order") };
    producer.publish(sent).await;
    let late = ground.worker().await;
    assert_runs(&ground).await;
    assert!(early.is_alive() && late.is_alive());
    ground.check_history(1).await;
}
