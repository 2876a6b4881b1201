//! Lifecycle events, published in batches.
//!
//! One message per event would cost a fleet up to half of its throughput. Therefore events gather while the batch before them is
//! unconfirmed ([`GroupCommit`]), and for two milliseconds at least. A batch that the broker does not confirm is published again under the
//! same message id, until the broker confirms it or its handle is closed.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::try_join_all;
use gpufleet_schema::{
    Event,
    topology::{EVENTS_ACTION_KEY, EVENTS_CLIENT, EVENTS_KEY, EVENTS_WORKER, submissions_key},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{sleep, timeout},
};
use tracing::{error, warn};

use crate::{Broker, GroupCommit, Message, PublishError, State, Turn, backoff::Backoff};

mod batch;

use batch::{ADDED_BYTES_MAX, Addition, EventBatch, weight};

/// The room for unconfirmed events: 16 MiB, about 30,000 events of the usual size. When an outage of the broker fills it, senders
/// wait.
const ROOM_UNITS: usize = 16 << 10;
const ROOM_UNIT_BYTES: usize = 1 << 10;
/// The time for which events gather before each batch. Only an acknowledgement waits for them, so they need not compete with a reply.
const GATHERING: Duration = Duration::from_millis(2);
/// The most room that one send takes, so that a large event is not starved by small ones.
const UNITS_PER_SEND_MAX: usize = ROOM_UNITS / 4;

/// Publishes events in batches. Clones share the batches. After the last clone is dropped, each remaining batch is tried once more; call
/// [`EventSink::flush`] first to wait for the confirms.
#[derive(Debug, Clone)]
pub struct EventSink {
    broker: Broker,
    origin: Origin,
    batches: GroupCommit<(), EventBatch>,
    room: Arc<Semaphore>,
    /// Dropped with the last clone.
    alive: Arc<()>,
    /// Runs the tasks that publish, because callers may be outside of the runtime.
    runtime: Handle,
}

/// The exchange for the batches, and the user whose name the broker verifies.
#[derive(Debug, Clone)]
struct Origin {
    exchange: &'static str,
    user_id: Option<String>,
}

impl Origin {
    /// The key that RabbitMQ checks. The events of a client have keys by their kind and pool.
    fn routing_key(&self, event: &Event) -> String {
        match event {
            Event::Submitted(submitted) if self.exchange == EVENTS_CLIENT => submissions_key(&submitted.job.pool),
            Event::Action(_) if self.exchange == EVENTS_CLIENT => EVENTS_ACTION_KEY.to_owned(),
            _ => EVENTS_KEY.to_owned(),
        }
    }
}

type Confirmed = oneshot::Sender<Result<(), PublishError>>;

impl Broker {
    /// Publishes an event in a message of its own, and returns when the broker has confirmed it. The broker verifies `user_id` if it is
    /// given. If cancelled, the event may or may not have been published.
    pub async fn report_alone(&self, event: Event, user_id: Option<String>) -> Result<(), PublishError> {
        let messages = EventBatch::of_one(event).messages(&Origin { exchange: EVENTS_CLIENT, user_id })?;
        try_join_all(messages.into_iter().map(|message| self.publish(message))).await.map(drop)
    }
}

impl EventSink {
    /// Creates a sink for the events of a worker. Requires an earlier [`Broker::declare_base`].
    pub fn of_worker(broker: Broker) -> Self {
        Self::start(broker, Origin { exchange: EVENTS_WORKER, user_id: None })
    }

    /// Creates a sink for the events of a client. The broker verifies `user_id` if it is given. Batches wait until a worker or the recorder
    /// has declared the ledger's queue.
    pub fn of_client(broker: Broker, user_id: Option<String>) -> Self {
        Self::start(broker, Origin { exchange: EVENTS_CLIENT, user_id })
    }

    fn start(broker: Broker, origin: Origin) -> Self {
        let (batches, room) = (GroupCommit::default(), Arc::new(Semaphore::new(ROOM_UNITS)));
        Self { broker, origin, batches, room, alive: Arc::new(()), runtime: Handle::current() }
    }

    /// Accepts an event, after waiting for room. An error means that the broker's handle is closed or that the event is too large for a
    /// message. If cancelled, the event is not sent.
    pub async fn send(&self, event: Event) -> Result<(), PublishError> {
        self.hand_over(vec![event], None).await
    }

    /// Accepts an event if there is room for it now, and returns it otherwise, for callers that must not wait. Its errors are those of
    /// [`EventSink::send`].
    pub fn offer(&self, event: Event) -> Result<Option<Event>, PublishError> {
        let bytes = weight(&event);
        match self.room.clone().try_acquire_many_owned(checked_units(bytes)?) {
            Ok(room) => self.pass(vec![event], bytes, room, None).map(|()| None),
            Err(_no_room) if *self.broker.state().borrow() == State::Closed => Err(PublishError::Closed),
            Err(_no_room) => Ok(Some(event)),
        }
    }

    /// Waits until no event accepted so far is unconfirmed; lost events are logged. Meanwhile, no event has room. After the confirm deadline
    /// it returns [`PublishError::Unknown`].
    pub async fn flush(&self) -> Result<(), PublishError> {
        let all = u32::try_from(ROOM_UNITS).expect("a small constant");
        self.within_deadline(self.room.acquire_many(all)).await.map(drop)
    }

