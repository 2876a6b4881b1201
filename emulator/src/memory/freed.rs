//! What was allocated and is no more, for reports.

use std::collections::VecDeque;

/// Freed allocations that are remembered: a pointer that is still used mostly points to one of the latest.
const REMEMBERED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Freed {
    /// Start and bytes, the latest last.
    ranges: VecDeque<(u64, u64)>,
}

impl Freed {
    pub fn push(&mut self, base: u64, bytes: u64) {
        if self.ranges.len() == REMEMBERED_MAX {
            self.ranges.pop_front();
        }
        self.ranges.push_back((base, bytes));
    }

    /// The latest that held an address. The address may be another allocation's by now: the caller looks there first.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        let holds = |(base, bytes): &&(u64, u64)| address.checked_sub(*base).is_some_and(|offset| offset < *bytes);
        self.ranges.iter().rev().find(holds).copied()
    }
}
