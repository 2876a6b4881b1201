//! Reservations of devices for waiting jobs.
//!
//! A job that must run alone, or that others have passed too often, reserves a device. Until it has started, no other job takes the room
//! that it needs there.

use super::{Demand, DeviceId, PoolId, Ticket};

/// The reservation of a device for a waiting job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reservation {
    pub(super) device: DeviceId,
    pub(super) ticket: Ticket,
    pub(super) demand: Demand,
}

/// All reservations: at most one for each device and for each job. Usually there are none, so a copy costs nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Reservations(Vec<Reservation>);

impl Reservations {
    pub(super) fn add(&mut self, reservation: Reservation) {
        self.0.push(reservation);
    }

    pub(super) fn of_device(&self, device: DeviceId) -> Option<&Reservation> {
        self.0.iter().find(|reservation| reservation.device == device)
    }

    pub(super) fn has_job(&self, ticket: Ticket) -> bool {
        self.0.iter().any(|reservation| reservation.ticket == ticket)
    }

    pub(super) fn retain(&mut self, keeps: impl FnMut(&Reservation) -> bool) {
        self.0.retain(keeps);
    }

    pub(super) fn drop_job(&mut self, ticket: Ticket) {
        self.0.retain(|reservation| reservation.ticket != ticket);
    }

    pub(super) fn drop_device(&mut self, device: DeviceId) {
        self.0.retain(|reservation| reservation.device != device);
    }

    pub(super) fn drop_pool(&mut self, device: DeviceId, pool: PoolId) {
        self.0.retain(|reservation| reservation.device != device || reservation.demand.pool != pool);
    }
}
