//! Takes messages from one queue for as long as the worker takes any.

use std::sync::Arc;

use gpufleet_schema::{PoolName, Priority};
use gpufleet_transport::{Consumer, Incoming};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::Supervisor;
use crate::scheduler::{Event, PoolId, prefetch::is_hoard};

/// The queue that messages come from.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) id: PoolId,
    pub(super) pool: PoolName,
    pub(super) priority: Priority,
}

/// Ends when `stop` is cancelled and everything that was already sent here has been passed on.
pub(super) async fn take(
    supervisor: Arc<Supervisor>,
    mut consumer: Consumer,
    lane: Lane,
    mut prefetch: watch::Receiver<u16>,
    stop: CancellationToken,
    handling: TaskTracker,
) {
    let handle = |delivery| {
        let carried = supervisor.load.carry(&lane);
        handling.spawn(Arc::clone(&supervisor).handle(delivery, lane.clone(), carried));
    };
    loop {
        let incoming = tokio::select! {
            incoming = consumer.next() => incoming,
            Ok(()) = prefetch.changed() => {
                let prefetch = *prefetch.borrow_and_update();
                consumer.set_prefetch(prefetch).await;
                supervisor.give_back_hoard(&lane, prefetch);
                continue;
            }
            () = stop.cancelled() => break,
        };
        match incoming {
            Some(Incoming::Delivery(delivery)) => handle(delivery),
            Some(Incoming::Interrupted { reason }) => {
                warn!(pool = %lane.pool, priority = %lane.priority, reason, "intake interrupted")
            }
            None => return,
        }
    }
    consumer.stop().await;
    // What the broker had already sent is handed back at once: the scheduler is draining.
    while let Some(incoming) = consumer.next().await {
        if let Incoming::Delivery(delivery) = incoming {
            handle(delivery);
        }
    }
}

impl Supervisor {
    /// What came because more was asked for than turned out right waits here for long, while others may be idle.
    fn give_back_hoard(&self, lane: &Lane, prefetch: u16) {
        let messages = self.load.messages(lane);
        if is_hoard(messages, prefetch) {
            info!(pool = %lane.pool, priority = %lane.priority, messages, prefetch, "giving back what waits");
            self.admission.tell(Event::Shed(lane.id, lane.priority));
        }
    }
}
