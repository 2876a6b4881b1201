//! Decides which waiting job starts next, and on which device.
//!
//! Plain data: an event goes in, actions come out. There is no clock, no tokio and no I/O here, so that tests can check every
//! decision. The supervisor passes events in and performs the actions.
//!
//! Pools with work share the time of the devices by their weights: the pool with the least weighted device time is next. Inside a
//! pool, priorities share the starts 16 : 4 : 1, so that `low` jobs start even under endless `high` work. A job starts if its memory
//! fits and a slot is free. A pool's guaranteed memory is lent once the pool has been idle for a while. Another pool's executor is asked
//! to release memory that it only caches. A job of a lost executor runs alone in its
//! pool's executor, so that a second loss identifies the cause.

mod allowed;
mod backlog;
mod device;
mod placement;
mod pool;
pub mod prefetch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use gpufleet_schema::Priority;

pub use self::{
    allowed::{Allowed, DEVICES_MAX},
    pool::PoolGuarantee,
};
use self::{
    backlog::BacklogEntry,
    device::Device,
    placement::{Claim, Fit},
    pool::Pool,
};

/// After later jobs have started before a job this often, the scheduler keeps the next device free for it.
const PASSED_MAX: u32 = 64;

/// Identifies a job in one worker while the worker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An index in the worker's list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// An index in the worker's list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// The requirements of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub pool: PoolId,
    pub priority: Priority,
    /// Declared device memory.
    pub bytes: u64,
    /// The job must run alone in its pool's executor.
    pub alone: bool,
    /// The job may print. Its pool's executor runs one such job at a time, because its output does not identify the job.
    pub prints: bool,
    /// Devices that meet its requirements.
    pub allowed: Allowed,
    /// The job is the only one of its message, so the message can be requeued while the job waits.
    pub returnable: bool,
}

/// An input of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Arrived(Ticket, Demand),
    /// A started job ended after this much device time, or its caller cancelled a waiting one.
    Left {
        ticket: Ticket,
        used_us: u64,
    },
    /// A device was added, or its slots or memory changed.
    Device {
        device: DeviceId,
        slots: u32,
        bytes: u64,
    },
    /// A pool's executor on the device takes jobs.
    ExecutorUp(DeviceId, PoolId),
    /// An executor reports how much device memory it caches beyond the memory that its jobs declared.
    Cached {
        device: DeviceId,
        pool: PoolId,
        bytes: u64,
    },
    /// The device memory available for jobs, including running ones. Other processes may use the rest.
    Available {
        device: DeviceId,
        bytes: u64,
    },
    /// A pool's executor on the device has ended. Its jobs still leave one by one.
    ExecutorDown(DeviceId, PoolId),
    /// The device is out of service for good.
    DeviceGone(DeviceId),
    /// Too many jobs of a queue wait here: hand back those that can be requeued.
    Shed(PoolId, Priority),
    /// A fixed interval has passed. A pool without work since the previous tick lends its memory.
    Tick,
    /// The worker drains: no more job may start.
    Draining,
}

/// An output of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start(Ticket, DeviceId),
    /// Ask the pool's executor to release cached memory, because a job of another pool waits for it.
    ReleaseCache(DeviceId, PoolId),
    /// No device of this worker has enough memory for the job.
    Refuse(Ticket, DemandTooLarge),
    /// The devices that the job may use are out of service, but others are not: forward it.
    Forward(Ticket),
    /// The job will not start here: requeue it.
    Requeue(Ticket),
}

/// The open slots for a queue, and its jobs that do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Slots that the pool could use now.
    pub open: u32,
    /// Waiting jobs of the priority that do not fit in spite of open slots.
    pub stuck: u32,
}

/// A demand beyond the largest device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemandTooLarge {
    pub bytes: u64,
    pub device_bytes_max: u64,
}

/// The state of all devices and all waiting jobs.
#[derive(Debug)]
pub struct Scheduler {
    pools: Vec<Pool>,
    devices: Vec<Device>,
    running: HashMap<Ticket, StartedJob>,
    /// The virtual time of the pool that had the last turn. A pool that was idle starts at this time.
    now: u128,
    draining: bool,
}

#[derive(Debug)]
struct StartedJob {
    device: DeviceId,
    demand: Demand,
    charged_us: u64,
}

impl Scheduler {
    /// Creates a scheduler for these pools. A demand names a pool by its index.
    pub fn new(guarantees: &[PoolGuarantee]) -> Self {
        let pools = (0..).zip(guarantees).map(|(index, guarantee)| Pool::new(PoolId(index), *guarantee)).collect();
        Self { pools, devices: Vec::new(), running: HashMap::new(), now: 0, draining: false }
    }

