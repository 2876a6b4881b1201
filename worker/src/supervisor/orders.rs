//! Reads the control streams. Orders go to the dispatcher, the announcements of workers to the roster.
//!
//! Orders of operators and workers are in one stream, those of clients in another. A mark goes into both, and everything before the mark in
//! a stream is older.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{
    Command, InvalidOrder, MessageId, Order, WorkerName,
    bounds::ORDER_BYTES_MAX,
    encoding,
    topology::{CANCELLATIONS_QUEUE, CONTROL_QUEUE, Speaker},
};
use gpufleet_transport::{Broker, Delivery, Incoming, PublishError};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, warn};

use super::{
    clock::unix_ms,
    handle::{DispatcherHandle, Input},
};
use crate::{
    dispatcher::ReadOrder,
    forwarding::Roster,
    shared_state::{Locked, SharedState},
};

/// Pause after the broker has not accepted a mark.
const MARK_PAUSE: Duration = Duration::from_secs(1);
/// Time after which an unread mark is written again. The stream keeps only the newest orders, so it may have discarded the mark.
const MARK_AGAIN: Duration = Duration::from_secs(30);

/// The reading of the control streams.
#[derive(Debug)]
pub(super) struct OrderLog {
    worker: WorkerName,
    /// The mark of this worker's start.
    mark: MessageId,
    dispatcher: Arc<DispatcherHandle>,
    /// The device classes that workers have announced in the control stream.
    roster: SharedState<Roster>,
    /// Whether the worker has read all orders that the dispatcher waits for.
    all_known: watch::Sender<bool>,
    /// The mark up to which orders of clients have not been read yet, if any.
    clients_mark: watch::Sender<Option<MessageId>>,
    drain: CancellationToken,
}

impl OrderLog {
    pub(super) fn new(worker: WorkerName, mark: MessageId, dispatcher: Arc<DispatcherHandle>) -> Arc<Self> {
        let (roster, all_known, drain) = (SharedState::default(), watch::Sender::new(false), CancellationToken::new());
        let clients_mark = watch::Sender::new(Some(mark));
        Arc::new(Self { worker, mark, dispatcher, roster, all_known, clients_mark, drain })
    }

    /// Reads the streams until the broker is closed.
    pub(super) async fn follow(self: Arc<Self>, broker: Broker) {
        tokio::join!(self.follow_one(&broker, CONTROL_QUEUE), self.follow_one(&broker, CANCELLATIONS_QUEUE));
    }

    async fn follow_one(self: &Arc<Self>, broker: &Broker, stream: &str) {
        let mut log = broker.read(stream.to_owned(), |_exchange| ORDER_BYTES_MAX);
        let mut _marking = None;
        while let Some(incoming) = log.next().await {
            match incoming {
                Incoming::Delivery(delivery) => {
                    let order = read(&delivery);
                    match stream {
                        CANCELLATIONS_QUEUE => self.take_clients(order),
                        _ => self.take(order),
                    }
                    // The ack only requests further messages; the stream keeps its messages.
                    drop(delivery.ack().await);
                }
                Incoming::Interrupted { reason } => {
                    warn!(stream, reason, "control stream interrupted");
                    let mark = MessageId::new();
                    if stream == CANCELLATIONS_QUEUE {
                        self.clients_mark.send_replace(Some(mark));
                        self.dispatcher.tell(Input::ClientOrdersKnown(false));
                    } else {
                        self.dispatcher.tell(Input::OrdersInterrupted { mark });
                    }
                    let marking = Arc::clone(self).mark_again(broker.clone(), log.status(), mark);
                    _marking = Some(AbortOnDropHandle::new(tokio::spawn(marking)));
                }
            }
        }
    }

    fn take(&self, read: ReadOrder) {
        if let (Some(Order { command: Command::Announce(announcement), at_ms, .. }), Some(Speaker::Worker)) =
            (&read.order, read.speaker)
        {
            self.roster().hear(announcement.clone(), *at_ms);
        }
        self.dispatcher.tell(Input::Order(Box::new(read)));
    }

