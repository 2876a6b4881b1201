//! From the broker's queue of event batches into the ledger's tables.
//!
//! Events come in any order and possibly twice. The rows that they make follow these rules, so that only the first of two
//! rival outcomes depends on the order of arrival:
//! - A job is queued from whatever names it first. It runs while its highest attempt runs, and is queued again when that
//!   attempt was lost. Its first final outcome stays for ever.
//! - An attempt's first outcome stays, and a loss gives way to an outcome. An outcome recorded after another attempt's is
//!   superseded: kept on its attempt, without effect on the job.
//!
//! Events gather for up to 100 ms before they are committed, and while the batch before them is.
//!
//! A message is acknowledged when all of its events are committed, or those that no table can hold are confirmed in the dead
//! queue. What is unsettled when this process ends comes again and changes nothing.
//!
//! While the database is away, the batch in hand is tried again and again, and what follows waits in the broker. Before the
//! broker takes the consumer for dead, the messages go back, once, and the batch alone goes on knocking: a long outage must
//! not use up a message's deliveries. Tables that are not what they should be, or may not be written, are an outage too, whose
//! end an operator brings about: then the messages go back at once. Ending instead, to be started again, would use up a delivery
//! of everything in hand with each start, until good events are taken for poison.
//!
//! A dead queue that takes nothing (a permission that is missing, a queue that is full) is such an outage as well: after as long the messages go
//! back, once, and one dead event alone goes on knocking. What had been buried until then is buried again with its message.

use std::{pin::pin, time::Duration};

use gpufleet_schema::{Event, encoding::decode_events, topology::LEDGER_QUEUE};
use gpufleet_transport::{Acker, Broker, Consumer, Delivery, Incoming, Settled};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

mod change;
mod dead;
mod dropped;
mod merge;
mod months;
mod origin;
mod patience;
mod store;
mod write;

use dead::{Burial, DeadLetter};
pub use dropped::count_dropped_replies;
pub use patience::Patience;
pub use store::{Rejected, Store};

use crate::{LedgerError, disposition::Disposition};

/// Consumes events and records them.
#[derive(Debug)]
pub struct Recorder {
    broker: Broker,
    store: Store,
    stop: CancellationToken,
    hold_max: Duration,
    /// True while events are consumed; written here, read by whoever tells the world.
    ready: watch::Sender<bool>,
}

/// Why recording ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the recorder closed its connection to the broker")]
    BrokerClosed,
}

/// Messages in hand: enough that the next batch has arrived when one is written, few enough to hold in memory.
const PREFETCH: u16 = 64;
/// A batch ends here even if more is at hand, so that acknowledgements keep flowing.
const BATCH_EVENTS_MAX: usize = 4000;
/// The other half of the messages arrives while a batch of these is written.
const BATCH_MESSAGES_MAX: usize = PREFETCH as usize / 2;
/// How long a batch that is not full waits for more. Each commit costs the database a flush, however little it writes; at high rates
/// batches are full sooner.
const GATHER_MAX: Duration = Duration::from_millis(100);
/// RabbitMQ closes the channel of a consumer that holds a message for 30 minutes. Half of that is safe.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);

/// Some messages, taken apart.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    dead: Vec<DeadLetter>,
    ackers: Vec<Acker>,
    /// The subscription broke while these were gathered.
    interrupted: bool,
}

/// Why consuming paused.
enum Pause {
    Stopped,
    /// The database won't record for so long that the messages go back to the broker. These events are among them.
    Outage(Vec<Event>),
    /// The dead queue takes nothing for as long. This is one of its letters, whose message goes back with the others.
    Unburied(DeadLetter),
}

/// What came of trying to record some events.
enum Attempted {
    Recorded(Vec<Rejected>),
    Stopped,
    HandBack,
}

/// What a running recorder waits out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The database is away, or an operator changes a password or moves it: stopping would help neither.
    Outage,
    /// The tables are not those that this release knows, or it may not write them. That takes a person, and minutes.
    Tables,
}

