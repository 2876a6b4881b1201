//! The task that collects events into batches and sees them to the broker.

use std::{collections::BTreeSet, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use gpufleet_schema::topology::EVENTS_WORKER;
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, sleep_until, timeout},
};
use tracing::{error, warn};

use super::{Confirmed, Origin, Parcel, batch::Batch};
use crate::{Broker, Message, PublishError, State, backoff::Backoff};

/// Batches under way at once: enough to hide a confirm's latency; beyond them the batch that is being collected grows.
const FLIGHTS_MAX: usize = 4;

pub(super) struct Carrier {
    broker: Broker,
    origin: Origin,
    mail: mpsc::UnboundedReceiver<Parcel>,
    batch: Batch,
    batch_number: u64,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    in_flight: BTreeSet<u64>,
    flushes: Vec<Flush>,
}

struct Landed {
    number: u64,
    batch: Batch,
    outcome: Result<(), PublishError>,
}

/// A caller that waits for all batches up to a number.
struct Flush {
    up_to: u64,
    outcome: Result<(), PublishError>,
    confirmed: Confirmed,
}

impl Carrier {
    pub(super) fn new(broker: Broker, origin: Origin, mail: mpsc::UnboundedReceiver<Parcel>) -> Self {
        Self {
            broker,
            origin,
            mail,
            batch: Batch::default(),
            batch_number: 0,
            flights: FuturesUnordered::new(),
            in_flight: BTreeSet::new(),
            flushes: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut closed = std::pin::pin!(closed(self.broker.state()));
        loop {
            let due = self.batch.due();
            tokio::select! {
                biased;
                Some(landed) = self.flights.next() => self.land(landed),
                () = at(due), if due.is_some() && self.flights.len() < FLIGHTS_MAX => self.depart(),
                // With all flights under way and a full batch, senders wait for room.
                parcel = self.mail.recv(), if !self.batch.is_full() => match parcel {
                    Some(parcel) => self.take(parcel),
                    None => break self.finish().await,
                },
                () = &mut closed => break self.give_up(),
            }
        }
    }

    fn take(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Events { events, bytes, room, confirmed } => self.batch.add(events, bytes, room, confirmed),
            Parcel::Flush(confirmed) => {
                self.batch.hurry();
                // The batch in hand counts only if there is something in it.
                let up_to = if self.batch.is_empty() { self.batch_number.saturating_sub(1) } else { self.batch_number };
                self.flushes.push(Flush { up_to, outcome: Ok(()), confirmed });
                self.answer_flushes();
            }
        }
    }

    fn depart(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let number = self.batch_number;
        self.batch_number += 1;
        self.in_flight.insert(number);
        let (broker, origin) = (self.broker.clone(), self.origin.clone());
        let flight = async move {
            let outcome = match batch.message(&origin) {
                Ok(message) => carry(&broker, message).await,
                Err(error) => Err(error),
            };
            Landed { number, batch, outcome }
        };
        self.flights.push(flight.boxed());
    }

    fn land(&mut self, landed: Landed) {
        let Landed { number, batch, outcome } = landed;
        self.in_flight.remove(&number);
        if let Err(error) = &outcome {
            error!(events = batch.len(), %error, "events not published, the ledger will miss them");
            for flush in self.flushes.iter_mut().filter(|flush| number <= flush.up_to) {
                flush.outcome = Err(error.clone());
            }
        }
        for confirmed in batch.waiting {
            let _caller_gone = confirmed.send(outcome.clone());
        }
        self.answer_flushes();
    }

    fn answer_flushes(&mut self) {
        let first = self.in_flight.first().copied().unwrap_or(u64::MAX);
        let next = if self.batch.is_empty() { u64::MAX } else { self.batch_number };
        let open = first.min(next);
        for flush in self.flushes.extract_if(.., |flush| flush.up_to < open) {
            let _caller_gone = flush.confirmed.send(flush.outcome);
        }
    }

    /// All senders have gone: sends what is left, for as long as a publish may take.
    async fn finish(&mut self) {
        let deadline = self.broker.confirm_deadline();
        let rest = async {
            if !self.batch.is_empty() {
                self.depart();
            }
            while let Some(landed) = self.flights.next().await {
                self.land(landed);
            }
        };
        if timeout(deadline, rest).await.is_err() {
            error!(
                batches = self.in_flight.len(),
                "events not confirmed in time at shutdown, the ledger may miss them"
            );
        }
    }

    /// The broker is closed. Dropping the rest answers everybody who waits.
    fn give_up(&mut self) {
        let lost = self.batch.len();
        if lost > 0 || !self.in_flight.is_empty() {
            error!(
                events = lost,
                batches = self.in_flight.len(),
                "events not confirmed before the connection closed, the ledger may miss them"
            );
        }
    }
}

/// Publishes until the broker has it. Gives up only where trying again can't help.
async fn carry(broker: &Broker, message: Message) -> Result<(), PublishError> {
    let mut backoff = Backoff::default();
    loop {
        let error = match broker.publish_events(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match &error {
            PublishError::Timeout { .. } | PublishError::Unknown { .. } | PublishError::Nacked { .. } => {}
            // An operator deleted the ledger's queue. A client waits until a worker or the recorder declares it again.
            PublishError::Unroutable { .. } | PublishError::NoExchange { .. } if message.exchange == EVENTS_WORKER => {
                if let Err(error) = broker.declare_base().await {
                    warn!(%error, "failed to declare the ledger's queue again");
                }
            }
            PublishError::Unroutable { .. } | PublishError::NoExchange { .. } => {}
            PublishError::Closed
            | PublishError::Forbidden { .. }
            | PublishError::TooLarge { .. }
            | PublishError::HeaderTooLarge { .. }
            | PublishError::PropertyTooLong { .. }
            | PublishError::Refused { .. } => return Err(error),
        }
        let delay: Duration = backoff.next();
        warn!(%error, ?delay, "events not published yet, trying again");
        sleep(delay).await;
    }
}

async fn at(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn closed(mut state: watch::Receiver<State>) {
    // An error means that its writer has ended, which is as closed as can be.
    let _gone = state.wait_for(|state| *state == State::Closed).await;
}
