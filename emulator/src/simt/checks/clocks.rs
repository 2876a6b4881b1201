//! The order of accesses, which barriers and synchronising memory operations establish (vector clocks).
//!
//! Each warp has a clock that ticks whenever one of its threads synchronises. An access is stamped with the time of its
//! warp; it comes before an access of another thread if that thread has seen a later time. Between warps, knowledge is
//! kept per warp: if only some lanes of a warp wait at a barrier of the block, the other lanes count as if they had,
//! and the check may miss a race with them.

use std::collections::HashMap;

use crate::ops::lanes::LANES;

/// For each warp, or each lane of one warp, the time up to which its accesses are known.
type Times = [u32; LANES];

/// Maximum number of memory locations whose synchronisation is tracked separately. If there are more, their knowledge
/// is merged, and every thread that reads the next location receives all of it.
const PLACES_MAX: usize = 1 << 16;

#[derive(Debug)]
pub struct Clocks {
    now: Vec<u32>,
    /// For each warp, what it knows of all warps.
    warps: Vec<Times>,
    /// For each lane, what it knows of the lanes of its warp.
    lanes: Vec<[Times; LANES]>,
    barriers: HashMap<u32, Told>,
    places: HashMap<u64, Told>,
}

/// The knowledge that threads left at a barrier or in a memory location.
#[derive(Clone, Debug, Default)]
struct Told {
    warps: Times,
    /// For each warp, what its lanes know of each other.
    lanes: HashMap<u32, Times>,
}

fn join(into: &mut Times, from: &Times) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
}

fn each(lanes: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| lanes >> lane & 1 != 0)
}

impl Clocks {
    pub fn new(threads: u32) -> Clocks {
        let warps = threads.div_ceil(LANES as u32) as usize;
        Clocks {
            now: vec![1; warps],
            warps: vec![[0; LANES]; warps],
            lanes: vec![[[0; LANES]; LANES]; warps],
            barriers: HashMap::new(),
            places: HashMap::new(),
        }
    }

    pub fn start(&mut self) {
        self.now.fill(1);
        self.warps.fill([0; LANES]);
        self.lanes.fill([[0; LANES]; LANES]);
        self.barriers.clear();
        self.places.clear();
    }

    pub fn now(&self, warp: u32) -> u32 {
        self.now[warp as usize]
    }

    /// Reports whether the access of `thread` at `time` comes before what `other` does now.
    pub fn ordered(&self, thread: u32, time: u32, other: u32) -> bool {
        let lanes = LANES as u32;
        let (warp, lane) = ((thread / lanes) as usize, (thread % lanes) as usize);
        let (at, by) = ((other / lanes) as usize, (other % lanes) as usize);
        let seen = if warp == at { self.lanes[at][by][lane] } else { self.warps[at][warp] };
        thread == other || seen > time
    }

    /// The lanes of one warp synchronise.
    pub fn meet(&mut self, warp: u32, lanes: u32) {
        let told = self.tell(warp, lanes);
        each(lanes).for_each(|lane| self.lanes[warp as usize][lane] = told);
    }

    /// Lanes arrive at a barrier of the block.
    pub fn arrive(&mut self, barrier: u32, warp: u32, lanes: u32) {
        let mut told = self.barriers.remove(&barrier).unwrap_or_default();
        self.tell_all(&mut told, warp, lanes);
        self.barriers.insert(barrier, told);
    }

    /// Lanes leave a barrier.
    pub fn pass(&mut self, barrier: u32, warp: u32, lanes: u32) {
        if let Some(told) = self.barriers.remove(&barrier) {
            self.hear(&told, warp, lanes);
            self.barriers.insert(barrier, told);
        }
    }

    /// A barrier starts its next phase.
    pub fn open(&mut self, barrier: u32) {
        self.barriers.remove(&barrier);
    }

    /// A thread accesses a location with a strong operation.
    pub fn synchronise(&mut self, place: u64, warp: u32, lane: u32, reads: bool, writes: bool) {
        let mut told = self.places.remove(&place).unwrap_or_default();
        if reads {
            self.hear(&told, warp, 1 << lane);
        }
        if writes {
            self.tell_all(&mut told, warp, 1 << lane);
        }
        if self.places.len() >= PLACES_MAX {
            for (_, old) in self.places.drain() {
                join(&mut told.warps, &old.warps);
            }
        }
        self.places.insert(place, told);
    }

    /// Returns the combined knowledge of lanes of a warp, including themselves, and advances the warp's clock.
    fn tell(&mut self, warp: u32, lanes: u32) -> Times {
        let index = warp as usize;
        self.now[index] += 1;
        let mut known = [0; LANES];
        for lane in each(lanes) {
            join(&mut known, &self.lanes[index][lane]);
        }
        each(lanes).for_each(|lane| known[lane] = self.now[index]);
        known
    }

    fn tell_all(&mut self, told: &mut Told, warp: u32, lanes: u32) {
        let known = self.tell(warp, lanes);
        join(&mut told.warps, &self.warps[warp as usize]);
        told.warps[warp as usize] = self.now[warp as usize];
        join(told.lanes.entry(warp).or_insert([0; LANES]), &known);
    }

    fn hear(&mut self, told: &Told, warp: u32, lanes: u32) {
        join(&mut self.warps[warp as usize], &told.warps);
        if let Some(times) = told.lanes.get(&warp) {
            each(lanes).for_each(|lane| join(&mut self.lanes[warp as usize][lane], times));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clocks;

    #[test]
    fn a_barrier_orders_only_the_threads_that_arrived_before_it() {
        let mut clocks = Clocks::new(96);
        let time = clocks.now(0);
        assert!(!clocks.ordered(3, time, 4) && !clocks.ordered(3, time, 40) && clocks.ordered(3, time, 3));
        clocks.arrive(0, 0, u32::MAX);
        clocks.arrive(0, 1, u32::MAX);
        clocks.pass(0, 0, u32::MAX);
        clocks.pass(0, 1, u32::MAX);
        assert!(clocks.ordered(3, time, 4) && clocks.ordered(3, time, 40) && !clocks.ordered(3, time, 70));
        // Accesses after the barrier are not ordered.
        assert!(!clocks.ordered(3, clocks.now(0), 4) && !clocks.ordered(3, clocks.now(0), 40));
    }

    #[test]
    fn lanes_that_meet_know_of_each_other_alone() {
        let mut clocks = Clocks::new(32);
        let time = clocks.now(0);
        clocks.meet(0, 0b11);
        assert!(clocks.ordered(0, time, 1) && !clocks.ordered(0, time, 2) && !clocks.ordered(2, time, 0));
        clocks.meet(0, 0b110);
        assert!(clocks.ordered(0, time, 2), "through lane 1");
        assert!(!clocks.ordered(2, time, 0));
    }

    #[test]
    fn what_is_told_in_memory_is_known_to_who_reads_it() {
        let mut clocks = Clocks::new(64);
        let time = clocks.now(0);
        clocks.synchronise(0x100, 0, 5, false, true);
        assert!(!clocks.ordered(5, time, 40));
        clocks.synchronise(0x100, 1, 8, true, false);
        assert!(clocks.ordered(5, time, 40));
        assert!(!clocks.ordered(5, clocks.now(0), 40));
    }
}
