//! Returns stranded jobs to their pool's queue: forwarded jobs whose class has lost its last worker. They go through the retry ladder.
//!
//! The worker fetches them one by one without a subscription, because other workers would count it as a consumer that can run them. A
//! quorum queue counts the holder of a fetched, unsettled message as a consumer, so the worker settles each at once, and the job waits on
//! the ladder. The message keeps its delivery count, so that a job that kills its workers is still detected.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use gpufleet_schema::{ClassKey, topology::forwarded_queue};
use gpufleet_transport::Delivery;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Supervisor, envelope::Envelope, task_queue::TaskQueue};

/// Interval between two checks, each of one class of one pool.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Number of workers above which each worker checks less often, in proportion, so that the fleet's rate of checks is bounded.
const WORKERS_PER_PACE: u32 = 20;
/// Delay before the second check of a queue without consumers. A worker that changes its prefetch is unsubscribed for a few round trips.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1500);
/// Number of messages fetched at once. They are outside the prefetch, and each has at most 16 MiB.
const BATCH: u16 = 8;
/// Number of batches after which the worker checks again whether the class still has no worker.
const BATCHES_MAX: u32 = 128;

/// Returns stranded jobs forever. If it is cancelled, the current messages stay in their queue or are duplicated.
pub(super) async fn collect(supervisor: Arc<Supervisor>, task_queues: Vec<TaskQueue>) {
    let mut turn = RandomState::new().hash_one(()) as usize;
    loop {
        sleep(pace(supervisor.workers_last_seen(&task_queues).await)).await;
        turn = turn.wrapping_add(1);
        let Some((class, queues)) = supervisor.class_to_look_at(&task_queues, turn) else { continue };
        for task_queue in queues {
            supervisor.return_stranded(class, &task_queue).await;
        }
    }
}

/// Returns the pause before the next check. It has up to half as much jitter, so that workers that started together don't check together.
fn pace(workers: u32) -> Duration {
    let pace = LOOK_EVERY * (workers / WORKERS_PER_PACE).max(1);
    pace + pace.mul_f64((RandomState::new().hash_one(()) % 512) as f64 / 1024.0)
}

impl Supervisor {
    /// Returns the number of workers that serve the first pool, as an estimate of how many check its classes.
    async fn workers_last_seen(&self, task_queues: &[TaskQueue]) -> u32 {
        let Some(first) = task_queues.first() else { return 1 };
        self.depth(&first.name()).await.map_or(1, |depth| depth.consumers)
    }

    /// Returns the next class of a pool that this worker does not have, with the pool's task queues.
    fn class_to_look_at(&self, task_queues: &[TaskQueue], turn: usize) -> Option<(ClassKey, Vec<TaskQueue>)> {
        let own = self.own_classes();
        let roster = self.orders.roster();
        let mut pairs = Vec::new();
        for pool in &self.config.pools {
            let others = roster.classes(&pool.name).into_iter().filter(|class| !own.contains(class));
            pairs.extend(others.map(|class| (&pool.name, class.key)));
        }
        let (pool, class) = *pairs.get(turn.checked_rem(pairs.len())?)?;
        Some((class, task_queues.iter().filter(|queue| queue.pool == *pool).cloned().collect()))
    }

    async fn return_stranded(&self, class: ClassKey, task_queue: &TaskQueue) {
        let queue = forwarded_queue(&task_queue.pool, class, task_queue.priority);
        if !self.is_stranded(&queue).await {
            return;
        }
        sleep(LOOK_AGAIN_AFTER).await;
        if !self.is_stranded(&queue).await {
            return;
        }
        for _ in 0..BATCHES_MAX {
            let deliveries = match self.broker.get(&queue, BATCH).await {
                Ok(deliveries) if deliveries.is_empty() => return,
                Ok(deliveries) => deliveries,
                Err(error) => return warn!(queue, %error, "stranded jobs not fetched"),
            };
            info!(queue, jobs = deliveries.len(), "stranded jobs requeued: their device class has no worker");
            join_all(deliveries.into_iter().map(|delivery| self.return_one(delivery, task_queue))).await;
        }
    }

    async fn return_one(&self, delivery: Delivery, task_queue: &TaskQueue) {
        let raw = Envelope::open(delivery, task_queue.clone(), &self.admission(task_queue));
        let acker = &raw.envelope.acker;
        let settled = match self.publish_stranded(&raw).await {
            Ok(()) => acker.ack().await,
            Err(error) => {
                warn!(%error, "stranded job not requeued");
                acker.requeue().await
            }
        };
        if let Err(error) = settled {
            warn!(%error, "delivery not settled, the broker may redeliver it");
        }
    }

    async fn is_stranded(&self, queue: &str) -> bool {
        let depth = self.broker.queue_depth(queue).await.ok().flatten();
        depth.is_some_and(|depth| depth.consumers == 0 && depth.messages > 0)
    }
}
