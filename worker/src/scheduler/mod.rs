//! Which waiting job starts next, and on which device.
//!
//! Plain data: an event goes in, actions come out. There is no clock, no tokio and no I/O here, so that every decision can be
//! tested by itself. Whoever drives it tells it what happened and does what it says.
//!
//! A job starts where its bytes fit and a place is free. Priorities share the starts 16 : 4 : 1, so that `low` moves even under
//! endless `high` work. A job that was in a lost executor runs alone on its device: if it is lost again, it is known who did it.

mod backlog;
mod device;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use gpufleet_schema::Priority;

use self::{
    backlog::{Backlog, Waiting},
    device::Device,
};

/// A job that later ones have passed this often waits no longer for luck: the next device is kept free for it.
const PASSED_MAX: u32 = 64;

/// Names a job inside one worker, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A place in the worker's list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// What a job asks of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub priority: Priority,
    /// Device memory that it declares.
    pub bytes: u64,
    /// It must have the device to itself.
    pub alone: bool,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Arrived(Ticket, Demand),
    /// A started job ended, or a waiting one was given up by whoever asked.
    Left(Ticket),
    DeviceUp {
        device: DeviceId,
        places: u32,
        bytes: u64,
    },
    /// Its executor is gone. Jobs that ran there are still to leave one by one.
    DeviceDown(DeviceId),
    /// It is down and will not come back.
    DeviceGone(DeviceId),
    /// Nothing may start any more.
    Draining,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start(Ticket, DeviceId),
    /// No device of this worker can ever hold it.
    Refuse(Ticket, TooLarge),
    /// It has not started and will not: give it back to the broker.
    HandBack(Ticket),
}

/// A demand beyond the largest device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    pub bytes: u64,
    pub device_bytes_max: u64,
}

/// The state of all devices and all waiting jobs.
#[derive(Debug, Default)]
pub struct Scheduler {
    backlog: Backlog,
    devices: Vec<Device>,
    running: HashMap<Ticket, Running>,
    draining: bool,
}

#[derive(Debug)]
struct Running {
    device: DeviceId,
    demand: Demand,
}

impl Scheduler {
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Arrived(ticket, _) if self.draining => return vec![Action::HandBack(ticket)],
            Event::Arrived(ticket, demand) => match self.too_large(demand) {
                Some(too_large) => return vec![Action::Refuse(ticket, too_large)],
                None => self.backlog.push(ticket, demand),
            },
            Event::Left(ticket) => self.leave(ticket),
            Event::DeviceUp { device, places, bytes } => self.device_up(device, places, bytes),
            Event::DeviceDown(device) => self.devices.iter_mut().filter(|d| d.id == device).for_each(Device::take_down),
            Event::DeviceGone(device) => {
                self.devices.iter_mut().filter(|d| d.id == device).for_each(Device::give_up);
                return self.refuse_what_no_longer_fits();
            }
            Event::Draining => {
                self.draining = true;
                return self.backlog.drain().map(Action::HandBack).collect();
            }
        }
        self.start_all()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// A device that is down for the moment still counts: it will be back, and the job can wait for it.
    fn too_large(&self, demand: Demand) -> Option<TooLarge> {
        let device_bytes_max = self.devices.iter().filter(|d| !d.is_gone()).map(|device| device.bytes).max()?;
        (demand.bytes > device_bytes_max).then_some(TooLarge { bytes: demand.bytes, device_bytes_max })
    }

    fn refuse_what_no_longer_fits(&mut self) -> Vec<Action> {
        let waiting: Vec<_> = self.backlog.iter().map(|waiting| (waiting.ticket, waiting.demand)).collect();
        let mut actions = Vec::new();
        for (ticket, demand) in waiting {
            if let Some(too_large) = self.too_large(demand) {
                self.leave(ticket);
                actions.push(Action::Refuse(ticket, too_large));
            }
        }
        actions
    }

    fn device_up(&mut self, id: DeviceId, places: u32, bytes: u64) {
        match self.devices.iter_mut().find(|device| device.id == id) {
            Some(device) => device.bring_up(places, bytes),
            None => self.devices.push(Device::new(id, places, bytes)),
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        match self.running.remove(&ticket) {
            Some(running) => self.device_mut(running.device).release(running.demand),
            None => {
                self.backlog.remove(ticket);
                self.forget_reservations(ticket);
            }
        }
    }

    fn start_all(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.draining {
            return actions;
        }
        while let Some((ticket, demand, device)) = self.start_one() {
            self.device_mut(device).take(demand);
            self.running.insert(ticket, Running { device, demand });
            actions.push(Action::Start(ticket, device));
        }
        actions
    }

    fn start_one(&mut self) -> Option<(Ticket, Demand, DeviceId)> {
        let devices = &mut self.devices;
        let mut place = None;
        let Waiting { ticket, demand, .. } = self.backlog.pop(|waiting| {
            place = emptiest(devices, waiting);
            place.is_some()
        })?;
        self.forget_reservations(ticket);
        Some((ticket, demand, place.expect("pop returns only what found a place")))
    }

    fn forget_reservations(&mut self, ticket: Ticket) {
        self.devices.iter_mut().for_each(|device| device.forget_reservation(ticket));
    }

    fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        self.devices.iter_mut().find(|device| device.id == id).expect("devices are never removed, only taken down")
    }
}

/// The device with the most free places among those that can take the job now. A job that needs a device to itself, or that
/// was passed too often, reserves one when all are busy: that device takes nothing else until the job has started.
fn emptiest(devices: &mut [Device], waiting: &Waiting) -> Option<DeviceId> {
    let Waiting { ticket, demand, passed } = *waiting;
    let fit = devices.iter().filter(|device| device.can_take(ticket, demand)).max_by_key(|device| device.places_free());
    if let Some(device) = fit {
        return Some(device.id);
    }
    let reserved = devices.iter().any(|device| device.is_reserved_for(ticket));
    if (demand.alone || passed >= PASSED_MAX) && !reserved {
        let candidates = devices.iter_mut().filter(|device| device.can_reserve(demand));
        if let Some(device) = candidates.max_by_key(|device| device.places_free()) {
            device.reserve(ticket);
        }
    }
    None
}