impl Recorder {
    /// A recorder that works until `stop` is cancelled.
    pub fn new(broker: Broker, store: Store, stop: CancellationToken) -> Self {
        Self { broker, store, stop, hold_max: HOLD_MAX, ready: watch::Sender::new(false) }
    }

    /// How long messages are held while the database is away or the dead queue takes nothing, a quarter of an hour unless told
    /// otherwise. It has to stay below the broker's `consumer_timeout`.
    #[must_use]
    pub fn hold_at_most(self, hold_max: Duration) -> Self {
        Self { hold_max, ..self }
    }

    /// Whether events are being consumed: not before the broker has confirmed it, nor while the broker is away, nor in a long outage
    /// of the database or the dead queue, nor while its tables can't be written.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Records until told to stop: then it finishes the batch in hand, unless the database is away, and leaves the rest to the
    /// broker. Cancelled instead, the batch in hand comes again.
    pub async fn run(mut self) -> Result<(), RecorderError> {
        let ended = self.consume_until_stopped().await;
        self.store.close().await;
        ended
    }

    async fn consume_until_stopped(&mut self) -> Result<(), RecorderError> {
        loop {
            let mut consumer = self.broker.consume(LEDGER_QUEUE.to_owned(), PREFETCH);
            let pause = self.consume(&mut consumer).await;
            self.ready.send_replace(false);
            consumer.stop().await;
            // What it still holds goes back to the broker with it.
            drop(consumer);
            match pause? {
                Pause::Stopped => return Ok(()),
                Pause::Outage(events) => {
                    warn!("returned messages to the broker until the database accepts events again");
                    match self.record(&events, None).await? {
                        // They are redelivered too, with those that were rejected among them.
                        Attempted::Recorded(_) => info!("the database accepts events again"),
                        Attempted::Stopped => return Ok(()),
                        Attempted::HandBack => unreachable!("without a bound nothing is handed back"),
                    }
                }
                Pause::Unburied(letter) => {
                    warn!("returned messages to the broker until the dead-letter queue accepts messages again");
                    match letter.bury(&self.broker, &self.stop, None).await {
                        Burial::Done => info!("the dead-letter queue accepts messages again"),
                        Burial::Stopped => return Ok(()),
                        Burial::Late(_) => unreachable!("without a deadline nothing is late"),
                    }
                }
            }
        }
    }

    async fn consume(&mut self, consumer: &mut Consumer) -> Result<Pause, RecorderError> {
        loop {
            if !*self.ready.borrow() {
                tokio::select! {
                    () = self.stop.cancelled() => return Ok(Pause::Stopped),
                    () = consumer.subscribed() => {}
                }
                self.ready.send_replace(true);
                info!(queue = LEDGER_QUEUE, "consuming events");
            }
            let incoming = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Pause::Stopped),
                incoming = consumer.next() => incoming.ok_or(RecorderError::BrokerClosed)?,
            };
            let batch = gather(incoming, consumer, &self.stop).await;
            if batch.interrupted {
                self.ready.send_replace(false);
            }
            if let Some(pause) = self.settle(batch).await? {
                return Ok(pause);
            }
        }
    }

    /// Records a batch, then acknowledges it. None when all went well.
    async fn settle(&mut self, batch: Batch) -> Result<Option<Pause>, RecorderError> {
        let Batch { events, mut dead, ackers, interrupted: _ } = batch;
        let held_until = Instant::now() + self.hold_max;
        match self.record(&events, Some(held_until)).await? {
            Attempted::Recorded(rejected) => dead.extend(rejected.iter().map(DeadLetter::of_event)),
            Attempted::Stopped => return Ok(Some(Pause::Stopped)),
            Attempted::HandBack => return Ok(Some(Pause::Outage(events))),
        }
        for letter in dead {
            match letter.bury(&self.broker, &self.stop, Some(held_until)).await {
                Burial::Done => {}
                Burial::Stopped => return Ok(Some(Pause::Stopped)),
                Burial::Late(letter) => return Ok(Some(Pause::Unburied(letter))),
            }
        }
        acknowledge(&ackers).await;
        Ok(None)
    }

    /// Tries to record until it is done, or until told to stop. Given a `deadline`, the messages are to go back when it has
    /// passed, or as soon as it is clear that waiting won't be short.
    async fn record(&mut self, events: &[Event], deadline: Option<Instant>) -> Result<Attempted, RecorderError> {
        let mut patience = Patience::default();
        loop {
            match self.store.record(events).await {
                Ok(rejected) => {
                    debug!(events = events.len(), rejected = rejected.len(), "events recorded");
                    return Ok(Attempted::Recorded(rejected));
                }
                Err(problem) => {
                    let Some(obstacle) = Obstacle::of(&problem) else { return Err(problem.into()) };
                    obstacle.tell(&problem, patience.tries() + 1);
                    if deadline.is_some_and(|deadline| obstacle == Obstacle::Tables || Instant::now() >= deadline) {
                        return Ok(Attempted::HandBack);
                    }
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return Ok(Attempted::Stopped),
                () = patience.wait() => {}
            }
        }
    }
}