    pub fn step(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Arrived(ticket, _) if self.draining => return vec![Action::Requeue(ticket)],
            Event::Arrived(ticket, demand) => match self.refusal(ticket, demand) {
                Some(refusal) => return vec![refusal],
                None => self.arrive(ticket, demand),
            },
            Event::Left { ticket, used_us } => self.leave(ticket, used_us),
            Event::Device { device, slots, bytes } => {
                self.device(device, slots, bytes);
                return self.refuse_and_start();
            }
            Event::ExecutorUp(device, pool) => self.device_mut(device).seat_up(pool),
            Event::Cached { device, pool, bytes } => self.device_mut(device).set_kept(pool, bytes),
            Event::Available { device, bytes } => self.device_mut(device).set_available(bytes),
            Event::ExecutorDown(device, pool) => self.device_mut(device).seat_down(pool),
            Event::DeviceGone(device) => {
                self.device_mut(device).give_up();
                return self.refuse_and_start();
            }
            Event::Tick => self.pools.iter_mut().for_each(Pool::tick),
            Event::Shed(pool, priority) => return self.shed(pool, priority),
            Event::Draining => {
                self.draining = true;
                return self.pools.iter_mut().flat_map(|pool| pool.backlog.drain()).map(Action::Requeue).collect();
            }
        }
        self.start_all()
    }

    /// The memory that the pool's executor may cache on the device without exceeding the device's memory together with all running jobs.
    pub fn cache_bytes_max(&self, device: DeviceId, pool: PoolId) -> u64 {
        self.devices.iter().find(|known| known.id == device).map_or(0, |device| device.cache_bytes_max(pool))
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of waiting jobs, by pool.
    pub fn waiting_by_pool(&self) -> Vec<usize> {
        self.pools.iter().map(|pool| pool.backlog.len()).collect()
    }

    /// The number of jobs that can run at once on the worker's devices.
    pub fn slots(&self) -> u32 {
        self.in_service().map(|device| device.slots).sum()
    }

    /// The room for more jobs of each queue, by pool and then by priority.
    pub fn rooms(&self) -> Vec<Room> {
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        let rooms = self.pools.iter().flat_map(|pool| {
            let open = self.in_service().map(|device| placement::open_slots(device, &claims, pool.id)).sum();
            let stuck = move |priority| if open > 0 { pool.backlog.waiting(priority) as u32 } else { 0 };
            Priority::ALL.map(|priority| Room { open, stuck: stuck(priority) })
        });
        rooms.collect()
    }

    /// Hands back the waiting jobs of a queue. A suspect and a job with a reserved device stay, because they would lose their turn.
    fn shed(&mut self, pool: PoolId, priority: Priority) -> Vec<Action> {
        let devices = &self.devices;
        let stays = |waiting: &BacklogEntry| {
            let BacklogEntry { ticket, demand, .. } = *waiting;
            demand.alone || !demand.returnable || devices.iter().any(|device| device.is_reserved_for(ticket))
        };
        let pool = self.pools.iter_mut().find(|p| p.id == pool);
        let shed = pool.map(|pool| pool.backlog.shed(priority, stays)).unwrap_or_default();
        shed.into_iter().map(Action::Requeue).collect()
    }

    /// Why the job can't wait here. A device whose executor is restarting still counts, because the job can wait
    /// for it. Without any device in service the worker is about to leave, and hands its jobs back.
    fn refusal(&self, ticket: Ticket, demand: Demand) -> Option<Action> {
        self.in_service().next()?;
        let allowed = self.in_service().filter(|device| demand.allowed.has(device.id));
        match allowed.map(|device| device.bytes).max() {
            None => Some(Action::Forward(ticket)),
            Some(device_bytes_max) => (demand.bytes > device_bytes_max)
                .then_some(Action::Refuse(ticket, DemandTooLarge { bytes: demand.bytes, device_bytes_max })),
        }
    }

    /// Refuses the jobs that no longer fit after a device has shrunk or gone, then starts the jobs that waited behind them.
    fn refuse_and_start(&mut self) -> Vec<Action> {
        let mut actions = self.refuse_what_no_longer_fits();
        actions.extend(self.start_all());
        actions
    }

    fn refuse_what_no_longer_fits(&mut self) -> Vec<Action> {
        let waiting: Vec<_> = self.pools.iter().flat_map(|pool| pool.backlog.iter()).copied().collect();
        let mut actions = Vec::new();
        for BacklogEntry { ticket, demand, .. } in waiting {
            if let Some(refusal) = self.refusal(ticket, demand) {
                self.leave(ticket, 0);
                actions.push(refusal);
            }
        }
        actions
    }

    fn in_service(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| !device.is_gone())
    }

    fn device(&mut self, id: DeviceId, slots: u32, bytes: u64) {
        match self.devices.iter_mut().find(|device| device.id == id) {
            Some(device) => device.resize(slots, bytes),
            None => self.devices.push(Device::new(id, slots, bytes)),
        }
    }

    fn arrive(&mut self, ticket: Ticket, demand: Demand) {
        let now = self.now;
        let pool = self.pool_mut(demand.pool);
        if !pool.is_awake() {
            pool.wake(now);
        }
        pool.backlog.push(ticket, demand);
    }

    fn leave(&mut self, ticket: Ticket, used_us: u64) {
        match self.running.remove(&ticket) {
            Some(StartedJob { device, demand, charged_us }) => {
                self.device_mut(device).release(demand);
                self.pool_mut(demand.pool).end(demand.bytes, charged_us, used_us);
            }
            None => {
                self.pools.iter_mut().for_each(|pool| pool.backlog.remove(ticket));
                self.forget_reservations(ticket);
            }
        }
    }

    fn start_all(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.draining {
            return actions;
        }
        let mut asked = Vec::new();
        while let Some((ticket, demand, device)) = self.next_start(&mut asked) {
            self.forget_reservations(ticket);
            self.device_mut(device).take(demand);
            let charged_us = self.pool_mut(demand.pool).start();
            self.running.insert(ticket, StartedJob { device, demand, charged_us });
            actions.push(Action::Start(ticket, device));
        }
        actions.extend(asked.into_iter().map(|(device, pool)| Action::ReleaseCache(device, pool)));
        actions
    }

    /// The next job to start, from the pool with the least device time among those with a fitting job. Collects in `asked` the executors that
    /// cache memory for which a job waits.
    fn next_start(&mut self, asked: &mut Vec<(DeviceId, PoolId)>) -> Option<(Ticket, Demand, DeviceId)> {
        let mut order: Vec<usize> = (0..self.pools.len()).filter(|i| self.pools[*i].backlog.len() > 0).collect();
        order.sort_by_key(|index| self.pools[*index].time());
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        self.devices.iter_mut().for_each(|device| placement::forget_vain_reservation(device, &claims));
        for (turn, index) in order.iter().enumerate() {
            let (pool, devices) = (&mut self.pools[*index], &mut self.devices);
            let mut place = None;
            let found = pool.backlog.pop(|waiting| {
                place = emptiest(devices, &claims, waiting, asked);
                place.is_some()
            });
            if let Some(BacklogEntry { ticket, demand, .. }) = found {
                let device = place.expect("pop returns only what found a place");
                let is_shared = !placement::has_own_slot(self.device_mut(device), &claims, demand.pool);
                self.pass(&order[..turn], self.pools[*index].time(), is_shared);
                self.now = self.now.max(self.pools[order[0]].time());
                return Some((ticket, demand, device));
            }
        }
        None
    }

    /// Records that these pools had their turn but no fitting job. If the slot belongs to another pool, they could not have used it anyway.
    fn pass(&mut self, pools: &[usize], time: u128, is_shared: bool) {
        for index in pools {
            let pool = &mut self.pools[*index];
            pool.backlog.pass();
            if is_shared {
                pool.pass(time);
            }
        }
    }

    fn forget_reservations(&mut self, ticket: Ticket) {
        self.devices.iter_mut().for_each(|device| device.forget_reservation(ticket));
    }

    fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        self.pools.iter_mut().find(|pool| pool.id == id).expect("demands name pools that the scheduler was made with")
    }

    fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        self.devices.iter_mut().find(|device| device.id == id).expect("devices are told of before anything about them")
    }
}

