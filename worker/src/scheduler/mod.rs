//! Which waiting job starts next, and on which device.
//!
//! Plain data: an event goes in, actions come out. There is no clock, no tokio and no I/O here, so that every decision can be
//! tested by itself. Whoever drives it tells it what happened and does what it says.
//!
//! Pools with work share the time of the devices by their weights: the one that has used least, by weight, is next. Inside a
//! pool, priorities share the starts 16 : 4 : 1, so that `low` moves even under endless `high` work. A job starts where its bytes
//! fit and a place is free; a pool's own memory is lent once it has had no work for a while. What another pool's executor only keeps for later is asked back. A job that was in a lost executor runs alone in its
//! pool's executor: if it is lost again, it is known who did it.

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
    pool::Promise,
};
use self::{
    backlog::BacklogEntry,
    device::Device,
    placement::{Claim, Fit},
    pool::Pool,
};

/// A job that later ones have passed this often waits no longer for luck: the next device is kept free for it.
const PASSED_MAX: u32 = 64;

/// Names a job inside one worker, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A place in the worker's list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// A place in the worker's list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// What a job asks of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub pool: PoolId,
    pub priority: Priority,
    /// Device memory that it declares.
    pub bytes: u64,
    /// It must have its pool's executor to itself.
    pub alone: bool,
    /// What it prints comes out of its pool's executor, where one such job runs at a time: else nobody knew whose it is.
    pub prints: bool,
    /// Devices that have what it requires.
    pub allowed: Allowed,
    /// It is all of its message, which can go back to the broker while the job waits.
    pub returnable: bool,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Arrived(Ticket, Demand),
    /// A started job ended, having used so much device time, or a waiting one was given up by whoever asked.
    Left {
        ticket: Ticket,
        used_us: u64,
    },
    /// A device is there, or there again with other numbers.
    Device {
        device: DeviceId,
        places: u32,
        bytes: u64,
    },
    /// A pool's executor on the device takes jobs.
    ExecutorUp(DeviceId, PoolId),
    /// It says how much it has of the device beyond what its jobs declared, and keeps for the next ones.
    Kept {
        device: DeviceId,
        pool: PoolId,
        bytes: u64,
    },
    /// So much of the device's memory is there for jobs, those that run included; other processes may have the rest.
    Available {
        device: DeviceId,
        bytes: u64,
    },
    /// It is gone. Jobs that ran there are still to leave one by one.
    ExecutorDown(DeviceId, PoolId),
    /// The device will not come back.
    DeviceGone(DeviceId),
    /// Too much waits here of a queue: what can is given back.
    Shed(PoolId, Priority),
    /// Time has passed, as much each time: a pool that has had no work since the tick before lends its memory.
    Tick,
    /// Nothing may start any more.
    Draining,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start(Ticket, DeviceId),
    /// The pool's executor is to give back what it keeps: a job of another pool waits for it.
    AskBack(DeviceId, PoolId),
    /// No device of this worker can ever hold it.
    Refuse(Ticket, TooLarge),
    /// The devices that it may run on are out of service, and others are not.
    PassOn(Ticket),
    /// It has not started and will not: give it back to the broker.
    HandBack(Ticket),
}

/// What a pool could take, and what keeps it from doing so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Places that the pool could take now.
    pub open: u32,
    /// Jobs of the priority that wait all the same: they do not fit.
    pub stuck: u32,
}

/// A demand beyond the largest device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    pub bytes: u64,
    pub device_bytes_max: u64,
}

/// The state of all devices and all waiting jobs.
#[derive(Debug)]
pub struct Scheduler {
    pools: Vec<Pool>,
    devices: Vec<Device>,
    running: HashMap<Ticket, StartedJob>,
    /// The virtual time of the pool whose turn it last was: where one begins that had no work.
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
    /// A scheduler for these pools; a demand names one by its index.
    pub fn new(promises: &[Promise]) -> Self {
        let pools = (0..).zip(promises).map(|(index, promise)| Pool::new(PoolId(index), *promise)).collect();
        Self { pools, devices: Vec::new(), running: HashMap::new(), now: 0, draining: false }
    }