/// A first message, and those that come soon after it.
async fn gather(first: Incoming, consumer: &mut Consumer, stop: &CancellationToken) -> Batch {
    let mut batch = Batch::default();
    let mut due = pin!(sleep(GATHER_MAX));
    let mut incoming = Some(first);
    while let Some(next) = incoming {
        match next {
            Incoming::Delivery(delivery) => batch.take(delivery),
            // The transport subscribes again. What was in hand is recorded, and comes again to no effect.
            Incoming::Interrupted { reason } => {
                warn!(reason, "subscription interrupted; subscribing again");
                batch.interrupted = true;
            }
        }
        if batch.interrupted || batch.is_full() {
            break;
        }
        incoming = tokio::select! {
            biased;
            incoming = consumer.next() => incoming,
            () = &mut due => None,
            () = stop.cancelled() => None,
        };
    }
    batch
}

async fn acknowledge(ackers: &[Acker]) {
    let mut stale = 0_usize;
    for outcome in futures::future::join_all(ackers.iter().map(Acker::ack)).await {
        match outcome {
            Ok(Settled::Sent) => {}
            Ok(Settled::Stale) => stale += 1,
            Err(problem) => {
                error!(error = %problem, "failed to acknowledge a message");
                stale += 1;
            }
        }
    }
    if stale > 0 {
        warn!(messages = stale, "acknowledged too late; the broker redelivers the messages, which changes nothing");
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_EVENTS_MAX || self.ackers.len() >= BATCH_MESSAGES_MAX
    }

    fn take(&mut self, delivery: Delivery) {
        let exchange = delivery.exchange.clone();
        let (body, properties, acker) = delivery.into_parts();
        let decoded = decode_events(&body).map_err(|problem| problem.to_string());
        let checked = decoded.and_then(|events| {
            origin::check(&exchange, properties.user_id.as_deref(), &events)?;
            Ok(events)
        });
        match checked {
            Ok(events) => self.events.extend(events),
            Err(reason) => self.dead.push(DeadLetter::of_message(body, properties, reason)),
        }
        self.ackers.push(acker);
    }
}

impl Obstacle {
    /// None for a defect of this program.
    fn of(error: &LedgerError) -> Option<Self> {
        match error {
            LedgerError::Unreachable { .. }
            | LedgerError::Full { .. }
            | LedgerError::TimedOut { .. }
            | LedgerError::Refused { .. }
            | LedgerError::NoDatabase { .. } => Some(Self::Outage),
            LedgerError::Schema(_) => Some(Self::Tables),
            LedgerError::Database { source, .. } => match Disposition::of(source) {
                Disposition::Retry => Some(Self::Outage),
                Disposition::Schema => Some(Self::Tables),
                Disposition::BadData | Disposition::Defect => None,
            },
        }
    }

    fn tell(self, problem: &LedgerError, tries: u32) {
        let problem = chain(problem);
        match self {
            Self::Outage => warn!(error = problem, tries, "failed to record events; trying again"),
            Self::Tables => error!(
                error = problem,
                tries,
                "failed to write the tables; run `gpufleet-ledger migrate` of this release, and run the recorder as the user who owns \
                 the tables; trying again"
            ),
        }
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
