//! Decides whether a job may start on a device, given its running jobs and the guarantees of other pools.

use super::{
    Demand, ExecutorId, PoolId, SessionTerms, Ticket,
    device::Device,
    pool::{PoolGuarantee, permille_of},
    pool_executor::PoolExecutor,
    reservations::Reservation,
};

/// A pool's claim on the memory and slots of every device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) pool: PoolId,
    pub(super) guarantee: PoolGuarantee,
    /// Whether the pool has running jobs on this worker.
    pub(super) running: bool,
    /// The smallest demand among the jobs that the pool could start next, in bytes, if it has guaranteed memory.
    pub(super) wanted: Option<u64>,
    /// The demand of the pool's last job, in bytes, as long as the next one may follow soon.
    pub(super) recent: Option<u64>,
}

/// How a job fits on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// It fits once other executors have released cached memory.
    AfterRelease,
}

/// A device with everything that decides who may use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) device: &'a Device,
    /// The claims of all pools, indexed by pool.
    pub(super) claims: &'a [Claim],
    pub(super) reservation: Option<&'a Reservation>,
}

impl SessionTerms {
    /// Returns the most memory that the sessions of the pool may have on a device of this size, in bytes.
    pub(crate) fn bytes_max(self, device_bytes: u64) -> u64 {
        permille_of(device_bytes, self.memory_permille)
    }
}

/// The slots and memory of a device that are reserved for other pools.
struct Reserve {
    slots: u32,
    bytes: u64,
}

impl Claim {
    /// Returns the memory of a device that other pools may not use now. A pool that has been idle for a while lends its guaranteed memory.
    /// So does a pool whose jobs all need more than its guarantee, because two such pools would block each other.
    fn bytes(&self, device: &Device) -> u64 {
        let own = self.guarantee.bytes(device.bytes);
        let jobs = [self.wanted, self.recent];
        if self.running || jobs.into_iter().flatten().any(|bytes| bytes <= own) { own } else { 0 }
    }
}

impl<'a> Offer<'a> {
    /// Returns the executor that would run the job, and how the job fits there beside the device's running jobs and the guarantees of other
    /// pools. `None` if it does not fit.
    pub(super) fn fit(self, ticket: Ticket, demand: Demand) -> Option<(&'a PoolExecutor, Fit)> {
        let executor = self.executor_for(ticket, demand)?;
        let with = |bytes| self.fits_in(ticket, demand, bytes);
        if with(self.device.bytes_free(executor.id)) {
            Some((executor, Fit::Now))
        } else {
            with(self.device.bytes_unused()).then_some((executor, Fit::AfterRelease))
        }
    }

