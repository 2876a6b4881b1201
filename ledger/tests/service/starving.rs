//! The messages of one client take little of the recorder's memory, whatever they contain, and do not delay other users' events for long.

use gpufleet_schema::{
    Event, JobId, JobInfo, Submitted,
    bounds::{CLIENT_EVENTS_BYTES_MAX, MESSAGE_BYTES_MAX},
    encoding::encode_events,
    topology::{DEAD_QUEUE, HEADER_BODY_BYTES, HEADER_REASON},
};
use gpufleet_transport::{Consumer, Delivery, Incoming};

use crate::{
    ground::{Ground, succeeded},
    poll::WAIT,
};

/// The maximum memory of a recorder. It leaves room for the messages that the prefetch holds and for a batch.
const MEMORY_MAX: u64 = 256 << 20;

/// Returns an event with many labels. Each label takes twenty times as much memory as it has bytes in the message.
fn submitted(labels: usize) -> Event {
    let labels = (0..labels).map(|label| (format!("{label:x}"), String::new())).collect();
    let job = JobInfo { labels, ..JobInfo::new(JobId::new(), "saxpy") };
    Event::Submitted(Submitted { job, at_ms: 1_763_164_800_000 })
}

/// Returns the largest body that the broker accepts, with one event.
fn largest_body() -> Vec<u8> {
    // A label takes a byte for each length, and up to six for its number.
    let body = encode_events(&[submitted(MESSAGE_BYTES_MAX / 8)]).unwrap();
    assert!(body.len() <= MESSAGE_BYTES_MAX && body.len() > MESSAGE_BYTES_MAX / 4 * 3, "{} bytes", body.len());
    body
}

async fn delivery(consumer: &mut Consumer) -> Delivery {
    match tokio::time::timeout(WAIT, consumer.next()).await.expect("a dead letter comes in time") {
        Some(Incoming::Delivery(delivery)) => delivery,
        other => panic!("a dead letter was to come: {other:?}"),
    }
}

#[tokio::test]
async fn the_largest_messages_of_a_client_are_refused_before_they_are_decoded() {
    /// The number of messages. To exceed the recorder's prefetch would take 1 GiB of bodies.
    const MESSAGES: usize = 12;
    let ground = Ground::fresh().await;
    let body = largest_body();
    for _ in 0..MESSAGES {
        ground.publish_submissions(body.clone()).await;
    }
    let recorder = ground.record().await;
    ground.publish(&[succeeded(JobId::new())]).await;
    ground.poll_recorded(1).await;
    let mut dead = ground.broker.consume(DEAD_QUEUE.to_owned(), 10);
    for _ in 0..MESSAGES {
        let letter = delivery(&mut dead).await;
        let reason = letter.properties.header_text(HEADER_REASON).unwrap();
        assert!(reason.contains(&format!("events of {} bytes", body.len())), "{reason}");
        assert!(letter.body.len() <= 4 << 10, "{} bytes are kept", letter.body.len());
        assert_eq!(letter.properties.header_int(HEADER_BODY_BYTES), i64::try_from(body.len()).ok());
        letter.ack().await.unwrap();
    }
    let peak = recorder.memory_bytes("VmHWM");
    println!("the recorder took up to {} MiB", peak >> 20);
    assert!(peak < MEMORY_MAX, "the recorder took {} MiB", peak >> 20);
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
}

/// Each message is as large as a client's may be, and each event has many more labels than a job may have.
#[tokio::test]
async fn messages_of_the_size_that_a_client_may_send_take_bounded_memory() {
    const MESSAGES: usize = 12;
    let ground = Ground::fresh().await;
    for _ in 0..MESSAGES {
        ground.publish_submissions(full_body()).await;
    }
    let recorder = ground.record().await;
    ground.publish(&[succeeded(JobId::new())]).await;
    ground.poll_recorded(1).await;
    let peak = recorder.memory_bytes("VmHWM");
    println!("the recorder took up to {} MiB", peak >> 20);
    assert!(peak < MEMORY_MAX, "the recorder took {} MiB", peak >> 20);
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0, "nothing was returned");
    let dead = ground.broker.queue_depth(DEAD_QUEUE).await.unwrap().unwrap();
    assert_eq!(dead.messages, 0, "no message was refused");
}

/// Returns a body with as many events as a client's message may have.
fn full_body() -> Vec<u8> {
    let one = encode_events(&[submitted(100)]).unwrap().len();
    let events: Vec<Event> = (0..CLIENT_EVENTS_BYTES_MAX / one).map(|_| submitted(100)).collect();
    encode_events(&events).unwrap()
}
