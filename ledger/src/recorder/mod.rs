//! Moves batches of events from the broker's queue into the ledger's tables.
//!
//! Events arrive in any order and possibly twice. Their rows follow these rules, so that the order of arrival matters only if a job has two
//! final outcomes:
//! - A job is queued from its first event on. It is running while its highest attempt runs, and queued again if that attempt was lost. Its
//!   first final outcome never changes.
//! - An attempt keeps its first outcome, but an outcome replaces a loss. An outcome that is recorded after the final outcome of another
//!   attempt is superseded: the attempt keeps it, and the job does not change.
//! - An event of a kind that this release does not know is recorded as text. An event that can't be read is dead-lettered alone.
//!
//! Events gather for up to 100 ms before a commit, and while an earlier commit runs.
//!
//! The recorder acknowledges a message when all of its events are committed or dead-lettered. It dead-letters events that no table can
//! hold. When the process ends, the broker redelivers the unacknowledged messages. Recording their events again changes nothing.
//!
//! Outages:
//! - **Database.** The recorder retries the current batch, and later messages wait in the broker. Before the broker times the consumer out,
//!   the recorder returns the messages once and retries the batch alone, because every return counts as a delivery of the message.
//! - **Tables of another version, or without write permission.** An operator must act, so the recorder returns the messages at once and
//!   retries the batch alone. It does not exit, because each restart would count as a delivery of every message that it holds, until the
//!   broker dead-letters valid messages.
//! - **Dead-letter queue** (full, or without permission). The recorder retries as long as for the database. Then it returns the messages
//!   and retries one dead letter alone. Letters that are already published are published again with their messages.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gpufleet_schema::{Event, Events, topology::LEDGER_QUEUE};
use gpufleet_telemetry::Traces;
use gpufleet_transport::{Acker, Backoff, Broker, Consumer, Delivery, Incoming, Settled};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

mod change;
mod dead;
mod dropped;
mod merge;
mod metrics;
mod months;
mod origin;
mod rollups;
mod samples;
mod store;
mod upkeep;
mod write;

use dead::{DeadLetter, Published};
pub use dropped::count_dropped_replies;
pub use metrics::Metrics;
use origin::Origin;
pub use store::{Rejected, Store};

use crate::{LedgerError, disposition::Disposition, error::chain};

/// Consumes events and records them.
#[derive(Debug)]
pub struct Recorder {
    broker: Broker,
    store: Store,
    stop: CancellationToken,
    hold_max: Duration,
    /// Whether the recorder consumes events. The recorder sets it; the tasks that show readiness read it.
    ready: watch::Sender<bool>,
    /// None if metrics are not served.
    metrics: Option<Arc<Metrics>>,
    /// None if the environment names no collector.
    traces: Option<Traces>,
}

/// The reason why recording ended without a stop.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the recorder closed its connection to the broker")]
    BrokerClosed,
}

/// The maximum number of unacknowledged messages: enough that the next batch arrives while one is committed, and few enough to hold in
/// memory.
const PREFETCH: u16 = 64;
/// The number of events that makes a batch full. A larger batch would delay acknowledgements.
const BATCH_EVENTS_MAX: usize = 4000;
/// The number of messages that makes a batch full: half of the prefetch. The other half arrives while the batch is committed.
const BATCH_MESSAGES_MAX: usize = PREFETCH as usize / 2;
/// The size of bodies that makes a batch full. Its events and rows take many times as much memory.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long a batch that is not full waits for more events. Each commit costs the database a flush, however little it writes. At high rates
/// batches are full sooner.
const GATHER_MAX: Duration = Duration::from_millis(100);
/// How long the recorder holds messages during an outage. RabbitMQ closes the channel of a consumer that holds a message for 30 minutes;
/// half of that is safe.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);

/// The contents of several messages.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    dead: Vec<DeadLetter>,
    ackers: Vec<Acker>,
    /// The size of the messages' bodies.
    bytes: usize,
    /// Whether the subscription was interrupted while the messages gathered.
    interrupted: bool,
}

/// The reason why consuming paused.
enum Pause {
    Stopped,
    /// The database has refused these events for so long that the recorder returns their messages to the broker.
    Database(Vec<Event>),
    /// The dead-letter queue has refused this letter for as long. The recorder returns its message with the others.
    DeadLetters(DeadLetter),
}

/// The outcome of recording a batch.
enum Recorded {
    Done(Vec<Rejected>),
    Stopped,
    /// The deadline has passed: the messages must be returned to the broker.
    Late,
}

/// An outage that a running recorder waits out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The database is unreachable, or an operator is moving it or changing its password.
    Outage,
    /// The tables have another version, or the user may not write them. An operator needs minutes to repair that.
    Tables,
}

