//! Takes messages from one queue for as long as the worker takes any.

use std::sync::Arc;

use gpufleet_schema::{PoolName, Priority};
use gpufleet_transport::{Consumer, Incoming};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use super::Supervisor;
use crate::scheduler::PoolId;

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
    stop: CancellationToken,
    handling: TaskTracker,
) {
    loop {
        let incoming = tokio::select! {
            incoming = consumer.next() => incoming,
            () = stop.cancelled() => break,
        };
        match incoming {
            Some(Incoming::Delivery(delivery)) => {
                handling.spawn(Arc::clone(&supervisor).handle(delivery, lane.clone()));
            }
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
            handling.spawn(Arc::clone(&supervisor).handle(delivery, lane.clone()));
        }
    }
}