    /// Returns the best of the pool's executors that could run the job, if the device has a slot for it.
    fn executor_for(self, ticket: Ticket, demand: Demand) -> Option<&'a PoolExecutor> {
        if self.device.slots_free() == 0 || !demand.allowed.has(self.device.id) {
            return None;
        }
        let waits = |executor: &PoolExecutor| !self.fits_in(ticket, demand, self.device.bytes_soon(executor.id));
        let unblocked = self.device.executors(demand.pool).filter(|executor| !executor.is_blocked_for(demand));
        unblocked.min_by_key(|executor| executor.rank(demand, waits(executor)))
    }

    /// Returns whether the job may start if `bytes` are free.
    ///
    /// A pool may always use its own slot and memory. Above that it may borrow what is free, unless it is reserved for another pool or for
    /// a job that has reserved this device.
    fn fits_in(self, ticket: Ticket, demand: Demand, bytes: u64) -> bool {
        if demand.bytes > bytes {
            return false;
        }
        let (is_own_slot, is_own_memory) = (self.has_own_slot(demand.pool), self.has_own_memory(demand));
        let reserve = self.reserve_against(demand.pool);
        let takes_slot = !is_own_slot && self.device.slots_free() - 1 < reserve.slots;
        let takes_bytes = !is_own_memory && bytes - demand.bytes < reserve.bytes;
        let is_own = is_own_slot && is_own_memory;
        !takes_slot && !takes_bytes && !self.takes_reserved(ticket, demand, bytes, is_own)
    }

    /// Returns how the session fits on the device. Unlike a job, it never gets memory that other processes use, because it is promised all
    /// of it.
    pub(super) fn fit_session(self, ticket: Ticket, demand: Demand, terms: SessionTerms) -> Option<Fit> {
        let (device, pool) = (self.device, demand.pool);
        let demand = device.demand_here(demand);
        let of_sessions = device.session_bytes(pool).saturating_add(demand.bytes);
        if !self.takes_sessions(demand) || of_sessions > terms.bytes_max(device.bytes) {
            return None;
        }
        if demand.is_whole() && !device.is_idle() {
            return None;
        }
        let unused = device.available_unused();
        let reserved = self.reservation.filter(|reservation| reservation.ticket != ticket);
        // A pool's own memory is its own, whatever others have reserved.
        let (is_own, is_ours) =
            (self.has_own_memory(demand), |reservation: &&Reservation| reservation.demand.pool == pool);
        let kept = reserved.filter(|reservation| !is_own || is_ours(reservation));
        let kept = kept.map_or(0, |reservation| reservation.demand.bytes);
        let theirs = if is_own { 0 } else { self.reserve_against(pool).bytes };
        let fits = |bytes: u64| bytes.checked_sub(demand.bytes).is_some_and(|left| left >= theirs.max(kept));
        if fits(unused.saturating_sub(device.cached(None))) {
            Some(Fit::Now)
        } else {
            fits(unused).then_some(Fit::AfterRelease)
        }
    }

    /// Returns whether a reservation of the device would help the session.
    pub(super) fn can_reserve_session(self, demand: Demand, terms: SessionTerms) -> bool {
        let demand = self.device.demand_here(demand);
        let of_sessions = self.device.session_bytes(demand.pool).saturating_add(demand.bytes);
        self.reservation.is_none()
            && self.takes_sessions(demand)
            && of_sessions <= terms.bytes_max(self.device.bytes)
            && self.may_come_to_fit(demand)
    }

    fn takes_sessions(self, demand: Demand) -> bool {
        !self.device.is_gone() && !self.device.is_leased() && demand.allowed.has(self.device.id)
    }

    /// Returns whether the job's memory fits on the device, so that it can join a train in the executor. No train grows on a device that a
    /// job has reserved.
    pub(super) fn fits_behind(self, executor: ExecutorId, demand: Demand) -> bool {
        let free = self.device.bytes_free(executor);
        let leaves_reserve =
            || self.has_own_memory(demand) || free - demand.bytes >= self.reserve_against(demand.pool).bytes;
        let leaves_lease = |reservation: &Reservation| {
            let is_session = reservation.demand.session.is_some() && !reservation.demand.is_whole();
            is_session && free - demand.bytes >= reservation.demand.bytes
        };
        demand.allowed.has(self.device.id)
            && demand.bytes <= free
            && leaves_reserve()
            && self.reservation.is_none_or(leaves_lease)
    }

    /// Returns the number of slots that a pool could use now if its jobs needed no memory.
    pub(super) fn open_slots(self, pool: PoolId) -> u32 {
        // A session reserves memory, and no slot.
        let reserves_slots = |demand: Demand| demand.session.is_none() || demand.is_whole();
        let is_reserved = self.reservation.is_some_and(|reservation| reserves_slots(reservation.demand));
        let is_open = !is_reserved && self.device.executors(pool).any(|executor| !executor.exclusive);
        if !is_open {
            return 0;
        }
        let (own, free) = (u32::from(self.has_own_slot(pool)), self.device.slots_free());
        free.saturating_sub(self.reserve_against(pool).slots).max(own.min(free))
    }

    /// Returns whether a reservation of the device would help the job: no guarantee of another pool blocks it forever, and not every
    /// executor of its pool is occupied by another job that prints.
    pub(super) fn can_reserve(self, demand: Demand) -> bool {
        let has_turn = |executor: &PoolExecutor| !(demand.prints && executor.printing);
        self.reservation.is_none()
            && demand.allowed.has(self.device.id)
            && self.device.executors(demand.pool).any(has_turn)
            && self.may_come_to_fit(demand)
    }

    /// Returns whether the job will fit once enough jobs have ended, while the pools with work keep their guarantees and open sessions
    /// stay. If none of them has a
    /// guarantee, the device can drain completely, and then the driver decides whether other processes leave enough memory. Beside pools
    /// with guarantees the device never drains, because they keep starting jobs.
    pub(super) fn may_come_to_fit(self, demand: Demand) -> bool {
        let others = self.claims.iter().filter(|claim| claim.pool != demand.pool);
        let theirs: u64 = others.map(|claim| claim.bytes(self.device)).sum();
        let there = if theirs == 0 { self.device.bytes } else { self.device.available() };
        let own = self.guaranteed_bytes(demand.pool).saturating_sub(self.device.session_bytes(demand.pool));
        let open = self.device.all_session_bytes();
        demand.bytes <= own.max(there.saturating_sub(theirs).saturating_sub(open))
    }

    /// Returns whether the pool's next job uses the pool's own slot, which no other pool may use.
    pub(super) fn has_own_slot(self, pool: PoolId) -> bool {
        self.guaranteed_bytes(pool) > 0 && self.device.taken(pool).0 == 0
    }

    fn has_own_memory(self, demand: Demand) -> bool {
        let (_, bytes_taken) = self.device.taken(demand.pool);
        bytes_taken.saturating_add(demand.bytes) <= self.guaranteed_bytes(demand.pool)
    }

    /// Returns whether the start would take room that another job has reserved. A reservation does not affect a pool's own slot and memory.
    fn takes_reserved(self, ticket: Ticket, demand: Demand, bytes: u64, is_own: bool) -> bool {
        let Some(Reservation { ticket: reserved_for, demand: reserved, .. }) = self.reservation else { return false };
        if *reserved_for == ticket {
            return false;
        }
        if reserved.pool == demand.pool && (reserved.alone || reserved.prints && demand.prints) {
            return true;
        }
        let leaves_slot = match reserved.session {
            Some(terms) => !terms.is_whole,
            None => self.device.slots_free() > 1,
        };
        let leaves_room = leaves_slot && bytes - demand.bytes >= reserved.bytes;
        let is_anothers = is_own && reserved.pool != demand.pool;
        !leaves_room && !is_anothers
    }

    /// Returns the slots and memory that other pools keep from `borrower`. A pool's own slot is never lent, because the owner's next job
    /// would have to wait for the borrower. An idle pool lends its memory.
    fn reserve_against(self, borrower: PoolId) -> Reserve {
        let mut reserve = Reserve { slots: 0, bytes: 0 };
        let others = self.claims.iter().filter(|claim| claim.pool != borrower);
        for claim in others.filter(|claim| self.device.executors(claim.pool).next().is_some()) {
            let (slots_taken, bytes_taken) = self.device.taken(claim.pool);
            reserve.slots += u32::from(claim.guarantee.memory_permille > 0 && slots_taken == 0);
            reserve.bytes += claim.bytes(self.device).saturating_sub(bytes_taken);
        }
        reserve
    }

    fn guaranteed_bytes(self, pool: PoolId) -> u64 {
        self.claims[pool.0 as usize].guarantee.bytes(self.device.bytes)
    }
}
