//! Trains: jobs that the supervisor sends together, and that run on one stream, one after the other.
//!
//! Their answers leave together, or after [`HELD_MAX`]. If a job takes long, the supervisor disbands its train: the answers so far leave at
//! once, and the jobs behind are released, so that they can run elsewhere.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
    vec,
};

use super::{common::Common, upstream::Upstream, work::Work};
use crate::ipc::{FromExecutor, frame::FrameError};

/// Maximum time for which an answer waits for those of other jobs that have ended.
const HELD_MAX: Duration = Duration::from_millis(1);

/// The jobs of all trains that have not begun, except the first one of each.
#[derive(Debug, Default)]
pub(crate) struct Trains(Mutex<HashMap<u64, Work>>);

/// A train on its stream.
#[derive(Debug)]
pub(crate) struct Train {
    first: Option<Work>,
    behind: vec::IntoIter<u64>,
    departed: Instant,
    /// For how long the job that runs had to wait for those before it.
    waited: Duration,
    /// Since when the oldest answer waits.
    held_since: Option<Instant>,
}

impl Trains {
    pub(crate) fn depart(&self, mut works: Vec<Work>) -> Train {
        let behind: Vec<Work> = works.drain(works.len().min(1)..).collect();
        let jobs: Vec<u64> = behind.iter().map(|work| work.run.job).collect();
        if !jobs.is_empty() {
            self.behind().extend(jobs.iter().copied().zip(behind));
        }
        let (departed, waited) = (Instant::now(), Duration::ZERO);
        Train { first: works.pop(), behind: jobs.into_iter(), departed, waited, held_since: None }
    }

    /// Releases those of these jobs that have not begun, and sends the answers of the others that have ended.
    pub(crate) fn disband(&self, jobs: &[u64], upstream: &Upstream) -> Result<(), FrameError> {
        for job in jobs {
            // A statement of its own, so that the lock is released before the answer is written.
            let released = self.behind().remove(job);
            if released.is_some() {
                drop(released);
                upstream.hold(&FromExecutor::Released { job: *job })?;
            }
        }
        upstream.flush()
    }

    fn behind(&self) -> MutexGuard<'_, HashMap<u64, Work>> {
        self.0.lock().expect("no thread panics while holding it")
    }
}

impl Train {
    /// Returns the next job that is not released.
    pub(crate) fn next(&mut self, trains: &Trains) -> Option<Work> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let next = self.behind.find_map(|job| trains.behind().remove(&job))?;
        self.waited = self.departed.elapsed();
        Some(next)
    }

    /// Answers the job that has just ended. The answer may wait for those of the jobs behind it, until [`Upstream::flush`].
    pub(crate) fn answer(&mut self, common: &Common, mut answer: FromExecutor) -> Result<(), FrameError> {
        if let FromExecutor::Finished { timings, .. } = &mut answer {
            timings.wait_us = self.waited.as_micros() as u64;
        }
        common.upstream.hold(&answer)?;
        let now = Instant::now();
        if now.duration_since(*self.held_since.get_or_insert(now)) < HELD_MAX {
            return Ok(());
        }
        self.held_since = None;
        common.upstream.flush()
    }
}
