//! Sessions: leases of device memory for programs elsewhere. Host programs are leases of a whole device, and treated alike.
//!
//! A session takes memory for as long as it is open, perhaps for hours, and no slot. Its device time is not known before, so its pool is
//! charged while the session uses the device. Sessions wait in the order of their arrival, beside the backlogs of jobs. One that insists
//! reserves a device, because a stream of small jobs would otherwise take each byte that becomes free.

use std::collections::{HashMap, VecDeque};

use super::{
    Action, Demand, DeviceId, ExecutorId, PoolId, Scheduler, SessionTerms, Ticket,
    device::Device,
    placement::{Claim, Fit},
    pool::Pool,
    reservations::Reservation,
};

/// The sessions that wait for memory, and those that have it.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    waiting: VecDeque<(Ticket, Demand)>,
    open: HashMap<Ticket, (DeviceId, Demand)>,
}

impl Sessions {
    pub(super) fn arrive(&mut self, ticket: Ticket, demand: Demand) {
        self.waiting.push_back((ticket, demand));
    }

    /// Returns the number of open sessions.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of the pool's waiting sessions.
    pub(super) fn waiting(&self, pool: PoolId) -> usize {
        self.waiting.iter().filter(|(_, demand)| demand.pool == pool).count()
    }

    /// Returns the number of the pool's sessions that wait for a whole device: host programs.
    pub(super) fn programs_waiting(&self, pool: PoolId) -> usize {
        let is_program = |demand: &Demand| demand.pool == pool && demand.session.is_some_and(|terms| terms.is_whole);
        self.waiting.iter().filter(|(_, demand)| is_program(demand)).count()
    }

    /// Removes and returns the waiting sessions that satisfy `leaves`.
    pub(super) fn extract(&mut self, leaves: impl Fn(Ticket, Demand) -> bool) -> Vec<(Ticket, Demand)> {
        let (left, waiting) = self.waiting.drain(..).partition(|(ticket, demand)| leaves(*ticket, *demand));
        self.waiting = waiting;
        Vec::from(left)
    }
}

impl Scheduler {
    /// Starts the waiting sessions that fit, and has memory released or reserved for others.
    pub(super) fn start_sessions(&mut self, actions: &mut Vec<Action>) {
        for (ticket, demand) in self.sessions.waiting.clone() {
            let Some(terms) = demand.session else { continue };
            if let Some(device) = self.place_session(ticket, demand, terms, Fit::Now) {
                self.sessions.waiting.retain(|(waiting, _)| *waiting != ticket);
                self.reservations.drop_job(ticket);
                let demand = self.device_mut(device).demand_here(demand);
                self.device_mut(device).take_session(demand);
                self.sessions.open.insert(ticket, (device, demand));
                actions.push(Action::Start(ticket, ExecutorId::first(device, demand.pool)));
                continue;
            }
            if let Some(device) = self.place_session(ticket, demand, terms, Fit::AfterRelease) {
                let demand = self.device_mut(device).demand_here(demand);
                for executor in self.caches_in_the_way(device, demand) {
                    self.device_mut(device).request_release(executor);
                    actions.push(Action::ReleaseCache(executor));
                }
            }
            if terms.insists && !self.reservations.has_job(ticket) {
                self.reserve_for_session(ticket, demand, terms);
            }
        }
    }

    /// Charges an open session's pool for device time.
    pub(super) fn charge_session(&mut self, ticket: Ticket, used_us: u64) {
        if let Some((_, demand)) = self.sessions.open.get(&ticket) {
            let pool = demand.pool;
            self.pool_mut(pool).charge(used_us);
        }
    }

    /// Ends a session, or the wait of one. Returns false if there is none with this ticket.
    pub(super) fn leave_session(&mut self, ticket: Ticket) -> bool {
        if let Some((device, demand)) = self.sessions.open.remove(&ticket) {
            self.device_mut(device).release_session(demand);
            return true;
        }
        let was_waiting = !self.sessions.extract(|waiting, _| waiting == ticket).is_empty();
        if was_waiting {
            self.reservations.drop_job(ticket);
        }
        was_waiting
    }

    /// Returns the device on which the session fits in this way: the one with the most memory left.
    fn place_session(&self, ticket: Ticket, demand: Demand, terms: SessionTerms, wanted: Fit) -> Option<DeviceId> {
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        let offers = self.devices.iter().map(|device| self.offer(device, &claims));
        let fitting = offers.filter(|offer| offer.fit_session(ticket, demand, terms) == Some(wanted));
        fitting.max_by_key(|offer| offer.device.available_unused()).map(|offer| offer.device.id)
    }

    /// Returns the executors that must release memory for the session, so that it also leaves what is kept for others.
    fn caches_in_the_way(&self, device: DeviceId, demand: Demand) -> Vec<ExecutorId> {
        let device = self.devices.iter().find(|known| known.id == device);
        let all = |device: &Device| device.caches_to_release(None, device.cached(None).min(demand.bytes));
        device.map(all).unwrap_or_default()
    }

    fn reserve_for_session(&mut self, ticket: Ticket, demand: Demand, terms: SessionTerms) {
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        let offers = self.devices.iter().map(|device| self.offer(device, &claims));
        let useful = offers.filter(|offer| offer.can_reserve_session(demand, terms));
        let device = useful.max_by_key(|offer| offer.device.available_unused()).map(|offer| offer.device);
        if let Some(device) = device {
            self.reservations.add(Reservation { device: device.id, ticket, demand: device.demand_here(demand) });
        }
    }
}