impl Recorder {
    /// Returns a recorder that runs until `stop` is cancelled.
    pub fn new(broker: Broker, store: Store, stop: CancellationToken) -> Self {
        Self { broker, store, stop, hold_max: HOLD_MAX, ready: watch::Sender::new(false), metrics: None, traces: None }
    }

    /// Sets how long the recorder holds messages during an outage of the database or of the dead-letter queue. The default is 15 minutes.
    /// It must be shorter than the broker's `consumer_timeout`.
    #[must_use]
    pub fn hold_at_most(self, hold_max: Duration) -> Self {
        Self { hold_max, ..self }
    }

    /// Lets the recorder count in these metrics.
    #[must_use]
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { store: self.store.metrics(Arc::clone(&metrics)), metrics: Some(metrics), ..self }
    }

    /// Exports a span for each recorded attempt.
    #[must_use]
    pub fn traces(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// Returns whether the recorder consumes events: the broker has confirmed the subscription, and no outage has made the recorder return
    /// its messages.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Records until stopped. A stop finishes the current batch, unless the database is unreachable, and leaves the rest to the broker. If
    /// cancelled, the broker redelivers the current batch.
    pub async fn run(mut self) -> Result<(), RecorderError> {
        let ended = self.consume_until_stopped().await;
        self.store.close().await;
        ended
    }

    async fn consume_until_stopped(&mut self) -> Result<(), RecorderError> {
        loop {
            let mut consumer = self.broker.consume_bounded(LEDGER_QUEUE.to_owned(), PREFETCH, origin::bytes_max);
            let pause = self.consume(&mut consumer).await;
            self.ready.send_replace(false);
            consumer.stop().await;
            // The broker requeues the messages that the consumer still holds.
            drop(consumer);
            match pause? {
                Pause::Stopped => return Ok(()),
                Pause::Database(events) => {
                    warn!("returned messages to the broker until the database accepts events again");
                    match self.record(&events, None).await? {
                        // The broker redelivers these events, including the rejected ones.
                        Recorded::Done(_) => info!("the database accepts events again"),
                        Recorded::Stopped => return Ok(()),
                        Recorded::Late => unreachable!("without a deadline nothing is late"),
                    }
                }
                Pause::DeadLetters(letter) => {
                    warn!("returned messages to the broker until the dead-letter queue accepts messages again");
                    match letter.publish(&self.broker, &self.stop, None).await {
                        Published::Done => info!("the dead-letter queue accepts messages again"),
                        Published::Stopped => return Ok(()),
                        Published::Late(_) => unreachable!("without a deadline nothing is late"),
                    }
                }
            }
        }
    }

    async fn consume(&mut self, consumer: &mut Consumer) -> Result<Pause, RecorderError> {
        // The first check comes before the recorder is ready, so that the blobs of a new fleet can be pruned at once.
        let mut look_at = Instant::now();
        let mut upkeep_at = look_at + upkeep::PAUSE;
        loop {
            if Instant::now() >= look_at {
                look_at = Instant::now() + self.note_caught_up().await;
            }
            if Instant::now() >= upkeep_at {
                let is_left = self.upkeep().await;
                upkeep_at = Instant::now() + if is_left { upkeep::PAUSE } else { upkeep::INTERVAL };
            }
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
                () = sleep_until(upkeep_at.min(look_at)) => continue,
            };
            let received = SystemTime::now();
            let batch = gather(incoming, consumer, &self.stop).await;
            if batch.interrupted {
                self.ready.send_replace(false);
            }
            if let Some(pause) = self.settle(batch, received).await? {
                return Ok(pause);
            }
        }
    }

    /// Notes that all events are recorded, if no event waits. Returns the time until the next check.
    async fn note_caught_up(&mut self) -> Duration {
        // Messages that recorders hold are not counted. They are recorded soon, or return to the queue.
        match self.broker.queue_depth(LEDGER_QUEUE).await {
            Ok(Some(depth)) if depth.messages == 0 => {}
            Ok(_) => return upkeep::PAUSE,
            Err(problem) => {
                warn!(problem = chain(&problem), "failed to look whether events wait");
                return upkeep::LOOK_INTERVAL;
            }
        }
        if let Err(problem) = self.store.note_caught_up(Duration::ZERO).await {
            warn!(problem = chain(&problem), "failed to note that all events are recorded");
        }
        upkeep::LOOK_INTERVAL
    }

    /// Does the regular work on the tables. Returns whether some is left to do soon. An error is only logged, because the next interval
    /// retries.
    async fn upkeep(&mut self) -> bool {
        self.store.upkeep().await.unwrap_or_else(|problem| {
            warn!(problem = chain(&problem), "upkeep of the tables failed");
            false
        })
    }

    /// Records a batch, then acknowledges it. Returns the reason if consuming must pause.
    async fn settle(&mut self, batch: Batch, received: SystemTime) -> Result<Option<Pause>, RecorderError> {
        let Batch { events, mut dead, ackers, .. } = batch;
        let held_until = Instant::now() + self.hold_max;
        match self.record(&events, Some(held_until)).await? {
            Recorded::Done(rejected) => {
                self.trace(&events, &rejected, received);
                dead.extend(rejected.iter().map(DeadLetter::of_event));
            }
            Recorded::Stopped => return Ok(Some(Pause::Stopped)),
            Recorded::Late => return Ok(Some(Pause::Database(events))),
        }
        for letter in dead {
            if let Some(metrics) = &self.metrics {
                metrics.dead_lettered();
            }
            match letter.publish(&self.broker, &self.stop, Some(held_until)).await {
                Published::Done => {}
                Published::Stopped => return Ok(Some(Pause::Stopped)),
                Published::Late(letter) => return Ok(Some(Pause::DeadLetters(letter))),
            }
        }
        acknowledge(&ackers).await;
        Ok(None)
    }

    /// Exports a span for each attempt among the recorded events.
    fn trace(&self, events: &[Event], rejected: &[Rejected], received: SystemTime) {
        let Some(traces) = &self.traces else { return };
        for event in events {
            if let Event::AttemptFinished(finished) = event
                && !rejected.iter().any(|rejected| rejected.event == *event)
            {
                traces.recorded(finished, received);
            }
        }
    }

    /// Retries until the events are recorded or the recorder is stopped. With a `deadline`, gives up when it has passed, or at once if an
    /// operator must act first.
    async fn record(&mut self, events: &[Event], deadline: Option<Instant>) -> Result<Recorded, RecorderError> {
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        loop {
            match self.store.record(events).await {
                Ok(rejected) => {
                    if let Some(metrics) = &self.metrics {
                        metrics.recorded(events, begun.elapsed());
                    }
                    debug!(events = events.len(), rejected = rejected.len(), "events recorded");
                    return Ok(Recorded::Done(rejected));
                }
                Err(problem) => {
                    let Some(obstacle) = Obstacle::of(&problem) else { return Err(problem.into()) };
                    obstacle.log(&problem, backoff.attempt() + 1);
                    if deadline.is_some_and(|deadline| obstacle == Obstacle::Tables || Instant::now() >= deadline) {
                        return Ok(Recorded::Late);
                    }
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return Ok(Recorded::Stopped),
                () = backoff.wait() => {}
            }
        }
    }
}

