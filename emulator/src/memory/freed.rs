//! The latest freed allocations, for reports about uses after free.

use std::collections::VecDeque;

/// Maximum number of freed allocations that are remembered. A dangling pointer mostly points to one of the latest.
const REMEMBERED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Freed {
    /// Start and bytes of each, the latest last.
    ranges: VecDeque<(u64, u64)>,
}

impl Freed {
    pub fn push(&mut self, base: u64, bytes: u64) {
        if self.ranges.len() == REMEMBERED_MAX {
            self.ranges.pop_front();
        }
        self.ranges.push_back((base, bytes));
    }

    /// Returns the latest that contained an address. A live allocation may contain the address by now, so the caller
    /// looks there first.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        let holds = |(base, bytes): &&(u64, u64)| address.checked_sub(*base).is_some_and(|offset| offset < *bytes);
        self.ranges.iter().rev().find(holds).copied()
    }
}