    /// Accepts events and waits until they are confirmed, as an acknowledgement requires. After the confirm deadline it returns
    /// [`PublishError::Unknown`], but the events are still published. An event that is too large for a message is refused, and the others
    /// are sent.
    ///
    /// If cancelled while it waits for room, the events are not sent; later they are.
    pub async fn send_confirmed(&self, events: Vec<Event>) -> Result<(), PublishError> {
        let mut outcomes = Vec::new();
        let mut refused = Ok(());
        for part in batch::split(events) {
            let (confirmed, outcome) = oneshot::channel();
            match self.hand_over(part, Some(confirmed)).await {
                Ok(()) => outcomes.push(outcome),
                Err(error) => refused = Err(error),
            }
        }
        for outcome in outcomes {
            self.within_deadline(outcome).await?.unwrap_or(Err(PublishError::Closed))?;
        }
        refused
    }

    /// The room that unconfirmed events take, which is about their size in bytes.
    pub fn unconfirmed_bytes(&self) -> usize {
        (ROOM_UNITS - self.room.available_permits()) * ROOM_UNIT_BYTES
    }

    async fn hand_over(&self, events: Vec<Event>, confirmed: Option<Confirmed>) -> Result<(), PublishError> {
        let bytes: usize = events.iter().map(weight).sum();
        let units = checked_units(bytes)?;
        let mut state = self.broker.state();
        let room = tokio::select! {
            biased;
            room = self.room.clone().acquire_many_owned(units) => room.expect("the semaphore is never closed"),
            // No batch can be confirmed any more.
            _ = state.wait_for(|state| *state == State::Closed) => return Err(PublishError::Closed),
        };
        self.pass(events, bytes, room, confirmed)
    }

    fn pass(
        &self,
        events: Vec<Event>,
        bytes: usize,
        room: OwnedSemaphorePermit,
        confirmed: Option<Confirmed>,
    ) -> Result<(), PublishError> {
        if *self.broker.state().borrow() == State::Closed {
            return Err(PublishError::Closed);
        }
        if let Some(turn) = self.batches.add(&(), Addition { events, bytes, room, confirmed }) {
            let publishing = Publishing {
                broker: self.broker.clone(),
                origin: self.origin.clone(),
                sink: Arc::downgrade(&self.alive),
            };
            self.runtime.spawn(publishing.run(turn));
        }
        Ok(())
    }

    async fn within_deadline<T>(&self, waiting: impl Future<Output = T>) -> Result<T, PublishError> {
        let waited = self.broker.confirm_deadline();
        let too_late = |_| PublishError::Unknown { waited, blocked: self.broker.trouble() };
        timeout(waited, waiting).await.map_err(too_late)
    }
}

/// The room that events take, if they are not too large for a message.
fn checked_units(bytes: usize) -> Result<u32, PublishError> {
    if bytes > ADDED_BYTES_MAX {
        return Err(PublishError::TooLarge { bytes, max: ADDED_BYTES_MAX });
    }
    let units = bytes.div_ceil(ROOM_UNIT_BYTES).clamp(1, UNITS_PER_SEND_MAX);
    Ok(u32::try_from(units).expect("clamped to a small constant"))
}

/// Publishes batches until the broker confirms them.
struct Publishing {
    broker: Broker,
    origin: Origin,
    sink: Weak<()>,
}

impl Publishing {
    async fn run(self, mut batches: Turn<(), EventBatch>) {
        loop {
            if !batches.is_full() {
                sleep(GATHERING).await;
            }
            let Some(batch) = batches.next() else { return };
            let outcome = self.publish(&batch).await;
            if let Err(error) = &outcome {
                error!(events = batch.len(), %error, "events not published, the ledger will miss them");
            }
            for caller in batch.callers {
                let _caller_gone = caller.send(outcome.clone());
            }
        }
    }

    async fn publish(&self, batch: &EventBatch) -> Result<(), PublishError> {
        let messages = batch.messages(&self.origin)?.into_iter();
        try_join_all(messages.map(|message| self.publish_message(message))).await.map(drop)
    }

    /// Publishes until the broker confirms, until it is clear that no attempt can succeed, or until the sink is gone.
    async fn publish_message(&self, message: Message) -> Result<(), PublishError> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.broker.publish_events(message.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                PublishError::Timeout { .. } | PublishError::Unknown { .. } | PublishError::Nacked { .. } => {}
                // An operator deleted the ledger's queue. A client waits until a worker or the recorder declares it again.
                PublishError::Unroutable { .. } | PublishError::NoExchange { .. }
                    if message.exchange == EVENTS_WORKER =>
                {
                    if let Err(error) = self.broker.declare_base().await {
                        warn!(%error, "failed to declare the ledger's queue again");
                    }
                }
                PublishError::Unroutable { .. } | PublishError::NoExchange { .. } => {}
                PublishError::Closed
                | PublishError::Forbidden { .. }
                | PublishError::TooLarge { .. }
                | PublishError::Order(_)
                | PublishError::HeaderTooLarge { .. }
                | PublishError::PropertyTooLong { .. }
                | PublishError::Refused { .. } => return Err(error),
            }
            if self.sink.strong_count() == 0 {
                return Err(error);
            }
            let delay = backoff.next();
            warn!(%error, ?delay, "events not published yet, trying again");
            sleep(delay).await;
        }
    }
}
