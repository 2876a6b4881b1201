//! Jobs that wait, in order within their priority.

use std::collections::VecDeque;

use gpufleet_schema::Priority;

use super::{Demand, Ticket};

/// Starts per round: high, normal, low.
const SHARES: [u32; 3] = [16, 4, 1];

/// How far a search looks past jobs that do not fit now, so that it stays cheap.
const LOOKAHEAD: usize = 32;

/// A job that waits, and how often a later one of its priority was started before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) demand: Demand,
    pub(super) passed: u32,
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    lanes: [VecDeque<Waiting>; 3],
    /// Starts that each priority has left in this round.
    credit: [u32; 3],
}

impl Backlog {
    pub(super) fn push(&mut self, ticket: Ticket, demand: Demand) {
        self.lanes[lane(demand.priority)].push_back(Waiting { ticket, demand, passed: 0 });
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        for lane in &mut self.lanes {
            lane.retain(|waiting| waiting.ticket != ticket);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.lanes.iter().flatten()
    }

    /// The fewest bytes that one of the jobs needs that could be next.
    pub(super) fn least(&self) -> Option<u64> {
        self.lanes.iter().flat_map(|lane| lane.iter().take(LOOKAHEAD)).map(|waiting| waiting.demand.bytes).min()
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    pub(super) fn waiting(&self, priority: Priority) -> usize {
        self.lanes[lane(priority)].len()
    }

    /// Takes out everything of a priority but what `stays`.
    pub(super) fn shed(&mut self, priority: Priority, stays: impl Fn(&Waiting) -> bool) -> Vec<Ticket> {
        let lane = &mut self.lanes[lane(priority)];
        let shed = lane.iter().filter(|waiting| !stays(waiting)).map(|waiting| waiting.ticket).collect();
        lane.retain(stays);
        shed
    }

    /// Another pool's job was started although it was this one's turn: nothing of it fitted.
    pub(super) fn pass(&mut self) {
        self.lanes.iter_mut().filter_map(VecDeque::front_mut).for_each(|head| head.passed += 1);
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Ticket> {
        self.lanes.iter_mut().flat_map(|lane| lane.drain(..)).map(|waiting| waiting.ticket)
    }

    /// Takes out the next job that `fits`: a priority with credit first, then any that has work, so that no device idles for the
    /// sake of a share.
    pub(super) fn pop(&mut self, mut fits: impl FnMut(&Waiting) -> bool) -> Option<Waiting> {
        if (0..3).all(|lane| self.credit[lane] == 0 || self.lanes[lane].is_empty()) {
            self.credit = SHARES;
        }
        let (with_credit, without): (Vec<usize>, Vec<usize>) = (0..3).partition(|lane| self.credit[*lane] > 0);
        let waiting_with_credit = with_credit.clone();
        for lane in with_credit.into_iter().chain(without) {
            let waiting = &mut self.lanes[lane];
            if let Some(index) = waiting.iter().take(LOOKAHEAD).position(&mut fits) {
                if self.credit[lane] == 0 {
                    // Whoever had a right to this start did not fit. It is passed by too, or a large job of a low priority would wait
                    // for ever behind small ones of a high one.
                    for passed in waiting_with_credit {
                        self.lanes[passed].front_mut().into_iter().for_each(|head| head.passed += 1);
                    }
                }
                let waiting = &mut self.lanes[lane];
                self.credit[lane] = self.credit[lane].saturating_sub(1);
                waiting.iter_mut().take(index).for_each(|passed| passed.passed += 1);
                return waiting.remove(index);
            }
        }
        None
    }
}

fn lane(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}