/// Gathers a first message and those that arrive soon after it.
async fn gather(first: Incoming, consumer: &mut Consumer, stop: &CancellationToken) -> Batch {
    let mut batch = Batch::default();
    let mut due = pin!(sleep(GATHER_MAX));
    let mut incoming = Some(first);
    while let Some(next) = incoming {
        match next {
            Incoming::Delivery(delivery) => batch.take(delivery),
            // The transport subscribes again, and the broker redelivers the gathered messages, which changes nothing.
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
    for outcome in Acker::ack_all(&ackers.iter().collect::<Vec<_>>()).await {
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
        self.events.len() >= BATCH_EVENTS_MAX
            || self.ackers.len() >= BATCH_MESSAGES_MAX
            || self.bytes >= BATCH_BYTES_MAX
    }

    fn take(&mut self, delivery: Delivery) {
        self.bytes += delivery.body.len();
        match events_of(&delivery) {
            Ok(Events { events, unreadable }) => {
                self.events.extend(events);
                self.dead.extend(unreadable.into_iter().map(DeadLetter::of_unreadable));
                self.ackers.push(delivery.acker);
            }
            Err(reason) => {
                let (letter, acker) = DeadLetter::of_delivery(delivery, reason);
                self.dead.push(letter);
                self.ackers.push(acker);
            }
        }
    }
}

/// Decodes the events of a message, or returns why the recorder refuses them.
fn events_of(delivery: &Delivery) -> Result<Events, String> {
    let origin = Origin {
        exchange: &delivery.exchange,
        routing_key: &delivery.routing_key,
        user_id: delivery.properties.user_id.as_deref(),
    };
    if delivery.is_cut() {
        return Err(origin.too_large(delivery.body_bytes));
    }
    let mut events = Events::decode(&delivery.body).map_err(|problem| problem.to_string())?;
    origin.check(&mut events.events)?;
    Ok(events)
}

impl Obstacle {
    /// Classifies an error. `None` if it is a defect of this program.
    fn of(error: &LedgerError) -> Option<Self> {
        match error.disposition() {
            Disposition::Retry => Some(Self::Outage),
            Disposition::Schema => Some(Self::Tables),
            Disposition::BadData | Disposition::Defect => None,
        }
    }

    fn log(self, problem: &LedgerError, tries: u32) {
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
