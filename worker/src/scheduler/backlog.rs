//! A pool's waiting jobs, in order within each priority.

use std::collections::VecDeque;

use gpufleet_schema::Priority;

use super::{Demand, Ticket};

/// Number of starts in a round for high, normal and low priority.
const SHARES: [u32; 3] = [16, 4, 1];

/// Number of jobs per priority that a search looks at, so that a search stays cheap.
const LOOKAHEAD: usize = 32;

/// Maximum number of jobs in a row that may start before an older job that lacks its input on the free devices. More would gain little:
/// with eight, at most one job in nine has to fetch its input.
const OVERTAKEN_MAX: u32 = 8;

/// A waiting job, and how often a later job was started before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BacklogEntry {
    pub(super) ticket: Ticket,
    pub(super) demand: Demand,
    pub(super) passed: u32,
}

/// The waiting jobs of a pool, by priority.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: [VecDeque<BacklogEntry>; 3],
    /// The number of starts that each priority has left in this round.
    credit: [u32; 3],
    /// The number of jobs of each priority that have started since its oldest one last did.
    overtaken: [u32; 3],
}

/// The position of a waiting job. Valid until the backlog changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    queue: usize,
    index: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, ticket: Ticket, demand: Demand) {
        self.queues[index_of(demand.priority)].push_back(BacklogEntry { ticket, demand, passed: 0 });
    }

    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    pub(super) fn waiting(&self, priority: Priority) -> usize {
        self.queues[index_of(priority)].len()
    }

    /// Returns the smallest memory demand among the jobs that could start next, in bytes.
    pub(super) fn bytes_min(&self) -> Option<u64> {
        self.queues.iter().flat_map(|queue| queue.iter().take(LOOKAHEAD)).map(|waiting| waiting.demand.bytes).min()
    }

    /// Finds the next job for which `place` finds a device: first in a priority with credit, then in any other, so that no device idles for
    /// the sake of the shares. Within a priority, jobs for which `lacks_input` is true let younger ones pass, at most [`OVERTAKEN_MAX`] in
    /// a row.
    pub(super) fn find<Place>(
        &self,
        lacks_input: impl Fn(&BacklogEntry) -> bool,
        mut place: impl FnMut(&BacklogEntry) -> Option<Place>,
    ) -> Option<(Position, Place)> {
        self.order().into_iter().find_map(|queue| {
            let may_pass = self.overtaken[queue] < OVERTAKEN_MAX;
            let lets_pass = |waiting: &BacklogEntry| may_pass && lacks_input(waiting);
            let waiting = || self.queues[queue].iter().take(LOOKAHEAD).enumerate();
            let first = waiting().filter(|(_, waiting)| !lets_pass(waiting));
            let last = waiting().filter(|(_, waiting)| lets_pass(waiting));
            first.chain(last).find_map(|(index, waiting)| Some((Position { queue, index }, place(waiting)?)))
        })
    }

    /// Returns the job that is next in order, whether or not it fits anywhere.
    pub(super) fn next(&self) -> Option<(Position, &BacklogEntry)> {
        let queue = self.order().into_iter().find(|queue| !self.queues[*queue].is_empty())?;
        Some((Position { queue, index: 0 }, self.queues[queue].front()?))
    }

    /// Removes the job that [`Self::find`] or [`Self::next`] found, charges its priority, and counts the jobs that it passed.
    ///
    /// The oldest job of each priority that was searched before counts as passed too. Otherwise a large job of low priority would wait
    /// forever behind small jobs of high priority.
    pub(super) fn take(&mut self, Position { queue, index }: Position) -> BacklogEntry {
        let earlier = self.order().into_iter().take_while(|earlier| *earlier != queue);
        earlier.for_each(|earlier| self.pass_first(earlier));
        self.credit = self.credit_after_start(queue);
        self.queues[queue].iter_mut().take(index).for_each(|passed| passed.passed += 1);
        self.overtaken[queue] = if index == 0 { 0 } else { self.overtaken[queue] + 1 };
        self.queues[queue].remove(index).expect("the backlog is unchanged since the search")
    }

    /// Records that a job of another pool was started in this pool's turn, because no job of this pool fitted.
    pub(super) fn pass(&mut self) {
        (0..3).for_each(|queue| self.pass_first(queue));
    }

    /// Removes and returns the jobs that satisfy `leaves`, by priority and then by age.
    pub(super) fn extract(&mut self, mut leaves: impl FnMut(&BacklogEntry) -> bool) -> Vec<BacklogEntry> {
        let mut extracted = Vec::new();
        for queue in &mut self.queues {
            queue.retain(|waiting| {
                let leaves = leaves(waiting);
                extracted.extend(leaves.then_some(*waiting));
                !leaves
            });
        }
        extracted
    }

    /// Returns the priorities in search order: those with credit first.
    fn order(&self) -> [usize; 3] {
        let (credit, mut order) = (self.credit(), [0, 1, 2]);
        order.sort_by_key(|queue| credit[*queue] == 0);
        order
    }

    /// Returns the credits. A new round begins once no priority with waiting jobs has credit.
    fn credit(&self) -> [u32; 3] {
        let is_over = (0..3).all(|queue| self.credit[queue] == 0 || self.queues[queue].is_empty());
        if is_over { SHARES } else { self.credit }
    }

    /// Returns the credits after a start. A start without credit begins a new round for the priorities without credit. A priority whose
    /// jobs do not fit keeps its credit.
    fn credit_after_start(&self, queue: usize) -> [u32; 3] {
        let mut credit = self.credit();
        if credit[queue] == 0 {
            (0..3).filter(|other| self.credit[*other] == 0).for_each(|other| credit[other] = SHARES[other]);
        }
        credit[queue] -= 1;
        credit
    }

    fn pass_first(&mut self, queue: usize) {
        if let Some(first) = self.queues[queue].front_mut() {
            first.passed += 1;
        }
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

    /// Returns the number of starts by priority when every priority has endless work but the jobs of `stuck` never fit, and how often the
    /// oldest job of `stuck` was passed.
    fn starts_beside(stuck: Priority, starts: usize) -> ([usize; 3], u32) {
        let mut backlog = Backlog::default();
        let push = |backlog: &mut Backlog, ticket, priority| {
            let (pool, allowed) = (PoolId(0), Allowed::ALL);
            backlog.push(
                Ticket(ticket),
                Demand {
                    pool,
                    priority,
                    bytes: 1,
                    alone: false,
                    prints: false,
                    allowed,
                    input: None,
                    returnable: true,
                    brief_us: None,
                    is_long: false,
                    session: None,
                },
            );
        };
        Priority::ALL.into_iter().for_each(|priority| push(&mut backlog, 0, priority));
        let mut counts = [0; 3];
        for ticket in 0..starts as u64 {
            assert!(backlog.find(|_| false, |_| None::<()>).is_none());
            let fits = |waiting: &BacklogEntry| (waiting.demand.priority != stuck).then_some(());
            let (position, ()) = backlog.find(|_| false, fits).unwrap();
            let started = backlog.take(position).demand.priority;
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