    pub fn step(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Arrived(ticket, _) if self.draining => return vec![Action::HandBack(ticket)],
            Event::Arrived(ticket, demand) => match self.refusal(ticket, demand) {
                Some(refusal) => return vec![refusal],
                None => self.arrive(ticket, demand),
            },
            Event::Left { ticket, used_us } => self.leave(ticket, used_us),
            Event::Device { device, places, bytes } => {
                self.device(device, places, bytes);
                return self.refuse_and_start();
            }
            Event::ExecutorUp(device, pool) => self.device_mut(device).seat_up(pool),
            Event::Kept { device, pool, bytes } => self.device_mut(device).set_kept(pool, bytes),
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
                return self.pools.iter_mut().flat_map(|pool| pool.backlog.drain()).map(Action::HandBack).collect();
            }
        }
        self.start_all()
    }

    /// What the pool's executor on the device may keep for later jobs, so that with all running jobs nobody has more than there is.
    pub fn kept_max(&self, device: DeviceId, pool: PoolId) -> u64 {
        self.devices.iter().find(|known| known.id == device).map_or(0, |device| device.kept_max(pool))
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Jobs that wait, by pool.
    pub fn waiting_by_pool(&self) -> Vec<usize> {
        self.pools.iter().map(|pool| pool.backlog.len()).collect()
    }

    /// Jobs that can run at once on the worker's devices.
    pub fn places(&self) -> u32 {
        self.in_service().map(|device| device.places).sum()
    }

    /// The room for more jobs of each queue, by pool and then by priority.
    pub fn rooms(&self) -> Vec<Room> {
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        let rooms = self.pools.iter().flat_map(|pool| {
            let open = self.in_service().map(|device| placement::open_places(device, &claims, pool.id)).sum();
            let stuck = move |priority| if open > 0 { pool.backlog.waiting(priority) as u32 } else { 0 };
            Priority::ALL.map(|priority| Room { open, stuck: stuck(priority) })
        });
        rooms.collect()
    }

    /// A suspect, or a job for which a device is kept free, has waited for it and stays.
    fn shed(&mut self, pool: PoolId, priority: Priority) -> Vec<Action> {
        let devices = &self.devices;
        let stays = |waiting: &BacklogEntry| {
            let BacklogEntry { ticket, demand, .. } = *waiting;
            demand.alone || !demand.returnable || devices.iter().any(|device| device.is_reserved_for(ticket))
        };
        let pool = self.pools.iter_mut().find(|p| p.id == pool);
        let shed = pool.map(|pool| pool.backlog.shed(priority, stays)).unwrap_or_default();
        shed.into_iter().map(Action::HandBack).collect()
    }

    /// Why the job can't be waited with. A device that is down for the moment still counts: it will be back, and the job can wait
    /// for it. Without any device in service the worker is about to leave, and the job is handed back.
    fn refusal(&self, ticket: Ticket, demand: Demand) -> Option<Action> {
        self.in_service().next()?;
        let allowed = self.in_service().filter(|device| demand.allowed.has(device.id));
        match allowed.map(|device| device.bytes).max() {
            None => Some(Action::PassOn(ticket)),
            Some(device_bytes_max) => (demand.bytes > device_bytes_max)
                .then_some(Action::Refuse(ticket, TooLarge { bytes: demand.bytes, device_bytes_max })),
        }
    }

    /// A device has become smaller, or is gone. What waited behind those that no longer fit anywhere may have its turn now.
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

    fn device(&mut self, id: DeviceId, places: u32, bytes: u64) {
        match self.devices.iter_mut().find(|device| device.id == id) {
            Some(device) => device.resize(places, bytes),
            None => self.devices.push(Device::new(id, places, bytes)),
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
        actions.extend(asked.into_iter().map(|(device, pool)| Action::AskBack(device, pool)));
        actions
    }

    /// The job to start now, of the pool that has used least among those of which something fits. On the way, `asked` gets those who keep
    /// what others wait for.
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
                let is_shared = !placement::has_own_place(self.device_mut(device), &claims, demand.pool);
                self.pass(&order[..turn], self.pools[*index].time(), is_shared);
                self.now = self.now.max(self.pools[order[0]].time());
                return Some((ticket, demand, device));
            }
        }
        None
    }

    /// It was the turn of these pools, and nothing of them fitted. A place that another pool owns they could not have had.
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

/// The device with the most free places among those that can take the job now. A job that needs an executor to itself, or that
/// was passed too often, reserves a device when all are busy: nothing takes room there that it needs until it has started.
fn emptiest(
    devices: &mut [Device],
    claims: &[Claim],
    waiting: &BacklogEntry,
    asked: &mut Vec<(DeviceId, PoolId)>,
) -> Option<DeviceId> {
    let BacklogEntry { ticket, demand, passed } = *waiting;
    let best = |devices: &[Device], wanted| {
        let fitting = (0..devices.len()).filter(|at| placement::fit(&devices[*at], claims, ticket, demand) == wanted);
        fitting.max_by_key(|at| devices[*at].places_free())
    };
    if let Some(at) = best(devices, Fit::Now) {
        return Some(devices[at].id);
    }
    if let Some(at) = best(devices, Fit::IfGivenBack) {
        let device = &mut devices[at];
        asked.extend(device.ask_back(demand.pool, demand.bytes).into_iter().map(|pool| (device.id, pool)));
    }
    let reserved = devices.iter().any(|device| device.is_reserved_for(ticket));
    if (demand.alone || passed >= PASSED_MAX) && !reserved {
        let candidates = devices.iter_mut().filter(|device| placement::can_reserve(device, claims, demand));
        if let Some(device) = candidates.max_by_key(|device| device.places_free()) {
            device.reserve(ticket, demand);
        }
    }
    None
}
