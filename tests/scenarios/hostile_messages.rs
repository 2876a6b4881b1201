//! Every message in a task queue is answered, or dead-lettered with its reason, and the next job runs. No body,
//! property or header makes a worker stop, loop or publish to a forbidden queue. (faults 23, 34, 36, 42)

use std::collections::BTreeMap;

use gpufleet_schema::{
    AttemptState, Block, ClientName, Data, Dtype, Encoding, FailureCode, Grid, Inline, JobId, Launch, OneOrMany,
    PoolName, Priority, Program, Task, Verdict,
    bounds::TEXT_BYTES_MAX,
    topology::{DEAD_QUEUE, HEADER_ATTEMPT, REPLIES, TASKS, reply_queue, task_key, task_queue},
};
use gpufleet_tests::{Ground, WAIT, dead_letters, delivered, kernels, poll_until};
use gpufleet_transport::{Broker, HeaderValue, Message, Properties};

/// An unreadable message, and a part of the reason that its dead letter must have.
struct Hostile {
    what: &'static str,
    body: Vec<u8>,
    properties: Properties,
    reason: &'static str,
}

fn typed(content_type: &str) -> Properties {
    Properties { content_type: Some(content_type.to_owned()), ..Properties::default() }
}

fn hostiles() -> Vec<Hostile> {
    let whole = || Encoding::MessagePack.encode_tasks(&OneOrMany::One(kernels::saxpy())).unwrap();
    let packed = "application/msgpack";
    let json = "application/json";
    let hostile = |what, body: Vec<u8>, properties, reason| Hostile { what, body, properties, reason };
    vec![
        hostile("an empty body", vec![], typed(packed), "empty"),
        hostile("half a task", whole()[..100].to_vec(), typed(packed), "not valid MessagePack"),
        hostile(
            "a list that claims four thousand million items",
            vec![0xdd, 0xff, 0xff, 0xff, 0xff],
            typed(packed),
            "items",
        ),
        hostile("noise", vec![0xc1; 1000], typed(packed), "not valid MessagePack"),
        hostile("JSON that ends early", br#"{"version": 1, "job_id""#.to_vec(), typed(json), "not valid JSON"),
        hostile("deep JSON", "[".repeat(100_000).into_bytes(), typed(json), "not valid JSON"),
        hostile("a picture", vec![0x89, b'P', b'N', b'G'], typed("image/png"), "content_type"),
        hostile("a task without a content type", whole(), Properties::default(), "content_type"),
        hostile(
            "a reply to a task queue",
            whole(),
            Properties { reply_to: Some(task_queue(&PoolName::default(), Priority::High)), ..typed(packed) },
            "reply_to",
        ),
        hostile(
            "another version",
            br#"{"version": 2, "job_id": "0190a5b8-7c00-7000-8000-000000000001", "program": 1}"#.to_vec(),
            typed(json),
            "has version 2",
        ),
    ]
}

async fn publish(broker: &Broker, body: Vec<u8>, properties: Properties) {
    let routing_key = task_key(&PoolName::default(), Priority::Normal);
    broker.publish(Message { exchange: TASKS, routing_key, body, properties }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_messages_are_dead_lettered_with_their_reason_and_the_next_job_runs() {
    let (ground, worker) = Ground::with_worker("hostile").await;
    let broker = ground.broker().await;
    let hostiles = hostiles();
    for hostile in &hostiles {
        publish(&broker, hostile.body.clone(), hostile.properties.clone()).await;
    }
    let letters = dead_letters(&ground, hostiles.len()).await;
    for hostile in &hostiles {
        let kept = letters.iter().any(|letter| letter.body == hostile.body && letter.reason.contains(hostile.reason));
        let reasons: Vec<_> = letters.iter().map(|letter| &letter.reason).collect();
        assert!(kept, "{}: {reasons:#?}", hostile.what);
    }
    assert!(letters.iter().all(|letter| letter.origin == "default.normal"));
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);
    assert!(worker.is_alive());
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the queue is empty", async || broker.queue_depth(&queue).await.unwrap().unwrap().messages == 0).await;
    // A message without a job id is recorded under its message id, except for the two lists, whose jobs are unknown.
    ground.check_history(hostiles.len() - 2 + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_another_version_is_answered_in_its_own_encoding() {
    let (ground, _worker) = Ground::with_worker("version").await;
    let broker = ground.broker().await;
    let client: ClientName = "version-asker".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    let mut consumer = broker.consume(reply_queue(&client), 1);
    // The reply goes to the client that the task names, or else to the message's `reply_to`.
    for (reply_to, named) in [(Some(client.to_string()), ""), (None, r#""reply": "version-asker", "#)] {
        let job_id = JobId::new();
        let body = format!(r#"{{"version": 99, {named}"job_id": "{job_id}", "program": {{"quantum": 1}}}}"#);
        publish(&broker, body.into_bytes(), Properties { reply_to, ..typed("application/json") }).await;

        let delivery = delivered(&mut consumer).await;
        assert_eq!(delivery.exchange, REPLIES);
        assert_eq!(delivery.properties.content_type.as_deref(), Some("application/json"));
        let replies = Encoding::Json.decode_replies(&delivery.body).unwrap();
        let reply = &replies.as_slice()[0];
        assert_eq!(reply.job_id, Some(job_id));
        let failure = reply.failure.as_ref().unwrap();
        assert_eq!(failure.code, FailureCode::UnsupportedVersion);
        assert!(
            failure.message.contains("99") && failure.message.contains("only version 1 is supported"),
            "{}",
            failure.message
        );
        delivery.acker.ack().await.unwrap();
    }
    ground.check_history(2).await;
}

/// Returns tasks that can be decoded but are invalid: what is wrong, the task, and a part of the error.
fn senseless() -> Vec<(&'static str, Task<'static>, &'static str)> {
    let with = |change: &dyn Fn(&mut Task<'static>)| {
        let mut task = kernels::saxpy();
        change(&mut task);
        task
    };
    vec![
        ("an unknown kernel", with(&|task| task.program = Program::Catalog("saxpi".into())), "saxpy"),
        ("a missing argument", with(&|task| task.arguments.clear()), "arguments.a"),
        ("a surplus argument", with(&|task| task.arguments.extend([("b".to_owned(), 1.into())])), "arguments.b"),
        (
            "a wrong dtype",
            with(&|task| {
                task.buffers[0].dtype = Dtype::I32;
            }),
            "buffers.x",
        ),
        ("bytes that disagree with the shape", with(&|task| task.buffers[0].shape = vec![4]), "buffers.x.data"),
        ("a shape that overflows", with(&|task| task.buffers[0].shape = vec![u64::MAX, u64::MAX]), "buffers.x.shape"),
        (
            "shapes that disagree",
            with(&|task| {
                task.buffers[0].shape = vec![2];
                task.buffers[0].data = Data::Inline(Inline::from(vec![0; 8]));
            }),
            "buffers.y.shape",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_task_fails_with_the_name_of_its_field() {
    let (ground, _worker) = Ground::with_worker("senseless").await;
    let broker = ground.broker().await;
    let client: ClientName = "senseless-asker".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    let mut consumer = broker.consume(reply_queue(&client), 1);
    for (what, mut task, names) in senseless() {
        task.reply = Some(client.clone());
        let body = Encoding::MessagePack.encode_tasks(&OneOrMany::One(task)).unwrap();
        publish(&broker, body, typed("application/msgpack")).await;
        let delivery = delivered(&mut consumer).await;
        let replies = Encoding::MessagePack.decode_replies(&delivery.body).unwrap();
        let failure = replies.as_slice()[0].failure.clone().unwrap();
        assert!(failure.message.contains(names), "{what}: {}", failure.message);
        delivery.ack().await.unwrap();
    }
    ground.check_history(senseless().len()).await;
}

type Absurdity = (&'static str, fn(&mut Launch), &'static str);

/// Launches that exceed every device, or whose sizes overflow.
const ABSURD: [Absurdity; 14] = [
    ("no blocks", |launch| launch.grid = Grid::Blocks(vec![0]), "launches[0].grid"),
    ("too many blocks", |launch| launch.grid = Grid::Blocks(vec![1, 65_536]), "launches[0].grid"),
    ("four dimensions", |launch| launch.grid = Grid::Blocks(vec![1; 4]), "launches[0].grid"),
    ("no dimension", |launch| launch.grid = Grid::Blocks(vec![]), "launches[0].grid"),
    ("no thread to cover", |launch| launch.grid = Grid::Cover(vec![0]), "launches[0].grid"),
    ("the largest number of threads", |launch| launch.grid = Grid::Cover(vec![u64::MAX]), "launches[0]"),
    ("a product that overflows", |launch| launch.grid = Grid::Cover(vec![u64::MAX; 3]), "launches[0]"),
    ("no threads", |launch| launch.block = Block::Threads(vec![0]), "launches[0].block"),
    ("too many threads", |launch| launch.block = Block::Threads(vec![1025]), "launches[0].block"),
    (
        "too many threads in two dimensions",
        |launch| launch.block = Block::Threads(vec![1024, 1024]),
        "launches[0].block",
    ),
    ("threads that overflow", |launch| launch.block = Block::Threads(vec![u32::MAX; 3]), "launches[0].block"),
    ("more shared memory than there is", |launch| launch.shared_bytes = u32::MAX, "launches[0].shared_bytes"),
    ("never", |launch| launch.repeat = 0, "launches[0].repeat"),
    ("for ever", |launch| launch.repeat = u32::MAX, "launches[0].repeat"),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_launch_fails_with_the_name_of_its_field_before_it_runs() {
    let (ground, worker) = Ground::with_worker("absurd").await;
    let executors = worker.executors();
    let broker = ground.broker().await;
    let client: ClientName = "absurd-asker".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    let mut consumer = broker.consume(reply_queue(&client), 1);
    for (what, change, names) in ABSURD {
        let mut task = kernels::doubles(&[1.0, 2.0]).build().unwrap().task;
        task.reply = Some(client.clone());
        change(&mut task.launches[0]);
        let body = Encoding::MessagePack.encode_tasks(&OneOrMany::One(task)).unwrap();
        publish(&broker, body, typed("application/msgpack")).await;
        let delivery = delivered(&mut consumer).await;
        let replies = Encoding::MessagePack.decode_replies(&delivery.body).unwrap();
        let reply = &replies.as_slice()[0];
        let failure = reply.failure.clone().unwrap_or_else(|| panic!("{what} has succeeded"));
        assert_eq!(failure.verdict, Verdict::User, "{what}: {}", failure.message);
        assert!(reply.timings.launches_us.is_empty(), "{what} was launched");
        assert!(failure.message.contains(names), "{what}: {}", failure.message);
        delivery.ack().await.unwrap();
    }
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    worker.assert_keeps(&executors);
    ground.check_history(ABSURD.len() + 1).await;
}

/// A message whose jobs the ledger must record.
struct Written {
    what: &'static str,
    tasks: OneOrMany<Task<'static>>,
    headers: BTreeMap<String, HeaderValue>,
}

fn doubles(change: impl FnOnce(&mut Task<'static>)) -> Task<'static> {
    let mut task = kernels::doubles(&[3.0]).build().unwrap().task;
    change(&mut task);
    task
}

fn overlong() -> Vec<Written> {
    let one = |what, task| Written { what, tasks: OneOrMany::One(task), headers: BTreeMap::new() };
    let label = |bytes: usize| BTreeMap::from([("note".to_owned(), "x".repeat(bytes))]);
    // The large label leaves little room for other jobs in a batch of events.
    let fourth_is_large = |index: usize| match index {
        3 => doubles(|task| task.labels = label(15 << 20)),
        _ => doubles(|_| {}),
    };
    vec![
        one("a label as large as a message", doubles(|task| task.labels = label((16 << 20) - 8192))),
        one("a name of 9 MiB", doubles(|task| task.name = Some("x".repeat(9 << 20)))),
        one("a name of terminal control sequences", doubles(|task| task.name = Some("\x1b[2J".repeat(9 << 18)))),
        one("an entry too long for a database index", doubles(|task| task.launches[0].entry = random_text(20_000))),
        one(
            "a kernel name too long for a database index",
            doubles(|task| task.program = Program::Catalog(random_text(20_000))),
        ),
        one(
            "a submission in nanoseconds, refused",
            doubles(|task| {
                task.submitted_ms = Some(1_800_000_000_000_000_000);
                task.launches.clear();
            }),
        ),
        one("a submission at the smallest time", doubles(|task| task.submitted_ms = Some(i64::MIN))),
        one("a submission before 1970", doubles(|task| task.submitted_ms = Some(-1))),
        Written {
            headers: [(HEADER_ATTEMPT.to_owned(), 3_000_000_000_i64.into())].into(),
            ..one("an attempt number that is too large", doubles(|_| {}))
        },
        Written {
            tasks: OneOrMany::Many((0..8).map(fourth_is_large).collect()),
            ..one("a list with a large label", doubles(|_| {}))
        },
    ]
}

/// Returns a text that can't be compressed.
fn random_text(bytes: usize) -> String {
    (0..bytes.div_ceil(36)).map(|_| JobId::new().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_is_recorded_whatever_its_names_labels_and_times() {
    const INNOCENTS: usize = 40;
    let (ground, _worker) = Ground::with_worker("overlong").await;
    let broker = ground.broker().await;
    let client: ClientName = "overlong-asker".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    let mut consumer = broker.consume(reply_queue(&client), 100);

    let innocent =
        |_| Written { what: "an innocent", tasks: OneOrMany::One(doubles(|_| {})), headers: BTreeMap::new() };
    let mut messages: Vec<Written> = (0..INNOCENTS).map(innocent).collect();
    for (index, written) in overlong().into_iter().enumerate() {
        messages.insert(index * 4, written);
    }
    let jobs = messages.iter().flat_map(|written| written.tasks.as_slice().iter().map(|task| (written.what, task)));
    let wanted: BTreeMap<JobId, (&str, AttemptState)> = jobs
        .map(|(what, task)| {
            let state = if task.check().is_ok() { AttemptState::Succeeded } else { AttemptState::Failed };
            (task.job_id, (what, state))
        })
        .collect();
    assert_eq!(wanted.values().filter(|(_, state)| *state == AttemptState::Failed).count(), 7);
    let published = messages.into_iter().map(async |Written { tasks, headers, .. }| {
        let body = Encoding::MessagePack.encode_tasks(&tasks).unwrap();
        let properties = Properties { reply_to: Some(client.to_string()), headers, ..typed("application/msgpack") };
        publish(&broker, body, properties).await;
    });
    futures::future::join_all(published).await;

    let mut told: BTreeMap<JobId, (AttemptState, u32)> = BTreeMap::new();
    while told.len() < wanted.len() {
        let delivery = delivered(&mut consumer).await;
        for reply in Encoding::MessagePack.decode_replies(&delivery.body).unwrap().as_slice() {
            let job_id = reply.job_id.unwrap();
            let (what, state) = wanted[&job_id];
            assert_eq!(reply.state, state, "{what}: {:?}", reply.failure);
            let earlier = told.insert(job_id, (reply.state, reply.attempt));
            assert_eq!(earlier, None, "{what} was answered twice");
        }
        delivery.ack().await.unwrap();
    }
    for (job_id, (state, attempt)) in &told {
        let (what, _) = wanted[job_id];
        let detail = ground.final_job(*job_id).await;
        let [row] = detail.attempts.as_slice() else { panic!("{what} ran more than once: {detail:?}") };
        assert_eq!((row.state, row.attempt), (*state, *attempt), "{what}");
        let texts = detail.job.labels.values().chain(&detail.job.name).chain(&detail.job.kernel);
        for text in texts {
            assert!(text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control), "{what}: {} bytes", text.len());
        }
    }
    ground.check_history(wanted.len()).await;
    assert_eq!(ground.messages_in(DEAD_QUEUE).await, 0);
}
