//! One device as the scheduler sees it: places and bytes, by pool, and the executors that are up.

use super::{Demand, DeviceId, PoolId, Ticket};

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) bytes: u64,
    pub(super) places: u32,
    gone: bool,
    seats: Vec<Seat>,
    /// A job that waits for room here: nothing that would take that room starts.
    reserved: Option<(Ticket, Demand)>,
}

/// A pool's executor on the device.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) pool: PoolId,
    pub(super) up: bool,
    pub(super) places_taken: u32,
    pub(super) bytes_taken: u64,
    /// A job that runs here wants no neighbours in its process.
    pub(super) exclusive: bool,
}

impl Device {
    pub(super) fn new(id: DeviceId, places: u32, bytes: u64) -> Self {
        Self { id, bytes, places, gone: false, seats: Vec::new(), reserved: None }
    }

    /// An executor that started while the device was given up does not bring it back.
    pub(super) fn seat_up(&mut self, pool: PoolId) {
        if self.gone {
            return;
        }
        match self.seats.iter_mut().find(|seat| seat.pool == pool) {
            Some(seat) => seat.up = true,
            None => self.seats.push(Seat { pool, up: true, places_taken: 0, bytes_taken: 0, exclusive: false }),
        }
    }

    /// Whoever of the pool waited for room here may find another device sooner.
    pub(super) fn seat_down(&mut self, pool: PoolId) {
        self.seats.iter_mut().filter(|seat| seat.pool == pool).for_each(|seat| seat.up = false);
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

    pub(super) fn places_free(&self) -> u32 {
        self.places.saturating_sub(self.seats.iter().map(|seat| seat.places_taken).sum())
    }

    pub(super) fn bytes_free(&self) -> u64 {
        self.bytes.saturating_sub(self.seats.iter().map(|seat| seat.bytes_taken).sum())
    }

    /// Places and bytes that the pool has here, whether its executor is up or not: a job that is still to leave holds them.
    pub(super) fn taken(&self, pool: PoolId) -> (u32, u64) {
        let seat = self.seats.iter().find(|seat| seat.pool == pool);
        seat.map_or((0, 0), |seat| (seat.places_taken, seat.bytes_taken))
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
        seat.places_taken += 1;
        seat.bytes_taken += demand.bytes;
        seat.exclusive |= demand.alone;
    }

    pub(super) fn release(&mut self, demand: Demand) {
        let seat = self.seat_mut(demand.pool);
        seat.places_taken -= 1;
        seat.bytes_taken -= demand.bytes;
        // Whoever leaves was alone if the seat was exclusive.
        seat.exclusive = false;
    }

    fn seat_mut(&mut self, pool: PoolId) -> &mut Seat {
        self.seats.iter_mut().find(|seat| seat.pool == pool).expect("jobs start only where their pool has a seat")
    }
}
