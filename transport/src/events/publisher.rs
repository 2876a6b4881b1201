//! The task that publishes batches of events until the broker confirms them.

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, try_join_all},
    stream::FuturesUnordered,
};
use gpufleet_schema::topology::EVENTS_WORKER;
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tracing::{error, warn};

use super::{
    Origin, ToPublisher,
    batch::Batch,
    group_commit::{GroupCommit, Number},
};
use crate::{Broker, Message, PublishError, State, backoff::Backoff};

pub(super) struct EventPublisher {
    broker: Broker,
    origin: Origin,
    requests: mpsc::UnboundedReceiver<ToPublisher>,
    commits: GroupCommit,
    publishes: FuturesUnordered<BoxFuture<'static, Published>>,
}

/// A batch that the broker has confirmed or that is lost.
struct Published {
    number: Number,
    batch: Batch,
    outcome: Result<(), PublishError>,
}

impl EventPublisher {
    pub(super) fn new(broker: Broker, origin: Origin, requests: mpsc::UnboundedReceiver<ToPublisher>) -> Self {
        Self { broker, origin, requests, commits: GroupCommit::default(), publishes: FuturesUnordered::new() }
    }

    pub(super) async fn run(mut self) {
        let mut closed = std::pin::pin!(closed(self.broker.state()));
        loop {
            self.take_ready_requests();
            while let Some((number, batch)) = self.commits.take_due() {
                self.start(number, batch);
            }
            tokio::select! {
                biased;
                Some(published) = self.publishes.next() => self.settle(published),
                // While a full batch can't leave, requests wait in the channel, and their senders for room.
                request = self.requests.recv(), if !self.commits.is_full() => match request {
                    Some(request) => self.take(request),
                    None => break self.finish().await,
                },
                () = &mut closed => break self.give_up(),
            }
        }
    }

    /// Takes the requests that have arrived, so that the events of one burst leave together.
    fn take_ready_requests(&mut self) {
        while !self.commits.is_full() {
            match self.requests.try_recv() {
                Ok(request) => self.take(request),
                Err(_) => break,
            }
        }
    }

    fn take(&mut self, request: ToPublisher) {
        match request {
            ToPublisher::Events(addition) => self.commits.add(addition),
            ToPublisher::Flush(confirmed) => self.commits.flush(confirmed),
        }
    }

    fn start(&mut self, number: Number, batch: Batch) {
        let (broker, origin) = (self.broker.clone(), self.origin.clone());
        let publish = async move {
            let outcome = match batch.messages(&origin) {
                Ok(messages) => {
                    try_join_all(messages.into_iter().map(|message| publish(&broker, message))).await.map(drop)
                }
                Err(error) => Err(error),
            };
            Published { number, batch, outcome }
        };
        self.publishes.push(publish.boxed());
    }

    fn settle(&mut self, published: Published) {
        let Published { number, batch, outcome } = published;
        if let Err(error) = &outcome {
            error!(events = batch.len(), %error, "events not published, the ledger will miss them");
        }
        self.commits.settle(number, batch, &outcome);
    }

    /// All senders are gone. Publishes the rest, within the confirm deadline.
    async fn finish(&mut self) {
        let deadline = self.broker.confirm_deadline();
        let rest = async {
            if let Some((number, batch)) = self.commits.take_rest() {
                self.start(number, batch);
            }
            while let Some(published) = self.publishes.next().await {
                self.settle(published);
            }
        };
        if timeout(deadline, rest).await.is_err() {
            error!(
                batches = self.commits.unconfirmed(),
                "events not confirmed in time at shutdown, the ledger may miss them"
            );
        }
    }

    /// The broker's handle is closed. Dropping the rest answers every caller that waits.
    fn give_up(&mut self) {
        let (events, batches) = (self.commits.gathered(), self.commits.unconfirmed());
        if events > 0 || batches > 0 {
            error!(events, batches, "events not confirmed before the connection closed, the ledger may miss them");
        }
    }
}

/// Publishes until the broker confirms, or until it is clear that no attempt can succeed.
async fn publish(broker: &Broker, message: Message) -> Result<(), PublishError> {
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
            | PublishError::Order(_)
            | PublishError::HeaderTooLarge { .. }
            | PublishError::PropertyTooLong { .. }
            | PublishError::Refused { .. } => return Err(error),
        }
        let delay = backoff.next();
        warn!(%error, ?delay, "events not published yet, trying again");
        sleep(delay).await;
    }
}

async fn closed(mut state: watch::Receiver<State>) {
    // An error means that the task that writes the state has ended, so the connection is closed too.
    let _ended = state.wait_for(|state| *state == State::Closed).await;
}
