//! Quarantine: refuses programs that repeatedly kill executors, for a limited time. Each death makes the neighbours run again, and a
//! program that killed three executors within minutes will probably kill the next.
//!
//! This module is plain data: callers pass the time. They report only deaths that the program is proven to have caused.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use gpufleet_schema::{Inline, Program, Task};

use crate::scheduler::PoolId;

/// Number of deaths within [`WINDOW`] after which a program is refused.
pub const DEATHS_MAX: usize = 3;
/// Period in which deaths count. Deaths that are further apart probably depend on the data, not on the program.
pub const WINDOW: Duration = Duration::from_secs(600);
/// How long a program is refused: long enough to get through a queue full of the same job without running it, short enough to wait for
/// after correcting the data.
pub const REFUSED_FOR: Duration = Duration::from_secs(300);
/// Maximum number of programs to remember; the oldest are dropped first. A program is added only when it has killed an executor.
const PROGRAMS_MAX: usize = 1024;

/// Identifies a program for quarantine by pool, code, options and entries. The pool is included so that the data of one team does not block
/// a kernel for another team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Culprit(blake3::Hash);

/// Why and for how long a program is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub deaths: usize,
    pub remaining: Duration,
}

#[derive(Debug, Default)]
pub struct Quarantine {
    records: HashMap<Culprit, Record>,
}
/// The programs that have recently killed executors.

#[derive(Debug, Default)]
struct Record {
    /// The times of the deaths, oldest first, all within the window that ends with the last one.
    deaths: VecDeque<Instant>,
    refused_until: Option<Instant>,
}

impl Culprit {
    pub fn of(pool: PoolId, task: &Task<'_>) -> Self {
        let mut hasher = blake3::Hasher::new();
        // A part's length precedes it, so that different lists of parts have different hashes.
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        part(&pool.0.to_le_bytes());
        part(task.program.kind().as_bytes());
        match &task.program {
            Program::Catalog(name) => part(name.as_bytes()),
            Program::Source { code, options } => {
                part(code.as_bytes());
                options.iter().for_each(|option| part(option.as_bytes()));
            }
            Program::Ptx(text) => part(text.as_bytes()),
            Program::Cubin(Inline::Bytes(bytes)) => part(bytes),
            // Unreachable: such a task is refused earlier.
            Program::Cubin(Inline::Numbers(_)) | Program::Session { .. } | Program::Host(_) => {}
        }
        task.launches.iter().for_each(|launch| part(launch.entry.as_bytes()));
        Self(hasher.finalize())
    }
}

impl Quarantine {
    /// Returns whether nothing is quarantined, so that callers need not hash the program.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that a program has killed an executor. Returns the refusal if the program is refused from now on.
    pub fn blame(&mut self, culprit: Culprit, now: Instant) -> Option<Refused> {
        self.forget_what_is_over(now);
        if self.records.len() >= PROGRAMS_MAX && !self.records.contains_key(&culprit) {
            self.forget_oldest();
        }
        let record = self.records.entry(culprit).or_default();
        record.deaths.push_back(now);
        if record.deaths.len() >= DEATHS_MAX && record.refused_until.is_none() {
            record.refused_until = Some(now + REFUSED_FOR);
        }
        record.refused(now)
    }

    /// Returns the refusal if the program is refused now.
    pub fn refuses(&mut self, culprit: Culprit, now: Instant) -> Option<Refused> {
        self.forget_what_is_over(now);
        self.records.get(&culprit)?.refused(now)
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        self.records.retain(|_, record| record.is_kept(now));
    }

    fn forget_oldest(&mut self) {
        let oldest = self.records.iter().min_by_key(|(_, record)| record.deaths.back().copied());
        if let Some(culprit) = oldest.map(|(culprit, _)| *culprit) {
            self.records.remove(&culprit);
        }
    }
}

impl Record {
    fn refused(&self, now: Instant) -> Option<Refused> {
        let remaining = self.refused_until?.checked_duration_since(now).filter(|remaining| !remaining.is_zero())?;
        Some(Refused { deaths: self.deaths.len(), remaining })
    }

