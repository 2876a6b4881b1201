//! The task queues that a worker consumes.

use gpufleet_schema::{
    AffinitySlot, ClassKey, PoolName, Priority,
    topology::{forwarded_queue, session_queue, slot_queue, task_queue},
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
    /// The number of sessions that the pool may have on this worker.
    pub(super) sessions: u16,
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
    /// Producers send sessions to the pool.
    Session,
}

impl Route {
    fn is_of(self, pool: &PoolSpec) -> bool {
        match self {
            Self::AffinitySlot(_) => pool.affinity,
            Self::Session => pool.sessions.count > 0,
            Self::Pool | Self::Class(_) => true,
        }
    }

    /// Returns the priorities that have a queue each. Sessions have one queue.
    fn priorities(self) -> &'static [Priority] {
        if self == Self::Session { &[Priority::Normal] } else { &Priority::ALL }
    }
}

/// Returns the queues that a worker with devices of these classes consumes: the pools' own queues come first, and those of sessions last.
pub(super) fn task_queues(pools: &[PoolSpec], classes: &[ClassKey]) -> Vec<TaskQueue> {
    let slots = AffinitySlot::all().map(Route::AffinitySlot);
    let classes = classes.iter().copied().map(Route::Class);
    let routes = [Route::Pool].into_iter().chain(slots).chain(classes).chain([Route::Session]);
    let all = routes.flat_map(|route| {
        let pools = (0..).map(PoolId).zip(pools).filter(move |(_, pool)| route.is_of(pool));
        pools.flat_map(move |(id, pool)| route.priorities().iter().map(move |priority| (route, id, pool, *priority)))
    });
    let queue = |(index, (route, id, pool, priority)): (usize, (_, _, &PoolSpec, _))| TaskQueue {
        index,
        id,
        pool: pool.name.clone(),
        priority,
        route,
        sessions: pool.sessions.count,
    };
    all.enumerate().map(queue).collect()
}

impl TaskQueue {
    pub(super) fn name(&self) -> String {
        match self.route {
            Route::Pool => task_queue(&self.pool, self.priority),
            Route::AffinitySlot(slot) => slot_queue(&self.pool, slot, self.priority),
            Route::Class(class) => forwarded_queue(&self.pool, class, self.priority),
            Route::Session => session_queue(&self.pool),
        }
    }

    /// Returns the queue as the dispatcher sees it.
    pub(super) fn served(&self) -> ServedQueue {
        let has_favourite = matches!(self.route, Route::AffinitySlot(_));
        let fixed_prefetch = (self.route == Route::Session).then_some(self.sessions);
        ServedQueue { pool: self.id, priority: self.priority, has_favourite, fixed_prefetch }
    }
}
