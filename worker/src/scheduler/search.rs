//! Finds the next job to start.
//!
//! A search changes nothing. It returns a [`Plan`], which the scheduler carries out without a further decision.

use super::{
    ExecutorId, PoolId,
    backlog::{BacklogEntry, Position},
    device::Device,
    placement::{Claim, Fit, Offer},
    pool::Pool,
    pool_executor::PoolExecutor,
    reservations::{Reservation, Reservations},
};

/// Number of later jobs that may start before a job; then the job reserves a device.
const PASSED_MAX: u32 = 64;

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) start: Option<Start>,
    /// The new reservations.
    pub(super) reservations: Reservations,
    /// The executors to ask for cached memory, because jobs of other executors wait for it.
    pub(super) releases: Vec<ExecutorId>,
}

/// The next job, and where it starts.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) executor: ExecutorId,
    pub(super) position: Position,
    /// Whether another pool could have used the slot, because it is not the pool's own.
    pub(super) is_shared: bool,
    /// The pools that had their turn before but no fitting job.
    pub(super) passed: Vec<PoolId>,
}

/// A search in progress, and what it has planned so far.
struct Search<'a> {
    devices: &'a [Device],
    claims: &'a [Claim],
    reservations: Reservations,
    releases: Vec<ExecutorId>,
}

/// Finds the next job: from the pool with the least weighted device time among those with a fitting job.
pub(super) fn search(pools: &[Pool], devices: &[Device], reservations: &Reservations) -> Plan {
    let turns = turns(pools);
    let reservations = reservations.clone();
    if turns.is_empty() {
        // Those of sessions stay.
        return Plan { reservations, ..Plan::default() };
    }
    let claims: Vec<Claim> = pools.iter().map(Pool::claim).collect();
    let mut search = Search { devices, claims: &claims, reservations, releases: Vec::new() };
    search.drop_vain_reservations();
    let start = search.next_start(pools, &turns);
    Plan { start, reservations: search.reservations, releases: search.releases }
}

/// Returns whether the job's largest input would have to be fetched, because it is on no device with a free slot.
fn lacks_input(devices: &[Device], waiting: &BacklogEntry) -> bool {
    let Some(input) = waiting.demand.input else { return false };
    let mut with_slot = devices.iter().filter(|device| device.slots_free() > 0);
    !with_slot.any(|device| device.executors(waiting.demand.pool).any(|executor| executor.has_input(input)))
}

/// Returns the pools with work, in the order of their turns.
fn turns(pools: &[Pool]) -> Vec<PoolId> {
    let mut waiting: Vec<&Pool> = pools.iter().filter(|pool| !pool.backlog.is_empty()).collect();
    waiting.sort_by_key(|pool| pool.time());
    waiting.into_iter().map(|pool| pool.id).collect()
}

impl<'a> Search<'a> {
    fn next_start(&mut self, pools: &[Pool], turns: &[PoolId]) -> Option<Start> {
        turns.iter().enumerate().find_map(|(turn, pool)| {
            let backlog = &pools[pool.0 as usize].backlog;
            let devices = self.devices;
            let (position, (device, executor)) =
                backlog.find(|waiting| lacks_input(devices, waiting), |waiting| self.place_for(waiting))?;
            let is_shared = !self.offer(device).has_own_slot(*pool);
            Some(Start { executor, position, is_shared, passed: turns[..turn].to_vec() })
        })
    }

    /// Returns the best device and executor that can run the job now. If there is none, plans the releases and reservations that let the
    /// job start later.
    fn place_for(&mut self, waiting: &BacklogEntry) -> Option<(&'a Device, ExecutorId)> {
        // Nearly every search ends without a free slot.
        let has_slot = self.devices.iter().any(|device| device.slots_free() > 0);
        let place = if has_slot { self.best(waiting, Fit::Now) } else { None };
        if place.is_none() {
            if has_slot {
                self.request_memory(waiting);
            }
            self.reserve(waiting);
        }
        place
    }

    /// Returns a device where the job's executor has its input, or else the one with the most free slots. A job does not wait for an
    /// executor that has its input, because another one can start the job now and fetch the input.
    fn best(&self, waiting: &BacklogEntry, wanted: Fit) -> Option<(&'a Device, ExecutorId)> {
        let with_slot = self.devices.iter().filter(|device| device.slots_free() > 0);
        let has_input = |executor: &PoolExecutor| waiting.demand.input.is_some_and(|input| executor.has_input(input));
        let fitting = with_slot.filter_map(|device| {
            let (executor, fit) = self.offer(device).fit(waiting.ticket, waiting.demand)?;
            (fit == wanted).then_some((has_input(executor), device, executor.id))
        });
        let best = fitting.max_by_key(|(has_input, device, _)| (*has_input, device.slots_free()));
        best.map(|(_, device, executor)| (device, executor))
    }

    /// Plans to ask other executors for cached memory, if the job would fit with it.
    fn request_memory(&mut self, waiting: &BacklogEntry) {
        let Some((device, executor)) = self.best(waiting, Fit::AfterRelease) else { return };
        let missing = waiting.demand.bytes.saturating_sub(device.bytes_free(executor));
        for other in device.caches_to_release(Some(executor), missing) {
            if !self.releases.contains(&other) {
                self.releases.push(other);
            }
        }
    }

    /// Reserves a device for a job that must run alone, or that was passed too often.
    fn reserve(&mut self, waiting: &BacklogEntry) {
        let BacklogEntry { ticket, demand, passed } = *waiting;
        let is_due = demand.alone || passed >= PASSED_MAX;
        if !is_due || self.reservations.has_job(ticket) {
            return;
        }
        let candidates = self.devices.iter().filter(|device| self.offer(device).can_reserve(demand));
        if let Some(device) = candidates.max_by_key(|device| device.slots_free()) {
            self.reservations.add(Reservation { device: device.id, ticket, demand });
        }
    }

    /// Drops the reservations of jobs that would not fit even if enough jobs ended.
    fn drop_vain_reservations(&mut self) {
        let (devices, claims) = (self.devices, self.claims);
        self.reservations.retain(|reservation| {
            let device = devices.iter().find(|device| device.id == reservation.device);
            let offer = |device| Offer { device, claims, reservation: Some(reservation) };
            device.is_some_and(|device| offer(device).may_come_to_fit(reservation.demand))
        });
    }

    fn offer<'s>(&'s self, device: &'s Device) -> Offer<'s> {
        Offer { device, claims: self.claims, reservation: self.reservations.of_device(device.id) }
    }
}