    /// Drops deaths that no longer count, and returns whether any are left. The end of a refusal drops all deaths of the program.
    fn is_kept(&mut self, now: Instant) -> bool {
        match self.refused_until {
            Some(until) => now < until,
            None => {
                while self.deaths.front().is_some_and(|death| now.saturating_duration_since(*death) > WINDOW) {
                    self.deaths.pop_front();
                }
                !self.deaths.is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Grid, Launch};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn culprit(pool: u32, ptx: &'static str, entry: &str) -> Culprit {
        let launch = Launch::new(entry, Grid::Blocks(vec![1]));
        Culprit::of(PoolId(pool), &Task { launches: vec![launch], ..Task::new(Program::Ptx(ptx.into())) })
    }

    #[test]
    fn the_third_death_within_the_window_refuses_the_program_and_no_other() {
        let (start, guilty) = (Instant::now(), culprit(0, "wild", "main"));
        let mut quarantine = Quarantine::default();
        assert_eq!(quarantine.blame(guilty, start), None);
        assert_eq!(quarantine.blame(guilty, start + MINUTE), None);
        assert_eq!(quarantine.refuses(guilty, start + MINUTE), None);
        let refused = quarantine.blame(guilty, start + 2 * MINUTE);
        assert_eq!(refused, Some(Refused { deaths: 3, remaining: REFUSED_FOR }));
        for other in [culprit(0, "tame", "main"), culprit(0, "wild", "other"), culprit(1, "wild", "main")] {
            assert_eq!(quarantine.refuses(other, start + 2 * MINUTE), None);
        }
    }

    #[test]
    fn a_refusal_ends_by_itself_and_the_program_begins_anew() {
        let (start, guilty) = (Instant::now(), culprit(0, "wild", "main"));
        let mut quarantine = Quarantine::default();
        (0..3).for_each(|_| {
            quarantine.blame(guilty, start);
        });
        let almost = start + REFUSED_FOR - Duration::from_secs(1);
        let remaining = Duration::from_secs(1);
        assert_eq!(quarantine.refuses(guilty, almost), Some(Refused { deaths: 3, remaining }));
        let over = start + REFUSED_FOR;
        assert_eq!(quarantine.refuses(guilty, over), None);
        assert!(quarantine.is_empty());
        assert_eq!(quarantine.blame(guilty, over), None);
    }

    #[test]
    fn jobs_that_were_already_on_the_way_do_not_make_the_refusal_longer() {
        let (start, guilty) = (Instant::now(), culprit(0, "wild", "main"));
        let mut quarantine = Quarantine::default();
        (0..3).for_each(|_| {
            quarantine.blame(guilty, start);
        });
        let refused = quarantine.blame(guilty, start + MINUTE);
        assert_eq!(refused, Some(Refused { deaths: 4, remaining: REFUSED_FOR - MINUTE }));
    }

    #[test]
    fn deaths_far_apart_are_accidents() {
        let (start, guilty) = (Instant::now(), culprit(0, "wild", "main"));
        let mut quarantine = Quarantine::default();
        for death in 0..10 {
            assert_eq!(quarantine.blame(guilty, start + 6 * MINUTE * death), None, "death {death}");
        }
        assert_eq!(quarantine.refuses(guilty, start + 60 * MINUTE), None);
    }

    #[test]
    fn what_is_kept_in_mind_is_bounded_and_the_oldest_goes_first() {
        let start = Instant::now();
        let culprits: Vec<_> = (0..=PROGRAMS_MAX as u32).map(|pool| culprit(pool, "wild", "main")).collect();
        let mut quarantine = Quarantine::default();
        for (index, culprit) in (0..).zip(&culprits) {
            quarantine.blame(*culprit, start + Duration::from_millis(index));
        }
        assert_eq!(quarantine.records.len(), PROGRAMS_MAX);
        assert!(!quarantine.records.contains_key(&culprits[0]));
    }
}
