//! The scheduler decides which waiting job starts next, and on which device.
//!
//! It is plain data: changes go in, actions come out. There is no clock, no tokio and no I/O here, so that tests can check every
//! decision. The dispatcher passes changes in and performs the actions.
//!
//! The changes first update the state ([`Scheduler::step`]). Then a search looks for a job that can start ([`mod@search`]); it changes
//! nothing and returns a plan. The scheduler carries the plan out without further decisions, and searches again until no job can start.
//!
//! - **Between pools:** pools with work share the time of the devices by their weights. The pool with the least weighted device time
//!   is next ([`pool`]).
//! - **Inside a pool:** priorities share the starts 16 : 4 : 1, so that `low` jobs start even under endless `high` work ([`backlog`]).
//! - **On a device:** a job starts if a slot is free and its memory fits ([`placement`]). A pool's guaranteed memory is lent once the pool
//!   has been idle for a while. Another executor is asked to release memory that it only caches ([`device`]). Of several devices
//!   the job gets one that already has its largest input, or else the emptiest ([`mod@search`]).
//! - **In a pool with several executors on a device:** long jobs are kept apart, and short ones are put together ([`pool_executor`]).
//! - **Large jobs and suspects:** a job that was passed often reserves a device ([`reservations`]). So does a job that lost an executor: it
//!   runs alone in an executor, so that a second loss identifies the cause.
//!
//! - **Sessions** take memory without a slot for as long as they are open, and are charged what they use ([`mod@session`]).
//! - **Brief jobs** share a slot as a train, one after the other ([`mod@train`]).
//!
//! [`prefetch`] decides how many messages to prefetch from each queue.

mod allowed;
mod backlog;
mod change;
mod demand;
mod device;
mod placement;
mod pool;
mod pool_executor;
pub mod prefetch;
mod queries;
mod reservations;
mod search;
mod session;
mod train;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use gpufleet_schema::Priority;

pub(crate) use self::train::BRIEF_US_MAX;
pub use self::{
    allowed::{Allowed, DEVICES_MAX},
    change::{Action, Change, DemandTooLarge, Room},
    demand::{Demand, DeviceId, ExecutorId, PoolId, SessionTerms, Ticket},
    pool::PoolGuarantee,
};
use self::{
    backlog::BacklogEntry,
    device::Device,
    pool::Pool,
    reservations::Reservations,
    search::{Plan, Start, search},
    session::Sessions,
    train::Trains,
};

/// The state of all devices and all waiting jobs.
#[derive(Debug)]
pub struct Scheduler {
    /// The pools, indexed by [`PoolId`].
    pools: Vec<Pool>,
    devices: Vec<Device>,
    reservations: Reservations,
    running: HashMap<Ticket, StartedJob>,
    trains: Trains,
    sessions: Sessions,
    /// The virtual time of the pool that had the last turn. A pool that was idle continues from this time.
    now: u128,
    draining: bool,
}

/// A job that occupies a slot, alone or with the others of its train.
#[derive(Debug)]
struct StartedJob {
    executor: ExecutorId,
    demand: Demand,
    charged_us: u64,
}

impl Scheduler {
    /// Creates a scheduler for these pools. A demand names a pool by its index.
    pub fn new(guarantees: &[PoolGuarantee]) -> Self {
        let pools = (0..).zip(guarantees).map(|(index, guarantee)| Pool::new(PoolId(index), *guarantee)).collect();
        let (devices, reservations, running, trains, sessions) = Default::default();
        Self { pools, devices, reservations, running, trains, sessions, now: 0, draining: false }
    }