/// The device with the most free slots among those that can run the job now. A job that must run alone, or that
/// was passed too often, reserves a device if all are busy: until it has started, no other job takes the room that it needs.
fn emptiest(
    devices: &mut [Device],
    claims: &[Claim],
    waiting: &BacklogEntry,
    asked: &mut Vec<(DeviceId, PoolId)>,
) -> Option<DeviceId> {
    let BacklogEntry { ticket, demand, passed } = *waiting;
    let best = |devices: &[Device], wanted| {
        let fitting = (0..devices.len()).filter(|at| placement::fit(&devices[*at], claims, ticket, demand) == wanted);
        fitting.max_by_key(|at| devices[*at].slots_free())
    };
    if let Some(at) = best(devices, Fit::Now) {
        return Some(devices[at].id);
    }
    if let Some(at) = best(devices, Fit::IfGivenBack) {
        let device = &mut devices[at];
        asked.extend(device.release_cache(demand.pool, demand.bytes).into_iter().map(|pool| (device.id, pool)));
    }
    let reserved = devices.iter().any(|device| device.is_reserved_for(ticket));
    if (demand.alone || passed >= PASSED_MAX) && !reserved {
        let candidates = devices.iter_mut().filter(|device| placement::can_reserve(device, claims, demand));
        if let Some(device) = candidates.max_by_key(|device| device.slots_free()) {
            device.reserve(ticket, demand);
        }
    }
    None
}
