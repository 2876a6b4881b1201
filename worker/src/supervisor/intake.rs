//! Consumes one task queue until the worker drains.

use std::sync::Arc;

use gpufleet_schema::{
    ClassKey, PoolName, Priority,
    topology::{forwarded_queue, task_queue},
};
use gpufleet_transport::{Consumer, Incoming};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    envelope::Envelope,
    handle::{DispatcherHandle, Mail},
};
use crate::{config::PoolSpec, dispatcher::Input, scheduler::PoolId};

/// A task queue that this worker consumes.
#[derive(Debug, Clone)]
pub(super) struct TaskQueue {
    /// Its index among the worker's queues.
    pub(super) index: usize,
    pub(super) id: PoolId,
    pub(super) pool: PoolName,
    pub(super) priority: Priority,
    /// The device class, if it is a queue of forwarded jobs.
    pub(super) class: Option<ClassKey>,
}

/// The queues that a worker with devices of these classes consumes: the pools' own come first.
pub(super) fn task_queues(pools: &[PoolSpec], classes: &[ClassKey]) -> Vec<TaskQueue> {
    let of_classes = [None].into_iter().chain(classes.iter().copied().map(Some));
    let all = of_classes.flat_map(|class| {
        let pools = (0..).map(PoolId).zip(pools);
        pools.flat_map(move |(id, pool)| Priority::ALL.map(|priority| (class, id, pool, priority)))
    });
    let queue = |(index, (class, id, pool, priority)): (usize, (_, _, &PoolSpec, _))| TaskQueue {
        index,
        id,
        pool: pool.name.clone(),
        priority,
        class,
    };
    all.enumerate().map(queue).collect()
}

impl TaskQueue {
    pub(super) fn name(&self) -> String {
        match self.class {
            None => task_queue(&self.pool, self.priority),
            Some(class) => forwarded_queue(&self.pool, class, self.priority),
        }
    }
}

/// Ends when `stop` is cancelled and every delivery already received has been passed on.
pub(super) async fn take(
    dispatcher: Arc<DispatcherHandle>,
    mut consumer: Consumer,
    queue: TaskQueue,
    mut prefetch: watch::Receiver<u16>,
    stop: CancellationToken,
) {
    let handle = |delivery| {
        let raw = Envelope::open(delivery, queue.clone());
        let letter = raw.envelope.letter(queue.index, &raw.body);
        dispatcher.send(Mail::Delivered(Arc::new(raw), Box::new(letter)));
    };
    loop {
        let incoming = tokio::select! {
            incoming = consumer.next() => incoming,
            Ok(()) = prefetch.changed() => {
                let prefetch = *prefetch.borrow_and_update();
                consumer.set_prefetch(prefetch).await;
                dispatcher.tell(Input::Subscribed { queue: queue.index, prefetch });
                continue;
            }
            () = stop.cancelled() => break,
        };
        match incoming {
            Some(Incoming::Delivery(delivery)) => handle(delivery),
            Some(Incoming::Interrupted { reason }) => {
                warn!(pool = %queue.pool, priority = %queue.priority, reason, "consumer interrupted")
            }
            None => return,
        }
    }
    consumer.stop().await;
    // The draining dispatcher hands back deliveries that the broker had already sent.
    while let Some(incoming) = consumer.next().await {
        if let Incoming::Delivery(delivery) = incoming {
            handle(delivery);
        }
    }
}
