//! Trains: brief jobs of one pool that share a slot, one after the other.
//!
//! A job of some microseconds costs less than the messages about it, so several go to the executor together. They wait for each other,
//! so a train is short: another pool's job, or one of higher priority, waits at most [`TRAIN_US_MAX`] longer for the slot, as far as the
//! expectation is right. A train never takes a job that another free slot could start.

use std::collections::HashMap;

use super::{Demand, ExecutorId, Scheduler, Ticket, placement::Claim, pool::Pool};

/// Maximum number of jobs in a train.
const JOBS_MAX: usize = 16;
/// Maximum expected run time of a train, in microseconds.
const TRAIN_US_MAX: u32 = 1_000;
/// Maximum expected run time of a job that rides in a train, in microseconds.
pub(crate) const BRIEF_US_MAX: u32 = 500;

/// The trains on all devices. A job alone in its slot is in none.
#[derive(Debug, Default)]
pub(super) struct Trains {
    /// The first job of the train that each job rides in.
    firsts: HashMap<Ticket, Ticket>,
    /// The number of jobs left in each train, by its first job.
    left: HashMap<Ticket, usize>,
}

impl Trains {
    fn depart(&mut self, first: Ticket, joined: &[Ticket]) {
        self.left.insert(first, 1 + joined.len());
        self.firsts.extend([first].iter().chain(joined).map(|ticket| (*ticket, first)));
    }

    /// Records that a job has left its slot. Returns whether the slot is free.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(first) = self.firsts.remove(&ticket) else { return true };
        let left = self.left.get_mut(&first).expect("a train has jobs until the last one leaves");
        *left -= 1;
        let is_empty = *left == 0;
        if is_empty {
            self.left.remove(&first);
        }
        is_empty
    }
}

impl Scheduler {
    /// Adds waiting jobs to a job that has just started. All free slots are taken by now.
    pub(super) fn fill_train(&mut self, first: Ticket, executor: ExecutorId) -> Vec<Ticket> {
        let Demand { pool, brief_us: Some(mut total_us), .. } = self.running[&first].demand else { return Vec::new() };
        let mut joined = Vec::new();
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        // The slots share what waits.
        let waiting = self.pool(pool).backlog.len();
        let slots = self.device_mut(executor.device).slots.max(1) as usize;
        let length = (1 + waiting / slots).min(JOBS_MAX);
        while joined.len() + 1 < length {
            let Some((position, next)) = self.pool(pool).backlog.next() else { break };
            let demand = next.demand;
            let Some(next_us) = demand.brief_us.filter(|next_us| total_us + next_us <= TRAIN_US_MAX) else { break };
            if !self.fits_behind(executor, demand, &claims) {
                break;
            }
            let ticket = self.pool_mut(pool).backlog.take(position).ticket;
            self.reservations.drop_job(ticket);
            self.device_mut(executor.device).take_memory(demand);
            self.run(ticket, executor, demand);
            total_us += next_us;
            joined.push(ticket);
        }
        if !joined.is_empty() {
            self.trains.depart(first, &joined);
        }
        joined
    }

    fn fits_behind(&self, executor: ExecutorId, demand: Demand, claims: &[Claim]) -> bool {
        let device = self.devices.iter().find(|known| known.id == executor.device);
        device.is_some_and(|device| self.offer(device, claims).fits_behind(executor, demand))
    }
}
