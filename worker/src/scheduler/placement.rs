//! Whether a job may start on a device, next to what runs there and what was promised to others.

use super::{
    Demand, PoolId, Ticket,
    device::{Device, Seat},
    pool::Promise,
};

/// What a pool may claim on every device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) pool: PoolId,
    pub(super) promise: Promise,
    /// It has jobs here that run.
    pub(super) running: bool,
    /// What the least of the jobs needs that it could start next.
    pub(super) wanted: Option<u64>,
    /// What its last job took, while the next one may follow soon.
    pub(super) recent: Option<u64>,
}

impl Claim {
    /// The bytes of a device that nobody else may use now. A pool that has had no work for a while lends them, and so does one whose
    /// jobs want more than its own: otherwise two such pools would keep each other from starting anything.
    fn bytes(&self, device: &Device) -> u64 {
        let own = self.promise.bytes(device.bytes);
        let jobs = [self.wanted, self.recent];
        if self.running || jobs.into_iter().flatten().any(|bytes| bytes <= own) { own } else { 0 }
    }
}

/// What of a device is reserved for pools other than one.
struct Reserve {
    places: u32,
    bytes: u64,
}

/// How well a job fits on a device now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// Once executors of other pools have given back what they keep.
    IfGivenBack,
    Not,
}

/// How the job fits on `device` next to everything that runs and is promised there.
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

/// Whether the job may start on `device` where so many bytes are free.
///
/// What is a pool's own it may always use. Beyond that it borrows: what is free and not kept for others, and not for a job that
/// this device is reserved for.
fn fits(device: &Device, claims: &[Claim], ticket: Ticket, demand: Demand, bytes: u64) -> bool {
    let Some(seat) = device.seat(demand.pool) else { return false };
    if !demand.allowed.has(device.id) {
        return false;
    }
    if seat.exclusive || demand.alone && seat.places_taken > 0 || demand.prints && seat.printing {
        return false;
    }
    let places = device.places_free();
    if places == 0 || demand.bytes > bytes {
        return false;
    }
    let (has_own_place, has_own_bytes) = own(device, claims, demand);
    let reserve = reserve_against(device, claims, demand.pool);
    let takes_place = !has_own_place && places - 1 < reserve.places;
    let takes_bytes = !has_own_bytes && bytes - demand.bytes < reserve.bytes;
    let is_own = has_own_place && has_own_bytes;
    !takes_place && !takes_bytes && !takes_reserved(device, ticket, demand, bytes, is_own)
}

/// Places that a pool could take now if its jobs needed no memory.
pub(super) fn open_places(device: &Device, claims: &[Claim], pool: PoolId) -> u32 {
    let is_open = device.seat(pool).is_some_and(|seat| !seat.exclusive) && device.reservation().is_none();
    if !is_open {
        return 0;
    }
    let own = u32::from(has_own_place(device, claims, pool));
    let free = device.places_free();
    free.saturating_sub(reserve_against(device, claims, pool).places).max(own.min(free))
}

/// Whether keeping `device` free for the job helps: nobody else's promise stands in its way for ever. While another job prints in its pool's
/// executor it does not.
pub(super) fn can_reserve(device: &Device, claims: &[Claim], demand: Demand) -> bool {
    let has_turn = |seat: &Seat| !(demand.prints && seat.printing);
    let is_open = demand.allowed.has(device.id) && device.seat(demand.pool).is_some_and(has_turn);
    is_open && device.reservation().is_none() && may_come_to_fit(device, claims, demand)
}

/// Whether the job fits once enough has left, while the pools that have work keep what is theirs. Where none of them owns anything the
/// device drains for it, and the driver is asked what other processes leave. Beside owners that does not come about: they start without
/// an end.
fn may_come_to_fit(device: &Device, claims: &[Claim], demand: Demand) -> bool {
    let theirs: u64 = claims.iter().filter(|claim| claim.pool != demand.pool).map(|claim| claim.bytes(device)).sum();
    let there = if theirs == 0 { device.bytes } else { device.available() };
    demand.bytes <= promised(claims, demand.pool, device.bytes).max(there.saturating_sub(theirs))
}

/// A job that no longer may come to fit has nothing kept free for it.
pub(super) fn forget_vain_reservation(device: &mut Device, claims: &[Claim]) {
    if let Some((ticket, demand)) = device.reservation()
        && !may_come_to_fit(device, claims, demand)
    {
        device.forget_reservation(ticket);
    }
}

/// Whether the pool's next job takes the place that is its own: one that nobody else could have.
pub(super) fn has_own_place(device: &Device, claims: &[Claim], pool: PoolId) -> bool {
    promised(claims, pool, device.bytes) > 0 && device.taken(pool).0 == 0
}

/// Whether the start would take room for which another job has this device reserved. What is a pool's own is not held back.
fn takes_reserved(device: &Device, ticket: Ticket, demand: Demand, bytes: u64, is_own: bool) -> bool {
    let Some((reserved_for, reserved)) = device.reservation() else { return false };
    if reserved_for == ticket {
        return false;
    }
    if reserved.pool == demand.pool && (reserved.alone || reserved.prints && demand.prints) {
        return true;
    }
    let leaves_room = device.places_free() > 1 && bytes - demand.bytes >= reserved.bytes;
    let is_anothers = is_own && reserved.pool != demand.pool;
    !leaves_room && !is_anothers
}

/// Whether the job's place and bytes are its pool's own.
fn own(device: &Device, claims: &[Claim], demand: Demand) -> (bool, bool) {
    let (_, bytes_taken) = device.taken(demand.pool);
    let bytes = promised(claims, demand.pool, device.bytes);
    (has_own_place(device, claims, demand.pool), bytes_taken.saturating_add(demand.bytes) <= bytes)
}

/// A place is never lent, since a job that comes would wait for whatever runs on it. Memory is, by pools that have no work.
fn reserve_against(device: &Device, claims: &[Claim], borrower: PoolId) -> Reserve {
    let mut reserve = Reserve { places: 0, bytes: 0 };
    for claim in claims.iter().filter(|claim| claim.pool != borrower && device.seat(claim.pool).is_some()) {
        let (places_taken, bytes_taken) = device.taken(claim.pool);
        reserve.places += u32::from(claim.promise.memory_permille > 0 && places_taken == 0);
        reserve.bytes += claim.bytes(device).saturating_sub(bytes_taken);
    }
    reserve
}

fn promised(claims: &[Claim], id: PoolId, device_bytes: u64) -> u64 {
    claims.iter().find(|claim| claim.pool == id).map_or(0, |claim| claim.promise.bytes(device_bytes))
}
