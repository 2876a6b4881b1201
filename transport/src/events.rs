//! Lifecycle events, many to a message.
//!
//! One message per event would cost a fleet up to half of its throughput, so events ride together: a batch leaves when it is
//! full, when its first event has waited a little, or soon when somebody waits for its confirmation. A batch that the broker
//! didn't confirm is sent again under its message id until it is, or until the broker's handle is closed.

use std::sync::Arc;

use gpufleet_schema::{
    Event,
    topology::{EVENTS_CLIENT, EVENTS_WORKER},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};

use crate::{Broker, PublishError};

mod batch;
mod carrier;

use batch::{PARCEL_BYTES_MAX, weight};
use carrier::Carrier;

/// Room for events that aren't confirmed: 16 MiB, some thirty thousand of the usual size. Where the broker is away for longer
/// than that lasts, senders wait.
const ROOM_UNITS: usize = 16 << 10;
const ROOM_UNIT_BYTES: usize = 1 << 10;
/// A single event takes no more than this much of it, however large, so that it always finds room.
const UNITS_PER_SEND_MAX: usize = ROOM_UNITS / 4;

/// Collects events and publishes them. Clones share the collection. When the last goes, what is left is still sent, for up to
/// the confirm deadline; [`EventSink::flush`] before that to know that it was.
#[derive(Debug, Clone)]
pub struct EventSink {
    broker: Broker,
    parcels: mpsc::UnboundedSender<Parcel>,
    room: Arc<Semaphore>,
}

/// What goes to the carrier.
#[derive(Debug)]
enum Parcel {
    Events { events: Vec<Event>, bytes: usize, room: OwnedSemaphorePermit, confirmed: Option<Confirmed> },
    Flush(Confirmed),
}

/// Where batches go, and whom the broker vouches for in them.
#[derive(Debug, Clone)]
struct Origin {
    exchange: &'static str,
    user_id: Option<String>,
}

type Confirmed = oneshot::Sender<Result<(), PublishError>>;

impl EventSink {
    /// Starts collecting what a worker has to say. Needs [`Broker::declare_base`] once before.
    pub fn of_worker(broker: Broker) -> Self {
        Self::start(broker, Origin { exchange: EVENTS_WORKER, user_id: None })
    }

    /// Starts collecting what a client has to say, for `user_id` where the broker is to vouch for it. A worker or the recorder has to
    /// declare the ledger's queue; until then batches wait.
    pub fn of_client(broker: Broker, user_id: Option<String>) -> Self {
        Self::start(broker, Origin { exchange: EVENTS_CLIENT, user_id })
    }

    fn start(broker: Broker, origin: Origin) -> Self {
        // Unbounded, because whoever sends has got room for it first.
        let (parcels, mail) = mpsc::unbounded_channel();
        tokio::spawn(Carrier::new(broker.clone(), origin, mail).run());
        Self { broker, parcels, room: Arc::new(Semaphore::new(ROOM_UNITS)) }
    }

    /// Hands an event over, waiting while there is no room. An error means that the broker was closed, or that no message holds it.
    /// Cancelled before it returns, the event isn't sent.
    pub async fn send(&self, event: Event) -> Result<(), PublishError> {
        self.hand_over(vec![event], None).await
    }

    /// Hands an event over if there is room for it now, and gives it back if not: for callers that must not wait. An error is the same
    /// as of [`EventSink::send`].
    pub fn offer(&self, event: Event) -> Result<Option<Event>, PublishError> {
        let bytes = weight(&event);
        match self.room.clone().try_acquire_many_owned(checked_units(bytes)?) {
            Ok(room) => self.pass(vec![event], bytes, room, None).map(|()| None),
            Err(_no_room) if self.parcels.is_closed() => Err(PublishError::Closed),
            Err(_no_room) => Ok(Some(event)),
        }
    }

    /// Resolves when everything handed over so far is confirmed, or with the error of what was given up.
    /// Cancelling is harmless.
    pub async fn flush(&self) -> Result<(), PublishError> {
        let (confirmed, outcome) = oneshot::channel();
        self.parcels.send(Parcel::Flush(confirmed)).map_err(|_| PublishError::Closed)?;
        self.wait(outcome).await
    }

    /// Hands events over and resolves when they are confirmed: what goes before an acknowledgement. They ride in the next
    /// batch. After the confirm deadline the outcome is [`PublishError::Unknown`]; the events are kept and sent even so. One that no message
    /// holds is refused, and the others are sent.
    ///
    /// Cancelled while it waits for room, they aren't sent; after that they are.
    pub async fn send_confirmed(&self, events: Vec<Event>) -> Result<(), PublishError> {
        let mut outcomes = Vec::new();
        let mut refused = Ok(());
        for parcel in batch::parcels(events) {
            let (confirmed, outcome) = oneshot::channel();
            match self.hand_over(parcel, Some(confirmed)).await {
                Ok(()) => outcomes.push(outcome),
                Err(error) => refused = Err(error),
            }
        }
        for outcome in outcomes {
            self.wait(outcome).await?;
        }
        refused
    }

    /// About how many bytes of events wait for the broker's confirmation: as much of the room as they take.
    pub fn unconfirmed_bytes(&self) -> usize {
        (ROOM_UNITS - self.room.available_permits()) * ROOM_UNIT_BYTES
    }

    async fn hand_over(&self, events: Vec<Event>, confirmed: Option<Confirmed>) -> Result<(), PublishError> {
        let bytes: usize = events.iter().map(weight).sum();
        let units = checked_units(bytes)?;
        let room = tokio::select! {
            biased;
            room = self.room.clone().acquire_many_owned(units) => room.expect("the semaphore is never closed"),
            // The carrier has ended, so nothing makes room any more.
            () = self.parcels.closed() => return Err(PublishError::Closed),
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
        let parcel = Parcel::Events { events, bytes, room, confirmed };
        self.parcels.send(parcel).map_err(|_| PublishError::Closed)
    }

    async fn wait(&self, outcome: oneshot::Receiver<Result<(), PublishError>>) -> Result<(), PublishError> {
        let waited = self.broker.confirm_deadline();
        match timeout(waited, outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(PublishError::Closed)),
            Err(_) => Err(PublishError::Unknown { waited, blocked: self.broker.trouble() }),
        }
    }
}

/// The room that events take, if a message holds them.
fn checked_units(bytes: usize) -> Result<u32, PublishError> {
    if bytes > PARCEL_BYTES_MAX {
        return Err(PublishError::TooLarge { bytes, max: PARCEL_BYTES_MAX });
    }
    let units = bytes.div_ceil(ROOM_UNIT_BYTES).clamp(1, UNITS_PER_SEND_MAX);
    Ok(u32::try_from(units).expect("clamped to a small constant"))
}
