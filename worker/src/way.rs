//! The way of a job that workers pass on because no device of theirs can run it: whom it has met, as it stands in its headers.
//!
//! The broker tells how many consumers a queue has, and not who they are. So that nobody is counted who has left, workers count only from
//! the moment at which nobody new was met any more and their number has stood: who is met after that was there all along.

use std::collections::BTreeMap;

use gpufleet_schema::{
    bounds::HEADER_TEXT_BYTES_MAX,
    topology::{HEADER_HOPS, HEADER_MET, HEADER_MET_LATELY, HEADER_MET_OF},
};
use gpufleet_transport::{HeaderValue, Properties};

/// Between the workers in the list.
const SEPARATOR: &str = "; ";
/// Between a worker and its devices.
const COLON: &str = ": ";
/// In the place of a worker's devices.
const UNTOLD: &str = "…";

/// Hops that a job makes at once for each worker that it has met: they are in turn, so that two or three rounds meet all that are free.
const QUICK_HOPS_EACH: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Way {
    /// Times that it was passed on.
    hops: u32,
    /// The workers, who was met last at the end.
    met: Vec<Met>,
    /// How many of the last were met since nobody new was, and since their number changed.
    lately: usize,
    /// Consumers that the queue had then.
    of: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Met {
    worker: String,
    have: String,
}

impl Way {
    /// Whatever stands in the headers that is not ours is taken for no way at all.
    pub fn of(properties: &Properties) -> Self {
        let count = |name| properties.header_int(name).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        let met =
            properties.header_text(HEADER_MET).filter(|met| met.len() <= HEADER_TEXT_BYTES_MAX).unwrap_or_default();
        let met: Vec<_> = met.split(SEPARATOR).filter_map(Met::parse).collect();
        let lately = (count(HEADER_MET_LATELY) as usize).min(met.len());
        Self { hops: count(HEADER_HOPS), met, lately, of: count(HEADER_MET_OF) }
    }

    /// Writes it down, unless there is none.
    pub fn write(&self, headers: &mut BTreeMap<String, HeaderValue>) {
        if self.hops > 0 {
            let lately = u32::try_from(self.lately).expect("a header holds few workers");
            headers.insert(HEADER_HOPS.to_owned(), self.hops.into());
            headers.insert(HEADER_MET.to_owned(), text(&self.met).into());
            headers.insert(HEADER_MET_LATELY.to_owned(), lately.into());
            headers.insert(HEADER_MET_OF.to_owned(), self.of.into());
        }
    }

    /// It meets a worker that has these devices. One whose devices do not fit into the header stands there by its name; one whose
    /// name does not fit either is left out, and the hops decide.
    pub fn meet(&mut self, worker: &str, have: &str) {
        self.hops = self.hops.saturating_add(1);
        let known = self.met.iter().position(|met| met.worker == worker);
        let is_late = known.is_some_and(|index| index >= self.met.len() - self.lately);
        let known = known.map(|index| self.met.remove(index));
        let is_known = known.is_some();
        if let Some(met) = known.or_else(|| self.new_one(worker, have)) {
            self.met.push(met);
            self.lately = if is_known { self.lately + usize::from(!is_late) } else { 1 };
        }
    }

    /// The queue has so many consumers. Where they were another number before, somebody who was met may have left since.
    pub fn count(&mut self, consumers: u32) {
        if self.of != consumers {
            (self.of, self.lately) = (consumers, self.lately.min(1));
        }
    }

    /// Whether all consumers of the queue have been met.
    pub fn has_met_all(&self) -> bool {
        self.of > 0 && self.lately >= self.of as usize
    }

    /// How many of the hops were beyond those that meet everybody who is free.
    pub fn stray_hops(&self) -> u32 {
        let workers = u32::try_from(self.met.len()).unwrap_or(u32::MAX).max(1);
        self.hops.saturating_sub(workers.saturating_mul(QUICK_HOPS_EACH))
    }

    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// The devices of all workers that were met; once these are all that there are, without those that have left.
    pub fn fleet(&self) -> String {
        let left = if self.has_met_all() { self.met.len() - self.lately } else { 0 };
        text(&self.met[left..])
    }

    fn new_one(&self, worker: &str, have: &str) -> Option<Met> {
        let fits = |met: &Met| {
            let used: usize = self.met.iter().map(|met| met.bytes() + SEPARATOR.len()).sum();
            used + met.bytes() <= HEADER_TEXT_BYTES_MAX
        };
        let with = |have: &str| Met { worker: worker.to_owned(), have: have.replace(';', ",") };
        [with(have), with(UNTOLD)].into_iter().find(fits)
    }
}

impl Met {
    fn parse(text: &str) -> Option<Self> {
        let (worker, have) = text.split_once(COLON)?;
        Some(Self { worker: worker.to_owned(), have: have.to_owned() })
    }

    fn bytes(&self) -> usize {
        self.worker.len() + COLON.len() + self.have.len()
    }
}

fn text(met: &[Met]) -> String {
    let workers: Vec<_> = met.iter().map(|met| format!("{}{COLON}{}", met.worker, met.have)).collect();
    workers.join(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way along these workers, in a queue with so many consumers.
    fn way(workers: &[&str], consumers: u32) -> Way {
        let mut way = Way::default();
        for worker in workers {
            way.meet(worker, "GPU");
            way.count(consumers);
        }
        way
    }

    #[test]
    fn the_only_worker_is_all_that_there_is() {
        assert!(way(&["w1"], 1).has_met_all());
        assert!(!way(&["w1"], 2).has_met_all());
        assert!(!way(&["w1"], 0).has_met_all(), "nobody knows");
    }

    #[test]
    fn everybody_is_met_once_more_before_they_are_all() {
        assert!(!way(&["w1", "w2"], 2).has_met_all());
        assert!(way(&["w1", "w2", "w1"], 2).has_met_all());
        assert!(!way(&["w1", "w2", "w3", "w1", "w1"], 3).has_met_all());
        assert!(way(&["w1", "w2", "w3", "w1", "w1", "w2"], 3).has_met_all());
    }

    #[test]
    fn a_worker_that_starts_again_under_another_name_is_not_two() {
        assert!(!way(&["old", "old", "new", "new", "new"], 2).has_met_all());
    }

    #[test]
    fn a_worker_that_has_left_does_not_count() {
        let mut way = way(&["w1", "w2", "w1"], 3);
        way.meet("w1", "GPU");
        way.count(2);
        assert!(!way.has_met_all(), "the second is gone, and a third was never met");
        assert_eq!(way.fleet(), "w2: GPU; w1: GPU");
        way.meet("w3", "GPU");
        way.meet("w1", "GPU");
        assert!(way.has_met_all());
        assert_eq!(way.fleet(), "w3: GPU; w1: GPU");
    }

    #[test]
    fn the_first_hops_are_quick_and_the_more_the_more_workers_there_are() {
        assert_eq!(way(&["w1"; 3], 2).stray_hops(), 0);
        assert_eq!(way(&["w1"; 5], 2).stray_hops(), 2);
        assert_eq!(way(&["w1", "w2", "w1", "w2", "w1"], 3).stray_hops(), 0);
    }

    #[test]
    fn it_is_the_same_after_a_journey_in_headers() {
        let mut way = way(&["w1", "w2", "w1"], 3);
        way.meet("w3", "a; b");
        let mut properties = Properties::default();
        way.write(&mut properties.headers);
        assert_eq!(Way::of(&properties), way);
        assert_eq!(way.fleet(), "w2: GPU; w1: GPU; w3: a, b");
        assert_eq!(Way::of(&Properties::default()), Way::default());
    }

    #[test]
    fn a_worker_whose_devices_do_not_fit_into_the_header_still_counts() {
        let large = "x".repeat(HEADER_TEXT_BYTES_MAX);
        let mut way = way(&["w1"], 2);
        way.meet("w2", &large);
        way.meet("w1", "GPU");
        way.count(2);
        assert!(way.has_met_all());
        assert_eq!(way.fleet(), "w2: …; w1: GPU");
        let before = way.clone();
        way.meet(&large, "GPU");
        assert_eq!((way.met, way.hops), (before.met, before.hops + 1), "there is no room even for the name");
    }
}
