//! Takes messages from one queue for as long as the worker takes any.

use std::sync::Arc;

use gpufleet_schema::{
    ClassKey, PoolName, Priority,
    topology::{forwarded_queue, task_queue},
};
use gpufleet_transport::{Consumer, Incoming};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::Supervisor;
use crate::{
    config::PoolSpec,
    scheduler::{Event, PoolId, prefetch::is_hoard},
};

/// The queue that messages come from.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// Its place among all of the worker's queues.
    pub(super) index: usize,
    pub(super) id: PoolId,
    pub(super) pool: PoolName,
    pub(super) priority: Priority,
    /// It has the jobs that were forwarded to a class of this worker's devices.
    pub(super) class: Option<ClassKey>,
}

/// The queues that a worker with devices of these classes consumes: the pools' own come first.
pub(super) fn lanes(pools: &[PoolSpec], classes: &[ClassKey]) -> Vec<Lane> {
    let of_classes = [None].into_iter().chain(classes.iter().copied().map(Some));
    let all = of_classes.flat_map(|class| {
        let pools = (0..).map(PoolId).zip(pools);
        pools.flat_map(move |(id, pool)| Priority::ALL.map(|priority| (class, id, pool, priority)))
    });
    let lane = |(index, (class, id, pool, priority)): (usize, (_, _, &PoolSpec, _))| Lane {
        index,
        id,
        pool: pool.name.clone(),
        priority,
        class,
    };
    all.enumerate().map(lane).collect()
}

impl Lane {
    pub(super) fn name(&self) -> String {
        match self.class {
            None => task_queue(&self.pool, self.priority),
            Some(class) => forwarded_queue(&self.pool, class, self.priority),
        }
    }
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
                warn!(pool = %lane.pool, priority = %lane.priority, reason, "consumer interrupted")
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
            info!(pool = %lane.pool, priority = %lane.priority, messages, prefetch, "requeueing prefetched messages");
            self.admission.tell(Event::Shed(lane.id, lane.priority));
        }
    }
}
