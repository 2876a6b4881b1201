//! An operator handles dead-lettered jobs: listing changes nothing, each job can be named, a job that can't be requeued
//! stays and does not block the others, and the command reports only what it has done. (fault 19)

use std::time::Duration;

use gpufleet::{DeadError, DeadLetters, Fleet};
use gpufleet_schema::{
    Encoding, JobId, MessageId, OneOrMany, PoolName, Priority, Task,
    bounds::{LABELS_MAX, MESSAGE_BYTES_MAX},
    encoding::encode_events,
    topology::{
        DEAD, DEAD_KEY, DEAD_QUEUE, HEADER_BODY_BYTES, HEADER_ORIGIN, HEADER_REASON, LEDGER_QUEUE, RETRY_LADDER,
        TYPE_EVENTS, task_key, task_queue,
    },
};
use gpufleet_tests::{Ended, Ground, Proxy, kernels, poll_until};
use gpufleet_transport::{Broker, HeaderValue, Incoming, Message, Properties};
use serde_json::Value;

/// The number of letters: more than two subscriptions deliver.
const MANY: usize = 40;

/// The time between two checks whether the broker has dead-lettered a message.
const QUIET: Duration = Duration::from_millis(200);

fn body(task: &Task<'_>) -> Vec<u8> {
    Encoding::MessagePack.encode_tasks(&OneOrMany::One(task.clone())).unwrap()
}

/// Returns the properties of another producer's message, which has no type.
fn properties(origin: &str) -> Properties {
    let header = |name: &str, value: &str| (name.to_owned(), HeaderValue::from(value));
    Properties {
        message_id: Some(MessageId::new().to_string()),
        content_type: Some("application/msgpack".to_owned()),
        headers: [header(HEADER_REASON, "for the test"), header(HEADER_ORIGIN, origin)].into(),
        ..Properties::default()
    }
}

fn default_queue() -> String {
    task_queue(&PoolName::default(), Priority::Normal)
}

async fn dead_letter(broker: &Broker, body: Vec<u8>, properties: Properties) {
    let routing_key = DEAD_KEY.to_owned();
    broker.publish(Message { exchange: DEAD, routing_key, body, properties }).await.unwrap();
}

async fn dead_letter_task(broker: &Broker, task: &Task<'_>) {
    dead_letter(broker, body(task), properties("default.normal")).await;
}

/// Dead-letters `count` tasks and returns their ids.
pub(crate) async fn dead_letter_many(broker: &Broker, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let task = kernels::saxpy();
        dead_letter_task(broker, &task).await;
        ids.push(task.job_id.to_string());
    }
    ids
}

fn ids_in(list: &Ended) -> Vec<String> {
    let letters: Vec<Value> = serde_json::from_str(&list.stdout).expect(&list.stderr);
    letters.iter().map(|letter| letter["jobs"][0].as_str().unwrap_or("none").to_owned()).collect()
}

async fn dead(ground: &Ground, arguments: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    ground.gpufleet(folder.path(), &[&["dead"], arguments].concat()).await
}

/// Waits until all letters have been requeued.
async fn poll_letters(broker: &Broker, count: usize) {
    poll_ready(broker, DEAD_QUEUE, count).await;
}

