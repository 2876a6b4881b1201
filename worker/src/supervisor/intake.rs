//! Consumes one task queue until the worker drains.

use std::sync::Arc;

use gpufleet_transport::{Acker, Incoming, Subscription};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Supervisor,
    admission::Admission,
    envelope::Envelope,
    handle::{DispatcherHandle, Input},
    held::HeldMessage,
    task_queue::{Route, TaskQueue},
};
use crate::affinity;

impl TaskQueue {
    /// Returns a callback that passes the queue's deliveries to the dispatcher.
    pub(super) fn pass_to(
        self,
        admission: Admission,
        dispatcher: Arc<DispatcherHandle>,
    ) -> impl FnMut(Incoming) + Send + 'static {
        move |incoming| match incoming {
            Incoming::Delivery(delivery) => {
                let raw = Envelope::open(delivery, self.clone(), &admission);
                let info = raw.envelope.info(self.index, &raw.body);
                dispatcher.tell(Input::Delivered(Box::new(info), HeldMessage::Raw(Arc::new(raw))));
            }
            Incoming::Interrupted { reason } => {
                warn!(pool = %self.pool, priority = %self.priority, reason, "consumer interrupted");
            }
        }
    }
}

impl Supervisor {
    /// Returns this worker's priority among the consumers of the queue: all are equal, except at the queues of affinity slots.
    pub(super) fn consumer_priority(&self, queue: &TaskQueue) -> u16 {
        match queue.route {
            Route::AffinitySlot(slot) => affinity::priority(&self.config.name, self.devices.len(), &queue.pool, slot),
            Route::Pool | Route::Class(_) | Route::Session | Route::Program => 0,
        }
    }

    /// Returns whether the queue is empty although other workers consume it, so that those are idle. `delivery` is a delivery of this
    /// worker from the queue.
    pub(super) async fn are_others_idle(&self, queue: &str, delivery: &Acker) -> bool {
        let before = delivery.consumers();
        match self.broker.queue_depth(queue).await {
            Ok(Some(depth)) => {
                // The answer may precede or follow a consumer of this worker that came or went in the meantime.
                let own = delivery.consumers().max(before);
                depth.messages == 0 && depth.consumers > own
            }
            Ok(None) => false,
            Err(error) => {
                debug!(queue, %error, "failed to read the depth of a queue");
                false
            }
        }
    }
}

/// Changes the subscription's prefetch as told, until `stop` is cancelled. Returns when every delivery already received has been passed on.
/// The draining dispatcher hands back deliveries that the broker had already sent.
pub(super) async fn attend(
    dispatcher: Arc<DispatcherHandle>,
    mut subscription: Subscription,
    queue: usize,
    mut prefetch: watch::Receiver<u16>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            Ok(()) = prefetch.changed() => {
                let prefetch = *prefetch.borrow_and_update();
                subscription.set_prefetch(prefetch).await;
                dispatcher.tell(Input::Subscribed { queue, prefetch });
            }
            () = stop.cancelled() => return subscription.stop().await,
        }
    }
}
