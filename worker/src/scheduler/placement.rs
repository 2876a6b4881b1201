//! Decides whether a job may start on a device, given its running jobs and the guarantees of other pools.

use super::{
    Demand, PoolId, Ticket,
    device::{Device, Seat},
    pool::PoolGuarantee,
};

/// A pool's claim on the memory and slots of every device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) pool: PoolId,
    pub(super) guarantee: PoolGuarantee,
    /// The pool has running jobs on this worker.
    pub(super) running: bool,
    /// The smallest demand among the jobs that it could start next.
    pub(super) wanted: Option<u64>,
    /// The demand of its last job, while the next one may follow soon.
    pub(super) recent: Option<u64>,
}

impl Claim {
    /// The memory of a device that other pools may not use now. A pool that has been idle for a while lends it, and so does a pool whose
    /// jobs need more than its guarantee: otherwise two such pools would block each other.
    fn bytes(&self, device: &Device) -> u64 {
        let own = self.guarantee.bytes(device.bytes);
        let jobs = [self.wanted, self.recent];
        if self.running || jobs.into_iter().flatten().any(|bytes| bytes <= own) { own } else { 0 }
    }
}

/// The slots and memory of a device that are reserved for other pools.
struct Reserve {
    slots: u32,
    bytes: u64,
}

/// How well a job fits on a device now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// Once executors of other pools have released cached memory.
    IfGivenBack,
    Not,
}

/// How the job fits on `device` beside its running jobs and the guarantees of other pools.
pub(super) fn fit(device: &Device, claims: &[Claim], ticket: Ticket, demand: Demand) -> Fit {
    let with = |bytes| fits(device, claims, ticket, demand, bytes);
    if with(device.bytes_free(demand.pool)) {
        Fit::Now
    } else if with(device.bytes_unused()) {
        Fit::IfGivenBack
    } else {
        Fit::Not
    }
}

/// Whether the job may start on `device` if this many bytes are free.
///
/// A pool may always use its own slot and memory. Beyond that it borrows what is free and reserved neither for other pools nor for a job
/// that has reserved this device.
fn fits(device: &Device, claims: &[Claim], ticket: Ticket, demand: Demand, bytes: u64) -> bool {
    let Some(seat) = device.seat(demand.pool) else { return false };
    if !demand.allowed.has(device.id) {
        return false;
    }
    if seat.exclusive || demand.alone && seat.slots_taken > 0 || demand.prints && seat.printing {
        return false;
    }
    let slots = device.slots_free();
    if slots == 0 || demand.bytes > bytes {
        return false;
    }
    let (has_own_slot, has_own_bytes) = own(device, claims, demand);
    let reserve = reserve_against(device, claims, demand.pool);
    let takes_slot = !has_own_slot && slots - 1 < reserve.slots;
    let takes_bytes = !has_own_bytes && bytes - demand.bytes < reserve.bytes;
    let is_own = has_own_slot && has_own_bytes;
    !takes_slot && !takes_bytes && !takes_reserved(device, ticket, demand, bytes, is_own)
}

/// Slots that a pool could use now if its jobs needed no memory.
pub(super) fn open_slots(device: &Device, claims: &[Claim], pool: PoolId) -> u32 {
    let is_open = device.seat(pool).is_some_and(|seat| !seat.exclusive) && device.reservation().is_none();
    if !is_open {
        return 0;
    }
    let own = u32::from(has_own_slot(device, claims, pool));
    let free = device.slots_free();
    free.saturating_sub(reserve_against(device, claims, pool).slots).max(own.min(free))
}

/// Whether a reservation of `device` helps the job: no guarantee of another pool blocks it for ever, and no other job that prints occupies
/// its pool's executor.
pub(super) fn can_reserve(device: &Device, claims: &[Claim], demand: Demand) -> bool {
    let has_turn = |seat: &Seat| !(demand.prints && seat.printing);
    let is_open = demand.allowed.has(device.id) && device.seat(demand.pool).is_some_and(has_turn);
    is_open && device.reservation().is_none() && may_come_to_fit(device, claims, demand)
}

/// Whether the job fits once enough jobs have ended, while the pools with work keep their guarantees. If none of them has a guarantee, the
/// device drains, and the driver decides whether other processes leave enough. Beside pools with guarantees the device never drains, because
/// they keep starting jobs.
fn may_come_to_fit(device: &Device, claims: &[Claim], demand: Demand) -> bool {
    let theirs: u64 = claims.iter().filter(|claim| claim.pool != demand.pool).map(|claim| claim.bytes(device)).sum();
    let there = if theirs == 0 { device.bytes } else { device.available() };
    demand.bytes <= guaranteed_bytes(claims, demand.pool, device.bytes).max(there.saturating_sub(theirs))
}

/// Removes the reservation of a job that can no longer come to fit.
pub(super) fn forget_vain_reservation(device: &mut Device, claims: &[Claim]) {
    if let Some((ticket, demand)) = device.reservation()
        && !may_come_to_fit(device, claims, demand)
    {
        device.forget_reservation(ticket);
    }
}

/// Whether the pool's next job uses the pool's own slot, which no other pool could use.
pub(super) fn has_own_slot(device: &Device, claims: &[Claim], pool: PoolId) -> bool {
    guaranteed_bytes(claims, pool, device.bytes) > 0 && device.taken(pool).0 == 0
}

/// Whether the start would take room that another job has reserved. A reservation does not hold back a pool's own slot and memory.
fn takes_reserved(device: &Device, ticket: Ticket, demand: Demand, bytes: u64, is_own: bool) -> bool {
    let Some((reserved_for, reserved)) = device.reservation() else { return false };
    if reserved_for == ticket {
        return false;
    }
    if reserved.pool == demand.pool && (reserved.alone || reserved.prints && demand.prints) {
        return true;
    }
    let leaves_room = device.slots_free() > 1 && bytes - demand.bytes >= reserved.bytes;
    let is_anothers = is_own && reserved.pool != demand.pool;
    !leaves_room && !is_anothers
}

/// Whether the job's slot and memory are its pool's own.
fn own(device: &Device, claims: &[Claim], demand: Demand) -> (bool, bool) {
    let (_, bytes_taken) = device.taken(demand.pool);
    let bytes = guaranteed_bytes(claims, demand.pool, device.bytes);
    (has_own_slot(device, claims, demand.pool), bytes_taken.saturating_add(demand.bytes) <= bytes)
}

/// What other pools have reserved against `borrower`. A slot is never lent, because its owner's next job would wait for the borrower. An
/// idle pool lends its memory.
fn reserve_against(device: &Device, claims: &[Claim], borrower: PoolId) -> Reserve {
    let mut reserve = Reserve { slots: 0, bytes: 0 };
    for claim in claims.iter().filter(|claim| claim.pool != borrower && device.seat(claim.pool).is_some()) {
        let (slots_taken, bytes_taken) = device.taken(claim.pool);
        reserve.slots += u32::from(claim.guarantee.memory_permille > 0 && slots_taken == 0);
        reserve.bytes += claim.bytes(device).saturating_sub(bytes_taken);
    }
    reserve
}

fn guaranteed_bytes(claims: &[Claim], id: PoolId, device_bytes: u64) -> u64 {
    claims.iter().find(|claim| claim.pool == id).map_or(0, |claim| claim.guarantee.bytes(device_bytes))
}
