//! The witness: records every event and reply of a scenario through a queue that gets a copy of each.

use std::sync::{Arc, Mutex};

use gpufleet_local::LocalFleet;
use gpufleet_schema::{
    Encoding, Event, JobId, encoding,
    topology::{EVENTS_BINDING, EVENTS_CLIENT, EVENTS_WORKER, REPLIES},
};
use gpufleet_transport::{Broker, Delivery, Incoming, Options};
use tokio::task::AbortHandle;

use crate::{
    Ground, WAIT,
    history::{ReplyOutcome, SeenReply},
    node,
    poll::poll_until,
};

/// The queue of the copies. It gets events from the start, and the replies of each producer once the producer exists.
pub(crate) const QUEUE: &str = "scenario.witness";
const PREFETCH: u16 = 500;

#[derive(Debug)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    reader: AbortHandle,
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    replies: Vec<SeenReply>,
}

impl Witness {
    /// Declares the queue and binds it to the events. The recorder has declared the exchange.
    pub(crate) async fn make_queue(fleet: &LocalFleet) {
        // The copies survive the loss of a cluster's node, as the originals do.
        let kind = if fleet.services().nodes().len() > 1 { "quorum" } else { "classic" };
        node::declare_queue(fleet, QUEUE, &format!("[{{<<\"x-queue-type\">>, longstr, <<\"{kind}\">>}}]")).await;
        for exchange in [EVENTS_CLIENT, EVENTS_WORKER] {
            node::bind_queue(fleet, QUEUE, exchange, EVENTS_BINDING).await;
        }
    }

    /// Starts to consume. The exchanges and [`QUEUE`] must exist.
    pub(crate) async fn begin(amqp_url: &str) -> Self {
        let options = Options::new(amqp_url.parse().unwrap(), "a scenario's witness");
        let broker = Broker::connect(Options { connect_deadline: WAIT, ..options }).await.unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let reader = tokio::spawn(look(broker, Arc::clone(&seen))).abort_handle();
        Self { seen, reader }
    }

    pub(crate) fn seen(&self) -> (Vec<Event>, Vec<SeenReply>) {
        let seen = self.seen.lock().unwrap();
        (seen.events.clone(), seen.replies.clone())
    }
}

impl Ground {
    /// Returns the events that the broker has accepted so far. Some may be duplicates.
    pub fn seen_events(&self) -> Vec<Event> {
        self.witness.seen().0
    }

    /// Waits until a worker has reported that the job runs. The ledger shows that only while the job runs.
    pub async fn poll_started(&self, job_id: JobId) {
        let told = |event: &Event| matches!(event, Event::Started(start) if start.job.job_id == job_id);
        poll_until("the job has started", async || self.seen_events().iter().any(told)).await;
    }

    /// Describes the copies that are in the queue or that the witness has not acknowledged.
    pub(crate) async fn unread_copies(&self) -> String {
        let counted = node::info_of(QUEUE, "messages_ready,messages_unacknowledged,consumers");
        self.erlang(&format!("{counted}, I.")).await
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn look(broker: Broker, seen: Arc<Mutex<Seen>>) {
    let mut consumer = broker.consume(QUEUE.to_owned(), PREFETCH);
    while let Some(incoming) = consumer.next().await {
        let Incoming::Delivery(delivery) = incoming else { continue };
        seen.lock().unwrap().take(&delivery);
        // An acknowledgement may be lost. Then the message is redelivered and recorded twice.
        let _settled = delivery.ack().await;
    }
}

impl Seen {
    fn take(&mut self, delivery: &Delivery) {
        match delivery.exchange.as_str() {
            EVENTS_CLIENT | EVENTS_WORKER => {
                self.events.extend(encoding::decode_events(&delivery.body).expect("events can be read"));
            }
            REPLIES => self.replies.extend(replies(delivery)),
            other => panic!("a message from exchange {other:?}"),
        }
    }
}

fn replies(delivery: &Delivery) -> Vec<SeenReply> {
    let content_type = delivery.properties.content_type.as_deref().unwrap_or_default();
    let encoding = Encoding::of_content_type(content_type).expect("replies have a content type");
    let replies = encoding.decode_replies(&delivery.body).expect("replies can be read");
    // A reply without an id answers a message that names no job.
    let seen = |reply: &gpufleet_schema::Reply<'_>| {
        let outcome = ReplyOutcome { state: reply.state, attempt: reply.attempt };
        Some(SeenReply { job_id: reply.job_id?, outcome })
    };
    replies.as_slice().iter().filter_map(seen).collect()
}
