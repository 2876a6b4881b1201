//! Free addresses of a device. Address space is cheap, so a gap stays unused behind each allocation, and freed
//! addresses stay unused for a while.

use std::collections::{BTreeMap, VecDeque};

/// Alignment of every allocation, in bytes. CUDA's own allocator keeps it, and kernels rely on it for vector accesses.
pub const ALLOCATION_ALIGN: u64 = 512;

/// Bytes of the guard gap behind each allocation, where there is room. An index that is a little too large faults there
/// and does not reach a neighbour.
const GAP_BYTES: u64 = ALLOCATION_ALIGN;

/// Maximum number of freed ranges that are kept from reuse. More would hardly find more mistakes, and the list would
/// grow.
const QUARANTINE_MAX: usize = 1024;

#[derive(Debug)]
pub struct Arena {
    /// Free ranges, start to length, both multiples of the alignment; neighbours are merged.
    holes: BTreeMap<u64, u64>,
    /// Freed ranges, the oldest first. They become holes when there are too many, or when no hole is large enough.
    quarantine: VecDeque<(u64, u64)>,
    quarantined: u64,
    quarantined_max: u64,
    /// Bytes that are allocated, without guard gaps.
    pub used: u64,
}

impl Arena {
    /// Manages `reserved` addresses from `base` on. Up to `capacity` bytes of freed addresses wait before they are
    /// reused.
    pub fn new(base: u64, reserved: u64, capacity: u64) -> Arena {
        Arena {
            holes: BTreeMap::from([(base, reserved)]),
            quarantine: VecDeque::new(),
            quarantined: 0,
            quarantined_max: capacity,
            used: 0,
        }
    }

    /// Takes addresses for `room` bytes, a multiple of the alignment; returns their start and how many were taken, with
    /// the gap.
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

    /// Takes freed addresses back.
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

    /// Turns the range that was freed first into a hole, merges it with its neighbours, and returns the hole.
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
