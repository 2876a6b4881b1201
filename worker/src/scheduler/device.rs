//! One device as the scheduler sees it: places, bytes, and who has it to himself.

use super::{Demand, DeviceId, Ticket};

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) bytes: u64,
    bytes_taken: u64,
    places: u32,
    places_taken: u32,
    up: bool,
    gone: bool,
    /// A job that runs here wants no neighbours.
    exclusive: bool,
    /// A job that waits for this device to become empty.
    reserved: Option<Ticket>,
}

impl Device {
    pub(super) fn new(id: DeviceId, places: u32, bytes: u64) -> Self {
        Self {
            id,
            bytes,
            bytes_taken: 0,
            places,
            places_taken: 0,
            up: true,
            gone: false,
            exclusive: false,
            reserved: None,
        }
    }

    pub(super) fn bring_up(&mut self, places: u32, bytes: u64) {
        self.places = places;
        self.bytes = bytes;
        self.up = true;
    }

    /// Whoever waited for it may find another device sooner.
    pub(super) fn take_down(&mut self) {
        self.up = false;
        self.reserved = None;
    }

    pub(super) fn give_up(&mut self) {
        self.take_down();
        self.gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn places_free(&self) -> u32 {
        self.places.saturating_sub(self.places_taken)
    }

    pub(super) fn can_take(&self, ticket: Ticket, demand: Demand) -> bool {
        self.up
            && !self.exclusive
            && self.reserved.is_none_or(|reserved| reserved == ticket)
            && self.places_free() > 0
            && (!demand.alone || self.places_taken == 0)
            && demand.bytes <= self.bytes.saturating_sub(self.bytes_taken)
    }

    pub(super) fn can_reserve(&self, demand: Demand) -> bool {
        self.up && self.reserved.is_none() && demand.bytes <= self.bytes
    }

    pub(super) fn reserve(&mut self, ticket: Ticket) {
        self.reserved = Some(ticket);
    }

    pub(super) fn is_reserved_for(&self, ticket: Ticket) -> bool {
        self.reserved == Some(ticket)
    }

    pub(super) fn forget_reservation(&mut self, ticket: Ticket) {
        if self.is_reserved_for(ticket) {
            self.reserved = None;
        }
    }

    pub(super) fn take(&mut self, demand: Demand) {
        self.places_taken += 1;
        self.bytes_taken += demand.bytes;
        self.exclusive |= demand.alone;
    }

    pub(super) fn release(&mut self, demand: Demand) {
        self.places_taken -= 1;
        self.bytes_taken -= demand.bytes;
        // Whoever leaves was alone if the device was exclusive.
        self.exclusive = false;
    }
}
