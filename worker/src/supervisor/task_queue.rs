//! The task queues that a worker consumes.

use gpufleet_schema::{
    AffinitySlot, ClassKey, PoolName, Priority,
    topology::{forwarded_queue, slot_queue, task_queue},
};

use crate::{config::PoolSpec, dispatcher::ServedQueue, scheduler::PoolId};

/// A task queue that this worker consumes.
#[derive(Debug, Clone)]
pub(super) struct TaskQueue {
    /// The queue's index among the worker's queues.
    pub(super) index: usize,
    pub(super) id: PoolId,
    pub(super) pool: PoolName,
    pub(super) priority: Priority,
    pub(super) route: Route,
}

/// How jobs get into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Producers and retries send jobs to the pool.
    Pool,
    /// Producers send jobs to the workers that probably have their largest input.
    AffinitySlot(AffinitySlot),
    /// Workers forward jobs to a device class.
    Class(ClassKey),
}

impl Route {
    fn is_of(self, pool: &PoolSpec) -> bool {
        pool.affinity || !matches!(self, Self::AffinitySlot(_))
    }
}

/// Returns the queues that a worker with devices of these classes consumes; the pools' own queues come first.
pub(super) fn task_queues(pools: &[PoolSpec], classes: &[ClassKey]) -> Vec<TaskQueue> {
    let slots = AffinitySlot::all().map(Route::AffinitySlot);
    let routes = [Route::Pool].into_iter().chain(slots).chain(classes.iter().copied().map(Route::Class));
    let all = routes.flat_map(|route| {
        let pools = (0..).map(PoolId).zip(pools).filter(move |(_, pool)| route.is_of(pool));
        pools.flat_map(move |(id, pool)| Priority::ALL.map(|priority| (route, id, pool, priority)))
    });
    let queue = |(index, (route, id, pool, priority)): (usize, (_, _, &PoolSpec, _))| TaskQueue {
        index,
        id,
        pool: pool.name.clone(),
        priority,
        route,
    };
    all.enumerate().map(queue).collect()
}

impl TaskQueue {
    pub(super) fn name(&self) -> String {
        match self.route {
            Route::Pool => task_queue(&self.pool, self.priority),
            Route::AffinitySlot(slot) => slot_queue(&self.pool, slot, self.priority),
            Route::Class(class) => forwarded_queue(&self.pool, class, self.priority),
        }
    }

    /// Returns the queue as the dispatcher sees it.
    pub(super) fn served(&self) -> ServedQueue {
        let has_favourite = matches!(self.route, Route::AffinitySlot(_));
        ServedQueue { pool: self.id, priority: self.priority, has_favourite }
    }
}