async fn poll_ready(broker: &Broker, queue: &str, count: usize) {
    let ready = async || broker.queue_depth(queue).await.unwrap().unwrap().messages as usize;
    poll_until("the messages are in the queue", async || ready().await == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_dead_letters_keeps_their_order() {
    let ground = Ground::shared("dead-order").await;
    let broker = ground.broker().await;
    let ids = dead_letter_many(&broker, MANY).await;
    let looks: [&[&str]; 3] =
        [&["list", "-o", "json"], &["show", &ids[MANY / 2], "-o", "json"], &["discard", "nothing-like-it"]];
    for look in looks {
        poll_letters(&broker, MANY).await;
        let looked = dead(&ground, look).await;
        assert_eq!(looked.code, if look[0] == "discard" { 9 } else { 0 }, "{look:?}: {}", looked.stderr);
        poll_letters(&broker, MANY).await;
        let list = dead(&ground, &["list", "-o", "json"]).await;
        assert_eq!(ids_in(&list), ids, "after {look:?}");
    }
    poll_letters(&broker, MANY).await;
    let discarded = dead(&ground, &["discard", "--all"]).await;
    let lines: String = ids.iter().map(|id| format!("discarded {id}\n")).collect();
    assert_eq!((discarded.code, discarded.stdout), (0, lines), "{}", discarded.stderr);
    poll_letters(&broker, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_without_its_body_can_be_discarded_but_not_replayed() {
    let ground = Ground::shared("dead-bodies").await;
    let broker = ground.broker().await;
    let tasks: Vec<_> = (0..6).map(|_| kernels::saxpy()).collect();
    for task in &tasks {
        dead_letter_task(&broker, task).await;
    }
    let fleet = ground.client().await;
    let mut letters = fleet.dead().await.unwrap();
    // All bodies have the same length.
    letters.limit_body_bytes(2 * body(&tasks[0]).len());
    for index in 0..3 {
        assert_eq!(letters.next().await.unwrap(), Some(index));
    }
    let kept = |letters: &DeadLetters, index| letters.body(index).map(|(body, _)| body.to_vec());
    assert_eq!((kept(&letters, 1), kept(&letters, 2)), (Some(body(&tasks[1])), None));
    assert_eq!(letters.letter(2).unwrap().jobs, [tasks[2].job_id], "its job is known");
    let refused = letters.replay(2).await.unwrap_err();
    assert!(matches!(refused, DeadError::NotKept) && refused.concerns_one_letter(), "{refused}");

    // When a body is forgotten, replayed or discarded, there is room for another one.
    letters.forget_body(0);
    assert_eq!(letters.next().await.unwrap(), Some(3));
    letters.replay(1).await.unwrap();
    assert_eq!(letters.next().await.unwrap(), Some(4));
    letters.discard(3).await.unwrap();
    assert_eq!(letters.next().await.unwrap(), Some(5));
    for index in [4, 5] {
        assert_eq!(kept(&letters, index), Some(body(&tasks[index])));
    }
    letters.discard(2).await.unwrap();
    letters.requeue().await;
    poll_letters(&broker, 3).await;
    let left = [0, 4, 5].map(|index| tasks[index].job_id.to_string());
    assert_eq!(ids_in(&dead(&ground, &["list", "-o", "json"]).await), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_can_not_be_replayed_stay_and_do_not_block_the_others() {
    let ground = Ground::shared("dead-rest").await;
    let broker = ground.broker().await;
    let events = Properties { kind: Some(TYPE_EVENTS.to_owned()), ..properties(LEDGER_QUEUE) };
    let events_id = events.message_id.clone().unwrap();
    dead_letter(&broker, encode_events::<gpufleet_schema::Event>(&[]).unwrap(), events).await;
    let labels = (0..LABELS_MAX).map(|index| (format!("label-{index}"), String::new())).collect();
    let full = Task { labels, ..kernels::saxpy() };
    dead_letter_task(&broker, &full).await;
    let mut cut = properties("default.normal");
    cut.headers.insert(HEADER_BODY_BYTES.to_owned(), i64::try_from(MESSAGE_BYTES_MAX + 1).unwrap().into());
    let cut_id = cut.message_id.clone().unwrap();
    dead_letter(&broker, body(&kernels::saxpy())[..100].to_vec(), cut).await;
    let ids = dead_letter_many(&broker, MANY).await;

    let replayed = dead(&ground, &["replay", "--all"]).await;
    assert_eq!(replayed.code, 3, "{}", replayed.stderr);
    let old: Vec<&str> = replayed.stdout.lines().map(|line| line.split_once("  ->  ").unwrap().0).collect();
    assert_eq!(old, ids);
    for told in [
        "messages that are not tasks stay in the queue (1)",
        "has no room for the label replay-of",
        "2 of 42 messages were not",
    ] {
        assert!(replayed.stderr.contains(told), "{told}: {}", replayed.stderr);
    }
    poll_ready(&broker, &default_queue(), MANY).await;
    poll_letters(&broker, 3).await;

    // The command gives the reason for each id that it refuses.
    let full_id = full.job_id.to_string();
    let refusals = [
        (&events_id, LEDGER_QUEUE),
        (&full_id, "replay-of"),
        (&cut_id, "has only the first 100 B of a task of 16.0 MiB"),
    ];
    for (id, why) in refusals {
        let refused = dead(&ground, &["replay", id]).await;
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(refused.stderr.contains(why) && !refused.stderr.contains("failed to it"), "{}", refused.stderr);
        poll_letters(&broker, 3).await;
    }
    poll_ready(&broker, &default_queue(), MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_or_unknown_id_discards_no_letter() {
    let ground = Ground::shared("dead-ids").await;
    let broker = ground.broker().await;
    let id = dead_letter_many(&broker, 1).await.remove(0);
    for (typed, code) in [("", 2), (" ", 2), ("-", 2), (&id[..3], 9), ("ffff", 9)] {
        let refused = dead(&ground, &["discard", "--", typed]).await;
        assert_eq!(refused.code, code, "{typed:?}: {}{}", refused.stdout, refused.stderr);
        poll_letters(&broker, 1).await;
    }
    let typed = id.replace('-', "").to_uppercase();
    let discarded = dead(&ground, &["discard", &typed[..20]]).await;
    assert_eq!(discarded.stdout, format!("discarded {id}\n"), "{}", discarded.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_two_letters_is_replayed_once() {
    let ground = Ground::shared("dead-twice").await;
    let broker = ground.broker().await;
    for (index, replay) in [["replay", "--all"], ["replay", "ID"]].iter().enumerate() {
        let task = kernels::saxpy();
        dead_letter_task(&broker, &task).await;
        dead_letter_task(&broker, &task).await;
        let id = task.job_id.to_string();
        let arguments: Vec<&str> = replay.iter().map(|word| if *word == "ID" { id.as_str() } else { word }).collect();
        let replayed = dead(&ground, &arguments).await;
        assert_eq!((replayed.code, replayed.stdout.lines().count()), (0, 1), "{}", replayed.stderr);
        assert!(replayed.stderr.contains("submitted once"), "{}", replayed.stderr);
        poll_letters(&broker, 0).await;
        poll_ready(&broker, &default_queue(), index + 1).await;
    }
}

/// The broker's list of deaths then begins with the retry queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_broker_dead_letters_after_a_retry_wait_can_be_replayed() {
    let ground = Ground::shared("dead-rung").await;
    let broker = ground.broker().await;
    let task = kernels::saxpy();
    let routing_key = task_key(&PoolName::default(), Priority::Normal);
    let rung = Message {
        exchange: RETRY_LADDER[0].name,
        routing_key,
        body: body(&task),
        properties: Properties { content_type: Some("application/msgpack".to_owned()), ..Properties::default() },
    };
    broker.publish(rung).await.unwrap();
    // The message reaches its delivery limit without being settled.
    let mut consumer = broker.consume(default_queue(), 1);
    poll_until("the broker has dead-lettered the message", async || {
        while let Ok(Some(incoming)) = tokio::time::timeout(QUIET, consumer.next()).await {
            let Incoming::Delivery(delivery) = incoming else { continue };
            delivery.requeue().await.unwrap();
        }
        broker.queue_depth(DEAD_QUEUE).await.unwrap().unwrap().messages == 1
    })
    .await;
    drop(consumer);
    let id = task.job_id.to_string();
    let letter = dead(&ground, &["show", &id, "-o", "json"]).await.json();
    assert_eq!(letter["origin"], default_queue());
    assert_eq!(letter["reason"], "dead-lettered by the broker: delivery_limit");
    poll_letters(&broker, 1).await;
    let _worker = ground.worker().await;
    let replayed = dead(&ground, &["replay", &id]).await.ok();
    let new: JobId = replayed.stdout.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(ground.final_job(new).await.job.labels["replay-of"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_of_a_pool_without_queues_stays_until_a_worker_has_declared_them() {
    let ground = Ground::shared("dead-pool").await;
    let broker = ground.broker().await;
    dead_letter(&broker, body(&kernels::saxpy()), properties("nobodys.low")).await;
    let refused = dead(&ground, &["replay", "--all"]).await;
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    assert!(refused.stderr.contains("gpufleet-worker run --pool nobodys"), "{}", refused.stderr);
    poll_letters(&broker, 1).await;
    ground.declare_pools(&["nobodys"]).await;
    dead(&ground, &["replay", "--all"]).await.ok();
    poll_ready(&broker, &task_queue(&"nobodys".parse().unwrap(), Priority::Low), 1).await;
}

/// Fetches letters and breaks the connection, so that the broker requeues them.
async fn broken_off(ground: &Ground, broker: &Broker) -> (DeadLetters, Proxy) {
    let proxy = ground.proxy().await;
    dead_letter_many(broker, MANY).await;
    let fleet = Fleet::builder().connect(proxy.url()).await.unwrap();
    let mut dead = fleet.dead().await.unwrap();
    dead.next().await.unwrap();
    proxy.cut();
    // Some letters may have been delivered before the connection broke.
    let broken = loop {
        match dead.next().await {
            Ok(letter) => assert!(letter.is_some(), "all letters arrived although the connection broke"),
            Err(broken) => break broken,
        }
    };
    assert!(matches!(broken, DeadError::Interrupted { .. }), "{broken:?}");
    (dead, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_letter_is_not_reported_as_discarded() {
    let ground = Ground::shared("dead-stale-drop").await;
    let broker = ground.broker().await;
    let (mut dead, _proxy) = broken_off(&ground, &broker).await;
    let stale = dead.discard(0).await.unwrap_err();
    assert!(matches!(stale, DeadError::Stale), "{stale:?}");
    drop(dead);
    poll_letters(&broker, MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_letter_is_reported_as_submitted_but_still_there() {
    let ground = Ground::shared("dead-stale-replay").await;
    let broker = ground.broker().await;
    let (mut dead, _proxy) = broken_off(&ground, &broker).await;
    let stale = dead.replay(0).await.unwrap_err();
    let DeadError::StillThere { jobs } = &stale else { panic!("{stale:?}") };
    assert!(stale.to_string().contains(&jobs[0].to_string()));
    drop(dead);
    poll_letters(&broker, MANY).await;
    poll_ready(&broker, &default_queue(), 1).await;
}