    /// Passes on what clients ordered. Of the orders by workers, only this worker's mark matters, because the other stream has the rest
    /// too.
    fn take_clients(&self, read: ReadOrder) {
        match (&read.order, read.speaker) {
            (Some(Order { command: Command::Mark { id }, .. }), Some(Speaker::Worker)) => {
                let is_last = |mark: &mut Option<MessageId>| mark.take_if(|mark| mark == id).is_some();
                if self.clients_mark.send_if_modified(is_last) {
                    self.dispatcher.tell(Input::ClientOrdersKnown(true));
                }
            }
            (_, Some(Speaker::Client)) => {
                // Remove the offset, because the dispatcher uses offsets to notice that the other stream has begun again. Repeated
                // cancellations are harmless.
                self.dispatcher.tell(Input::Order(Box::new(ReadOrder { offset: None, ..read })));
            }
            _ => {}
        }
    }

    /// Writes this worker's mark into the streams, and waits until it has been read in both, and so have all orders before it.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), PublishError> {
        let (mut all_known, mut clients_mark) = (self.all_known.subscribe(), self.clients_mark.subscribe());
        loop {
            match self.write(broker, self.mark).await {
                Ok(()) => {}
                // A broker that has just started may reject messages for a stream. A mark may then be in a stream twice, which is harmless.
                Err(
                    error @ (PublishError::Nacked { .. } | PublishError::Timeout { .. } | PublishError::Unknown { .. }),
                ) => {
                    warn!(%error, "earlier orders not read yet, trying again");
                    tokio::time::sleep(MARK_PAUSE).await;
                    continue;
                }
                Err(refused) => return Err(refused),
            }
            let known = async {
                all_known.wait_for(|all_known| *all_known).await.expect("the sender is here");
                clients_mark.wait_for(Option::is_none).await.expect("the sender is here");
            };
            if timeout(MARK_AGAIN, known).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Writes the mark after an interruption of a stream, again and again until the worker has read all orders up to it.
    async fn mark_again(self: Arc<Self>, broker: Broker, mut subscription: watch::Receiver<bool>, mark: MessageId) {
        // If the mark were written before the subscription, it could be read while later orders are still unread.
        if subscription.wait_for(|subscribed| *subscribed).await.is_err() {
            return;
        }
        let mut all_known = self.all_known.subscribe();
        loop {
            if let Err(error) = self.write(&broker, mark).await {
                debug!(%error, "orders given during the interruption not read yet, trying again");
                tokio::time::sleep(MARK_PAUSE).await;
            } else if timeout(MARK_AGAIN, all_known.wait_for(|all_known| *all_known)).await.is_ok() {
                return;
            }
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

    /// Returns once this worker is ordered to drain.
    pub(super) async fn drain(&self) {
        self.drain.cancelled().await;
    }

    pub(super) fn roster(&self) -> Locked<'_, Roster> {
        self.roster.lock()
    }
}

/// Reads the order in a message of a stream. An unreadable message is ignored, because it may be of a later version.
fn read(delivery: &Delivery) -> ReadOrder {
    let speaker = Speaker::of_order(&delivery.exchange);
    let user = delivery.properties.user_id.clone();
    if speaker.is_none() {
        warn!(exchange = delivery.exchange, user, "order from an unexpected exchange refused");
    }
    let order = order_of(delivery)
        .inspect_err(|reason| warn!(?speaker, user, bytes = delivery.body_bytes, reason, "order refused"))
        .ok();
    ReadOrder { offset: delivery.stream_offset, order, speaker, user }
}

/// Decodes and checks the order in a message, or returns why it is refused.
fn order_of(delivery: &Delivery) -> Result<Order, String> {
    if delivery.is_cut() {
        return Err(InvalidOrder::TooLarge { bytes: delivery.body_bytes }.to_string());
    }
    let order = encoding::decode_order(&delivery.body).map_err(|error| error.to_string())?;
    order.check().map_err(|error| error.to_string())?;
    Ok(order)
}
