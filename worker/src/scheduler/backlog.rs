//! A pool's waiting jobs, in order within each priority.

use std::collections::VecDeque;

use gpufleet_schema::Priority;

use super::{Demand, Ticket};

/// Starts per round: high, normal, low.
const SHARES: [u32; 3] = [16, 4, 1];

/// Jobs per priority that a search looks at, so that a search stays cheap.
const LOOKAHEAD: usize = 32;

/// A waiting job, and how often a later job was started before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BacklogEntry {
    pub(super) ticket: Ticket,
    pub(super) demand: Demand,
    pub(super) passed: u32,
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: [VecDeque<BacklogEntry>; 3],
    /// Starts that each priority has left in this round.
    credit: [u32; 3],
}

impl Backlog {
    pub(super) fn push(&mut self, ticket: Ticket, demand: Demand) {
        self.queues[index_of(demand.priority)].push_back(BacklogEntry { ticket, demand, passed: 0 });
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        for queue in &mut self.queues {
            queue.retain(|waiting| waiting.ticket != ticket);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BacklogEntry> {
        self.queues.iter().flatten()
    }

    /// The smallest memory demand among the jobs that could start next.
    pub(super) fn least(&self) -> Option<u64> {
        self.queues.iter().flat_map(|queue| queue.iter().take(LOOKAHEAD)).map(|waiting| waiting.demand.bytes).min()
    }

    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn waiting(&self, priority: Priority) -> usize {
        self.queues[index_of(priority)].len()
    }

    /// Removes the jobs of a priority that do not satisfy `stays`, and returns their tickets.
    pub(super) fn shed(&mut self, priority: Priority, stays: impl Fn(&BacklogEntry) -> bool) -> Vec<Ticket> {
        let queue = &mut self.queues[index_of(priority)];
        let shed = queue.iter().filter(|waiting| !stays(waiting)).map(|waiting| waiting.ticket).collect();
        queue.retain(stays);
        shed
    }

    /// Records that a job of another pool was started in this pool's turn, because no job of this pool fitted.
    pub(super) fn pass(&mut self) {
        (0..3).for_each(|queue| self.pass_head(queue));
    }

    fn pass_head(&mut self, queue: usize) {
        if let Some(head) = self.queues[queue].front_mut() {
            head.passed += 1;
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Ticket> {
        self.queues.iter_mut().flat_map(|queue| queue.drain(..)).map(|waiting| waiting.ticket)
    }

    /// Removes the next job that `fits`: first from a priority with credit, then from any other, so that no device idles for the
    /// sake of a share.
    pub(super) fn pop(&mut self, mut fits: impl FnMut(&BacklogEntry) -> bool) -> Option<BacklogEntry> {
        if (0..3).all(|queue| self.credit[queue] == 0 || self.queues[queue].is_empty()) {
            self.credit = SHARES;
        }
        let (with_credit, without): (Vec<usize>, Vec<usize>) = (0..3).partition(|queue| self.credit[*queue] > 0);
        let order = [with_credit, without.clone()].concat();
        for (turn, queue) in order.iter().copied().enumerate() {
            let Some(index) = self.queues[queue].iter().take(LOOKAHEAD).position(&mut fits) else { continue };
            // The earlier priorities had no job that fitted. Their first jobs count as passed too; otherwise a large job of a low priority
            // would wait for ever behind small jobs of a high one.
            order[..turn].iter().for_each(|queue| self.pass_head(*queue));
            if without.contains(&queue) {
                // Starts a new round for the priorities without credit. A priority whose jobs do not fit keeps its credit.
                without.into_iter().for_each(|queue| self.credit[queue] = SHARES[queue]);
            }
            self.credit[queue] -= 1;
            self.queues[queue].iter_mut().take(index).for_each(|passed| passed.passed += 1);
            return self.queues[queue].remove(index);
        }
        None
    }
}

fn index_of(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Allowed, PoolId},
        *,
    };

    /// Starts by priority while the jobs of `stuck` never fit and every priority has endless work, and how often the head of `stuck` was passed.
    fn starts_beside(stuck: Priority, starts: usize) -> ([usize; 3], u32) {
        let mut backlog = Backlog::default();
        let push = |backlog: &mut Backlog, ticket, priority| {
            let (pool, allowed) = (PoolId(0), Allowed::ALL);
            backlog.push(
                Ticket(ticket),
                Demand { pool, priority, bytes: 1, alone: false, prints: false, allowed, returnable: true },
            );
        };
        Priority::ALL.into_iter().for_each(|priority| push(&mut backlog, 0, priority));
        let mut counts = [0; 3];
        for ticket in 0..starts as u64 {
            assert!(backlog.pop(|_| false).is_none(), "a device that is full changes nothing");
            let started = backlog.pop(|waiting| waiting.demand.priority != stuck).unwrap().demand.priority;
            counts[index_of(started)] += 1;
            push(&mut backlog, ticket, started);
        }
        (counts, backlog.queues[index_of(stuck)].front().unwrap().passed)
    }

    #[test]
    fn a_priority_whose_job_does_not_fit_takes_no_share_from_the_others() {
        assert_eq!(starts_beside(Priority::Low, 200).0, [160, 40, 0]);
        assert_eq!(starts_beside(Priority::Normal, 17 * 10).0, [160, 0, 10]);
        assert_eq!(starts_beside(Priority::High, 50).0, [0, 40, 10]);
    }

    #[test]
    fn a_job_that_does_not_fit_is_passed_by_whatever_starts_in_its_place() {
        for stuck in Priority::ALL {
            let (_, passed) = starts_beside(stuck, 200);
            assert!(passed >= 9, "{stuck:?} was passed {passed} times in 200 starts");
        }
    }
}
