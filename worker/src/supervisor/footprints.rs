//! Caches properties of programs: their device memory, whether they can print, and how long their jobs take. Scanning a long text for every
//! tiny job would cost more than the job.

use std::num::NonZero;

use lru::LruCache;

use crate::{
    executor::{Code, ProgramKey},
    shared_state::SharedState,
};

/// Maximum number of entries: many times the programs of an executor. Each entry takes some tens of bytes.
const ENTRIES_MAX: NonZero<usize> = NonZero::new(1024).expect("the constant is not zero");

/// Inverse weight of a new time in the average.
const SMOOTHING: u64 = 16;

/// The properties of a program, read from its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    /// The device memory of the program's module.
    pub(super) bytes: u64,
    /// Whether the program's kernels can print.
    pub(super) prints: bool,
    /// The average time that the last jobs with this program took, in microseconds. `None` before the first one.
    pub(super) mean_us: Option<u32>,
}

/// The footprints of the most recently used programs.
#[derive(Debug)]
pub(super) struct Footprints(SharedState<LruCache<ProgramKey, Footprint>>);

impl Footprints {
    /// Returns the footprint of `code`, whose key is `key`.
    pub(super) fn of(&self, key: ProgramKey, code: Code<'_>) -> Footprint {
        if let Some(footprint) = self.0.lock().get(&key) {
            return *footprint;
        }
        // Scan without the lock, although several threads may then scan the same new program.
        let footprint = Footprint { bytes: code.device_bytes(), prints: code.prints(), mean_us: None };
        self.0.lock().put(key, footprint);
        footprint
    }

    /// Records how long a job took on a device.
    pub(super) fn has_run(&self, key: ProgramKey, took_us: u64) {
        if let Some(footprint) = self.0.lock().get_mut(&key) {
            let sum = footprint.mean_us.map_or(took_us.saturating_mul(SMOOTHING), |mean_us| {
                (u64::from(mean_us) * (SMOOTHING - 1)).saturating_add(took_us)
            });
            footprint.mean_us = Some(u32::try_from(sum / SMOOTHING).unwrap_or(u32::MAX));
        }
    }
}

impl Default for Footprints {
    fn default() -> Self {
        Self(SharedState::new(LruCache::new(ENTRIES_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_program_is_the_average_of_its_last_jobs() {
        let (footprints, code) = (Footprints::default(), Code::Ptx("text"));
        let mean = || footprints.of(code.key(), code).mean_us;
        assert_eq!(mean(), None);
        for (took_us, expected) in [(100, 100), (1_700, 200), (200, 200), (u64::MAX, u32::MAX)] {
            footprints.has_run(code.key(), took_us);
            assert_eq!(mean(), Some(expected));
        }
        (0..1_000).for_each(|_| footprints.has_run(code.key(), 160));
        assert_eq!(mean().unwrap() / 20, 8, "{:?}", mean());
    }

    #[test]
    fn a_footprint_is_the_code_and_its_variables_and_the_table_stays_bounded() {
        let footprints = Footprints::default();
        let of = |text: &str| footprints.of(Code::Ptx(text).key(), Code::Ptx(text));
        let text = ".global .align 4 .b8 table[65536];";
        for _ in 0..2 {
            assert_eq!(of(text), Footprint { bytes: 65536 + text.len() as u64, prints: false, mean_us: None });
        }
        for number in 0..2 * ENTRIES_MAX.get() {
            of(&number.to_string());
            of(text);
        }
        let known = footprints.0.lock();
        assert_eq!(known.len(), ENTRIES_MAX.get());
        assert!(known.contains(&Code::Ptx(text).key()), "it was used all the time");
    }
}
