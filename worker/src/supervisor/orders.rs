//! Reads the control log: passes its orders to the dispatcher, and the announcements of workers to the roster.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{
    Command, MessageId, Order, WorkerName, encoding,
    topology::{self, Speaker},
};
use gpufleet_transport::{Broker, Delivery, Incoming, PublishError};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, warn};

use super::{clock::unix_ms, handle::DispatcherHandle};
use crate::{
    dispatcher::{Input, ReadOrder},
    forwarding::Roster,
    shared_state::{Locked, SharedState},
};

/// The pause after the broker has not accepted a mark.
const MARK_PAUSE: Duration = Duration::from_secs(1);

/// The log of orders.
#[derive(Debug)]
pub(super) struct OrderLog {
    worker: WorkerName,
    /// The mark of this worker's start.
    mark: MessageId,
    dispatcher: Arc<DispatcherHandle>,
    /// The announcements of workers in the same log.
    roster: SharedState<Roster>,
    /// Whether all orders have been read.
    all_known: watch::Sender<bool>,
    drain: CancellationToken,
}

impl OrderLog {
    pub(super) fn new(worker: WorkerName, mark: MessageId, dispatcher: Arc<DispatcherHandle>) -> Arc<Self> {
        let (roster, all_known, drain) = (SharedState::default(), watch::Sender::new(false), CancellationToken::new());
        Arc::new(Self { worker, mark, dispatcher, roster, all_known, drain })
    }

    /// Reads the log until the broker is closed.
    pub(super) async fn follow(self: Arc<Self>, broker: Broker) {
        let mut log = broker.read(topology::CONTROL_QUEUE.to_owned());
        let mut _marking = None;
        while let Some(incoming) = log.next().await {
            match incoming {
                Incoming::Delivery(delivery) => {
                    self.read(&delivery);
                    // The ack only requests further messages; the log keeps its messages.
                    drop(delivery.ack().await);
                }
                Incoming::Interrupted { reason } => {
                    warn!(reason, "control stream interrupted");
                    let mark = MessageId::new();
                    self.dispatcher.tell(Input::OrdersInterrupted { mark });
                    let marking = Arc::clone(&self).mark_again(broker.clone(), log.status(), mark);
                    _marking = Some(AbortOnDropHandle::new(tokio::spawn(marking)));
                }
            }
        }
    }

    fn read(&self, delivery: &Delivery) {
        let speaker = Speaker::of_order(&delivery.exchange);
        if speaker.is_none() {
            warn!(exchange = delivery.exchange, "order from an unexpected exchange rejected");
        }
        // The order may be of a later version, which other workers understand.
        let order =
            encoding::decode_order(&delivery.body).inspect_err(|error| warn!(%error, "failed to decode an order")).ok();
        if let (Some(Order { command: Command::Announce(announcement), at_ms, .. }), Some(Speaker::Worker)) =
            (&order, speaker)
        {
            self.roster().hear(announcement.clone(), *at_ms);
        }
        let (offset, user) = (delivery.stream_offset, delivery.properties.user_id.clone());
        self.dispatcher.tell(Input::Order(Box::new(ReadOrder { offset, order, speaker, user })));
    }

    /// Writes this worker's mark into the log, and waits until it has read the mark and everything before it.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), PublishError> {
        while let Err(error) = self.write(broker, self.mark).await {
            match error {
                // A broker that has just started may reject messages for the log. The mark may then be in the log twice.
                PublishError::Nacked { .. } | PublishError::Timeout { .. } | PublishError::Unknown { .. } => {
                    warn!(%error, "earlier orders not read yet, trying again");
                    tokio::time::sleep(MARK_PAUSE).await;
                }
                refused => return Err(refused),
            }
        }
        let mut all_known = self.all_known.subscribe();
        all_known.wait_for(|all_known| *all_known).await.expect("the sender is here");
        Ok(())
    }

    /// Writes the mark after an interruption, retrying until the broker accepts it.
    async fn mark_again(self: Arc<Self>, broker: Broker, mut subscription: watch::Receiver<bool>, mark: MessageId) {
        // A mark written before the subscription could be read while later orders are still unread.
        if subscription.wait_for(|subscribed| *subscribed).await.is_err() {
            return;
        }
        while let Err(error) = self.write(&broker, mark).await {
            debug!(%error, "orders given during the interruption not read yet, trying again");
            tokio::time::sleep(MARK_PAUSE).await;
        }
    }

    async fn write(&self, broker: &Broker, mark: MessageId) -> Result<(), PublishError> {
        let order = Order::new(unix_ms(), Some(self.worker.to_string()), Command::Mark { id: mark });
        broker.order(&order, Speaker::Worker, mark).await
    }

    pub(super) fn set_known(&self, all_known: bool) {
        self.all_known.send_replace(all_known);
    }

    pub(super) fn order_drain(&self) {
        self.drain.cancel();
    }

    /// Resolves when this worker is ordered to drain.
    pub(super) async fn drain(&self) {
        self.drain.cancelled().await;
    }

    pub(super) fn roster(&self) -> Locked<'_, Roster> {
        self.roster.lock()
    }
}
