//! The scheduler's view of one device: slots and memory by pool, and the running executors.
//!
//! A device's memory has three parts: the memory of running jobs, the memory that executors cache, and free memory.
//! Only its own pool uses an executor's cached memory. Other pools get it after a release, which takes a moment and is requested only when
//! a job waits for it.

use super::{Demand, DeviceId, PoolId, Ticket};

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) bytes: u64,
    /// The part of `bytes` that is available for all jobs together. Other processes may use the rest.
    available: u64,
    pub(super) slots: u32,
    gone: bool,
    seats: Vec<Seat>,
    /// A job that waits for room here. No job that would take this room starts.
    reserved: Option<(Ticket, Demand)>,
}

/// A pool's executor on the device.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) pool: PoolId,
    pub(super) up: bool,
    pub(super) slots_taken: u32,
    pub(super) bytes_taken: u64,
    /// The most memory that the executor caches beyond its jobs' declared memory.
    kept: u64,
    /// The executor was asked to release it, and has cached nothing new since.
    was_asked: bool,
    /// A job that must run alone runs here.
    pub(super) exclusive: bool,
    /// A job that may print runs here.
    pub(super) printing: bool,
}

impl Device {
    pub(super) fn new(id: DeviceId, slots: u32, bytes: u64) -> Self {
        Self { id, bytes, available: bytes, slots, gone: false, seats: Vec::new(), reserved: None }
    }

    /// Marks an executor as up. A device out of service stays so even if an executor has just started.
    pub(super) fn seat_up(&mut self, pool: PoolId) {
        if self.gone {
            return;
        }
        match self.seats.iter_mut().find(|seat| seat.pool == pool) {
            Some(seat) => seat.up = true,
            None => self.seats.push(Seat {
                pool,
                up: true,
                slots_taken: 0,
                bytes_taken: 0,
                kept: 0,
                was_asked: false,
                exclusive: false,
                printing: false,
            }),
        }
    }

    /// Marks an executor as down, and drops a reservation of its pool, because another device may have room sooner.
    pub(super) fn seat_down(&mut self, pool: PoolId) {
        self.seats.iter_mut().filter(|seat| seat.pool == pool).for_each(|seat| (seat.up, seat.kept) = (false, 0));
        self.reserved.take_if(|(_, demand)| demand.pool == pool);
    }

    pub(super) fn give_up(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.up = false);
        self.reserved = None;
        self.gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The pool's executor, if it is up.
    pub(super) fn seat(&self, pool: PoolId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.pool == pool && seat.up)
    }

    pub(super) fn slots_free(&self) -> u32 {
        self.slots.saturating_sub(self.seats.iter().map(|seat| seat.slots_taken).sum())
    }

    /// The additional memory that the pool's jobs can have now.
    pub(super) fn bytes_free(&self, pool: PoolId) -> u64 {
        match self.kept_by_others(pool) {
            0 => self.bytes_unused(),
            kept => self.available_unused().saturating_sub(kept),
        }
    }

    /// The additional memory that a pool's jobs can have after all other executors release their caches. If no job runs, this is the most that
    /// the device can offer. Then the job starts even if other processes use the device: the driver decides, so that no job waits for them
    /// for ever.
    pub(super) fn bytes_unused(&self) -> u64 {
        if self.seats.iter().all(|seat| seat.slots_taken == 0) { self.bytes } else { self.available_unused() }
    }

    fn available_unused(&self) -> u64 {
        self.available.saturating_sub(self.seats.iter().map(|seat| seat.bytes_taken).sum())
    }

    fn kept_by_others(&self, pool: PoolId) -> u64 {
        // Executors report what they cache, and the report may be wrong.
        let others = self.seats.iter().filter(|seat| seat.pool != pool);
        others.fold(0, |sum, seat| sum.saturating_add(seat.kept))
    }

    /// The memory that running jobs and other executors leave for the cache of the pool's executor.
    pub(super) fn cache_bytes_max(&self, pool: PoolId) -> u64 {
        self.available_unused().saturating_sub(self.kept_by_others(pool))
    }

    pub(super) fn resize(&mut self, slots: u32, bytes: u64) {
        (self.slots, self.bytes, self.available) = (slots, bytes, bytes);
    }

    pub(super) fn available(&self) -> u64 {
        self.available
    }

    pub(super) fn set_available(&mut self, available: u64) {
        self.available = available.min(self.bytes);
    }

    pub(super) fn set_kept(&mut self, pool: PoolId, kept: u64) {
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.pool == pool && seat.up) {
            seat.was_asked &= kept <= seat.kept;
            seat.kept = kept;
        }
    }

    /// Pools whose executors must release memory so that a job of `pool` gets `bytes`: those with the largest caches, as few as needed,
    /// without executors that have already released everything.
    pub(super) fn release_cache(&mut self, pool: PoolId, bytes: u64) -> Vec<PoolId> {
        let mut missing = bytes.saturating_sub(self.bytes_free(pool));
        let mut others: Vec<&mut Seat> =
            self.seats.iter_mut().filter(|seat| seat.pool != pool && seat.kept > 0).collect();
        others.sort_by_key(|seat| std::cmp::Reverse(seat.kept));
        let mut asked = Vec::new();
        for seat in others {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(seat.kept);
            if !std::mem::replace(&mut seat.was_asked, true) {
                asked.push(seat.pool);
            }
        }
        asked
    }

    /// The slots and memory that the pool uses here. They count even if its executor is down, until each job has left.
    pub(super) fn taken(&self, pool: PoolId) -> (u32, u64) {
        let seat = self.seats.iter().find(|seat| seat.pool == pool);
        seat.map_or((0, 0), |seat| (seat.slots_taken, seat.bytes_taken))
    }

    pub(super) fn reservation(&self) -> Option<(Ticket, Demand)> {
        self.reserved
    }

    pub(super) fn reserve(&mut self, ticket: Ticket, demand: Demand) {
        self.reserved = Some((ticket, demand));
    }

    pub(super) fn is_reserved_for(&self, ticket: Ticket) -> bool {
        self.reserved.is_some_and(|(reserved, _)| reserved == ticket)
    }

    pub(super) fn forget_reservation(&mut self, ticket: Ticket) {
        self.reserved.take_if(|(reserved, _)| *reserved == ticket);
    }

    pub(super) fn take(&mut self, demand: Demand) {
        let seat = self.seat_mut(demand.pool);
        seat.slots_taken += 1;
        seat.bytes_taken += demand.bytes;
        seat.exclusive |= demand.alone;
        seat.printing |= demand.prints;
    }

    pub(super) fn release(&mut self, demand: Demand) {
        let seat = self.seat_mut(demand.pool);
        seat.slots_taken -= 1;
        seat.bytes_taken -= demand.bytes;
        seat.was_asked = false;
        // A job that leaves an exclusive seat was the only one there.
        seat.exclusive = false;
        seat.printing &= !demand.prints;
    }

    fn seat_mut(&mut self, pool: PoolId) -> &mut Seat {
        self.seats.iter_mut().find(|seat| seat.pool == pool).expect("jobs start only where their pool has a seat")
    }
}
