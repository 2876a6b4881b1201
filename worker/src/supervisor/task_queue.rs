//! The task queues that a worker consumes.

use gpufleet_schema::{
    AffinitySlot, ClassKey, PoolName, Priority,
    topology::{
        forwarded_queue, program_key, program_queue, session_key, session_queue, slot_queue, task_key, task_queue,
    },
};
use gpufleet_transport::MoreQueues;

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
    /// The number of messages that the worker takes at a time, if it is fixed.
    pub(super) fixed_prefetch: Option<u16>,
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
    /// Producers send host programs to the pool.
    Program,
}

impl Route {
    fn is_of(self, pool: &PoolSpec) -> bool {
        match self {
            Self::AffinitySlot(_) => pool.affinity,
            Self::Session => pool.sessions.count > 0,
            Self::Program => pool.programs.count > 0,
            Self::Pool | Self::Class(_) => true,
        }
    }

    /// Returns the priorities that have a queue each. Sessions and host programs have one queue.
    fn priorities(self) -> &'static [Priority] {
        match self {
            Self::Session | Self::Program => &[Priority::Normal],
            Self::Pool | Self::AffinitySlot(_) | Self::Class(_) => &Priority::ALL,
        }
    }

    /// Returns the number of messages that the worker takes at a time: all sessions and programs that the pool may have. Other jobs are
    /// prefetched.
    fn fixed_prefetch(self, pool: &PoolSpec) -> Option<u16> {
        match self {
            Self::Session => Some(pool.sessions.count),
            Self::Program => Some(pool.programs.count),
            Self::Pool | Self::AffinitySlot(_) | Self::Class(_) => None,
        }
    }

    /// Returns the routing key with which a message returns to the pool's queue.
    pub(super) fn key(self, pool: &PoolName, priority: Priority) -> String {
        match self {
            Self::Session => session_key(pool),
            Self::Program => program_key(pool),
            Self::Pool | Self::AffinitySlot(_) | Self::Class(_) => task_key(pool, priority),
        }
    }
}

/// Returns the queues that a worker with devices of these classes consumes: the pools' own queues come first, and those with a fixed
/// prefetch last.
pub(super) fn task_queues(pools: &[PoolSpec], classes: &[ClassKey]) -> Vec<TaskQueue> {
    let slots = AffinitySlot::all().map(Route::AffinitySlot);
    let classes = classes.iter().copied().map(Route::Class);
    let routes = [Route::Pool].into_iter().chain(slots).chain(classes).chain([Route::Session, Route::Program]);
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
        fixed_prefetch: route.fixed_prefetch(pool),
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
            Route::Program => program_queue(&self.pool),
        }
    }

    /// Returns the queue as the dispatcher sees it.
    pub(super) fn served(&self) -> ServedQueue {
        let has_favourite = matches!(self.route, Route::AffinitySlot(_));
        let Self { id: pool, priority, fixed_prefetch, .. } = *self;
        ServedQueue { pool, priority, has_favourite, fixed_prefetch }
    }
}

/// Returns the queues that a pool has beside those of its priorities.
pub(super) fn more_queues(pool: &PoolSpec) -> MoreQueues {
    MoreQueues { slots: pool.affinity, sessions: pool.sessions.count > 0, programs: pool.programs.count > 0 }
}
