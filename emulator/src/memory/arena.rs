//! Which addresses are free. Address space is cheap, so that some of it stays unused: behind each allocation, and
//! where one was freed a short while ago.

use std::collections::{BTreeMap, VecDeque};

use super::ALLOCATION_ALIGN;

/// Behind each allocation as many bytes belong to nobody, where there is room: an index that is a little too large
/// is found out and does not reach a neighbour.
const GAP_BYTES: u64 = ALLOCATION_ALIGN;

/// Freed ranges that are not used again at once. More would not tell more, and their list would grow.
const QUARANTINE_MAX: usize = 1024;

#[derive(Debug)]
pub struct Arena {
    /// Free address ranges, start to length, both multiples of the alignment; neighbours are merged.
    holes: BTreeMap<u64, u64>,
    /// Freed ranges, the oldest first, which become holes when there are too many or no hole is large enough.
    quarantine: VecDeque<(u64, u64)>,
    quarantined: u64,
    quarantined_max: u64,
    /// Bytes that were asked for and not given back.
    pub used: u64,
}

impl Arena {
    /// Of the `reserved` addresses, as many as there is `capacity` may wait before they are used again.
    pub fn new(base: u64, reserved: u64, capacity: u64) -> Arena {
        Arena {
            holes: BTreeMap::from([(base, reserved)]),
            quarantine: VecDeque::new(),
            quarantined: 0,
            quarantined_max: capacity,
            used: 0,
        }
    }

    /// Addresses for `room` bytes, a multiple of the alignment: their start, and how many were taken.
    pub fn take(&mut self, room: u64) -> Option<(u64, u64)> {
        let roomy = room + GAP_BYTES;
        let hole = |arena: &Arena, room: u64| arena.holes.iter().find(|(_, hole)| **hole >= room).map(|(at, _)| *at);
        if let Some(start) = hole(self, roomy) {
            return Some(self.carve(start, roomy));
        }
        while let Some((start, length)) = self.release_oldest() {
            if length >= roomy {
                return Some(self.carve(start, roomy));
            }
        }
        hole(self, room).map(|start| self.carve(start, room))
    }

    /// Takes addresses back.
    pub fn give(&mut self, start: u64, room: u64) {
        self.quarantine.push_back((start, room));
        self.quarantined += room;
        while self.quarantine.len() > QUARANTINE_MAX || self.quarantined > self.quarantined_max {
            self.release_oldest();
        }
    }

    fn carve(&mut self, start: u64, room: u64) -> (u64, u64) {
        let hole = self.holes.remove(&start).expect("it was found just now");
        if hole > room {
            self.holes.insert(start + room, hole - room);
        }
        (start, room)
    }

    /// Makes a hole of the range that was freed first; the hole as it is then.
    fn release_oldest(&mut self) -> Option<(u64, u64)> {
        let (mut start, mut room) = self.quarantine.pop_front()?;
        self.quarantined -= room;
        if let Some((&before, &length)) = self.holes.range(..start).next_back()
            && before + length == start
        {
            self.holes.remove(&before);
            (start, room) = (before, length + room);
        }
        if let Some(length) = self.holes.remove(&(start + room)) {
            room += length;
        }
        self.holes.insert(start, room);
        Some((start, room))
    }
}