    /// Applies the changes in their order, then starts all jobs that can start now.
    pub fn step(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<Action> {
        let mut actions: Vec<Action> = changes.into_iter().flat_map(|change| self.take_in(change)).collect();
        if !self.draining {
            self.start_sessions(&mut actions);
            self.start_all(&mut actions);
        }
        actions
    }

    fn take_in(&mut self, change: Change) -> Vec<Action> {
        match change {
            Change::Arrived(ticket, demand) => return self.arrive(ticket, demand).into_iter().collect(),
            Change::Left { ticket, used_us } => self.leave(ticket, used_us),
            Change::Used { ticket, used_us } => self.charge_session(ticket, used_us),
            Change::Device { device, slots, bytes } => {
                self.resize(device, slots, bytes);
                return self.refuse_waiting();
            }
            Change::DeviceGone(device) => {
                self.device_mut(device).retire();
                self.reservations.drop_device(device);
                return self.refuse_waiting();
            }
            Change::ExecutorUp(executor) => self.device_mut(executor.device).executor_up(executor),
            Change::ExecutorDown(executor) => {
                self.device_mut(executor.device).executor_down(executor);
                // Another device may have room for the job sooner.
                self.reservations.drop_pool(executor.device, executor.pool);
            }
            Change::Cached { executor, bytes } => self.device_mut(executor.device).set_cached(executor, bytes),
            Change::Input { executor, input, is_resident } => {
                self.device_mut(executor.device).set_resident(executor, input, is_resident);
            }
            Change::Available { device, bytes } => self.device_mut(device).set_available(bytes),
            Change::Tick => self.pools.iter_mut().for_each(Pool::tick),
            Change::Shed(pool, priority) => return self.shed(pool, priority),
            Change::Draining => return self.drain(),
        }
        Vec::new()
    }

    fn start_all(&mut self, actions: &mut Vec<Action>) {
        let (mut starts, mut releases) = (Vec::new(), Vec::new());
        loop {
            let Plan { start, reservations, releases: planned } =
                search(&self.pools, &self.devices, &self.reservations);
            self.reservations = reservations;
            for executor in planned {
                self.device_mut(executor.device).request_release(executor);
                releases.push(Action::ReleaseCache(executor));
            }
            let Some(start) = start else { break };
            starts.push(self.start(start));
        }
        for (first, executor) in starts {
            actions.push(Action::Start(first, executor));
            let joined = self.fill_train(first, executor);
            actions.extend(joined.into_iter().map(|ticket| Action::Join { ticket, first, executor }));
        }
        actions.extend(releases);
    }

    fn start(&mut self, start: Start) -> (Ticket, ExecutorId) {
        let Start { executor, position, is_shared, passed } = start;
        let BacklogEntry { ticket, demand, .. } = self.pool_mut(executor.pool).backlog.take(position);
        self.pass(&passed, executor.pool, is_shared);
        self.reservations.drop_job(ticket);
        self.device_mut(executor.device).take(executor, demand);
        self.run(ticket, executor, demand);
        (ticket, executor)
    }

    fn run(&mut self, ticket: Ticket, executor: ExecutorId, demand: Demand) {
        let charged_us = self.pool_mut(demand.pool).start();
        self.running.insert(ticket, StartedJob { executor, demand, charged_us });
    }

    /// Records that the pools in `passed` had their turn before `started` but no fitting job. Of a shared slot they are owed at most five
    /// seconds. A slot that belongs to `started` alone they could not have used, so they stay owed what they were.
    fn pass(&mut self, passed: &[PoolId], started: PoolId, is_shared: bool) {
        let time = self.pool(started).time();
        for pool in passed {
            let pool = self.pool_mut(*pool);
            pool.backlog.pass();
            if is_shared {
                pool.pass(time);
            }
        }
        let first = *passed.first().unwrap_or(&started);
        self.now = self.now.max(self.pool(first).time());
    }

    /// Adds a job to its pool's backlog, or returns why it can't wait here.
    fn arrive(&mut self, ticket: Ticket, demand: Demand) -> Option<Action> {
        if self.draining {
            return Some(Action::Requeue(ticket));
        }
        let refusal = refusal(&self.devices, ticket, demand);
        match refusal {
            None if demand.session.is_some() => self.sessions.arrive(ticket, demand),
            None => {
                let now = self.now;
                self.pool_mut(demand.pool).arrive(ticket, demand, now);
            }
            Some(_) => {}
        }
        refusal
    }

    fn leave(&mut self, ticket: Ticket, used_us: u64) {
        if self.leave_session(ticket) {
            return;
        }
        match self.running.remove(&ticket) {
            Some(StartedJob { executor, demand, charged_us }) => {
                match self.trains.leave(ticket) {
                    true => self.device_mut(executor.device).release(executor, demand),
                    false => self.device_mut(executor.device).release_memory(demand),
                }
                self.pool_mut(demand.pool).end(demand.bytes, charged_us, used_us);
            }
            None => {
                self.pools.iter_mut().for_each(|pool| drop(pool.backlog.extract(|waiting| waiting.ticket == ticket)));
                self.reservations.drop_job(ticket);
            }
        }
    }

    fn resize(&mut self, id: DeviceId, slots: u32, bytes: u64) {
        match self.devices.iter_mut().find(|device| device.id == id) {
            Some(device) => device.resize(slots, bytes),
            None => self.devices.push(Device::new(id, slots, bytes)),
        }
    }

    /// Refuses the waiting jobs that no longer fit after a device has shrunk or gone out of service.
    fn refuse_waiting(&mut self) -> Vec<Action> {
        let Self { pools, devices, reservations, sessions, .. } = self;
        let refusal = |ticket, demand| refusal(devices, ticket, demand);
        let jobs = pools.iter_mut().flat_map(|pool| {
            let refused = pool.backlog.extract(|waiting| refusal(waiting.ticket, waiting.demand).is_some());
            refused.into_iter().map(|waiting| (waiting.ticket, waiting.demand))
        });
        let sessions = sessions.extract(|ticket, demand| refusal(ticket, demand).is_some());
        let refusals = jobs.chain(sessions).filter_map(|(ticket, demand)| {
            reservations.drop_job(ticket);
            refusal(ticket, demand)
        });
        refusals.collect()
    }

    /// Requeues the waiting jobs of a queue. Suspects and jobs with a reserved device stay, because they would lose their turn.
    fn shed(&mut self, pool: PoolId, priority: Priority) -> Vec<Action> {
        let Self { pools, reservations, .. } = self;
        let shed = pools[pool.0 as usize].backlog.extract(|BacklogEntry { ticket, demand, .. }| {
            let stays = demand.alone || !demand.returnable || reservations.has_job(*ticket);
            demand.priority == priority && !stays
        });
        shed.into_iter().map(|waiting| Action::Requeue(waiting.ticket)).collect()
    }

    fn drain(&mut self) -> Vec<Action> {
        self.draining = true;
        let jobs = self.pools.iter_mut().flat_map(|pool| pool.backlog.extract(|_| true));
        let sessions = self.sessions.extract(|_, _| true).into_iter().map(|(ticket, _)| ticket);
        jobs.map(|waiting| waiting.ticket).chain(sessions).map(Action::Requeue).collect()
    }

    fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0 as usize]
    }

    fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        self.devices.iter_mut().find(|device| device.id == id).expect("a device is added before anything happens to it")
    }
}

/// Returns why a job can't wait here, if it can't. A device whose executor is restarting still counts, because the job can wait for it.
/// Without any device in service, no job is refused: the worker is about to stop and requeues its jobs.
fn refusal(devices: &[Device], ticket: Ticket, demand: Demand) -> Option<Action> {
    let mut in_service = devices.iter().filter(|device| !device.is_gone()).peekable();
    in_service.peek()?;
    let allowed = in_service.filter(|device| demand.allowed.has(device.id));
    let bytes_max = |device: &Device| demand.session.map_or(device.bytes, |terms| terms.bytes_max(device.bytes));
    match allowed.map(bytes_max).max() {
        None => Some(Action::Forward(ticket)),
        Some(device_bytes_max) => (demand.bytes > device_bytes_max)
            .then_some(Action::Refuse(ticket, DemandTooLarge { bytes: demand.bytes, device_bytes_max })),
    }
}
