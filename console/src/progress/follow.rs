//! What is followed at the broker: all jobs of a pool, or one job.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use gpufleet::{
    Fleet, ProgressError, ProgressUpdates,
    schema::{JobId, PoolName, Progress},
};
use gpufleet_service::chain;
use tokio::{
    select,
    time::{Instant, sleep, sleep_until},
};

use super::seen::{Seen, Shown};

/// A page asks each second. After this time without a question, no page shows the job.
const UNUSED_AFTER: Duration = Duration::from_secs(5);
/// Between two attempts to follow. A refusal briefly interrupts what else this connection follows.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const TRY_AGAIN_AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// A binding at the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    Pool(PoolName),
    Job(PoolName, JobId),
}

#[derive(Debug)]
pub(super) struct Follow {
    pub(super) key: Key,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used_at: Instant,
    /// Why no messages come.
    problem: Option<String>,
    jobs: HashMap<JobId, Watched>,
}

/// A job that a page shows.
#[derive(Debug)]
struct Watched {
    used_at: Instant,
    seen: Option<Seen>,
}

impl Follow {
    pub(super) fn new(key: Key) -> Self {
        let state = State { used_at: Instant::now(), problem: None, jobs: HashMap::new() };
        Self { key, state: Mutex::new(state) }
    }

    /// Returns how far these jobs are, as far as that is known, and why it may not be.
    pub(super) fn look(&self, wanted: &[JobId]) -> (Option<String>, Vec<(JobId, Shown)>) {
        let now = Instant::now();
        let mut state = self.state();
        state.used_at = now;
        for job in wanted {
            state.jobs.entry(*job).or_insert(Watched { used_at: now, seen: None }).used_at = now;
        }
        state.jobs.retain(|_, job| now.duration_since(job.used_at) < UNUSED_AFTER);
        let shown = |job: &JobId| Some((*job, state.jobs[job].seen.as_ref()?.shown()));
        (state.problem.clone(), wanted.iter().filter_map(shown).collect())
    }

    pub(super) fn touch(&self) {
        self.state().used_at = Instant::now();
    }

    pub(super) fn is_unused(&self) -> bool {
        self.state().used_at.elapsed() >= UNUSED_AFTER
    }

    /// Follows until no page asks for it any more.
    pub(super) async fn run(&self, fleet: &Fleet) {
        while !self.is_unused() {
            // To cancel this could leave the binding behind.
            let wait = match self.bind(fleet).await {
                Ok(mut updates) => {
                    self.state().problem = None;
                    select! {
                        () = self.unused() => return,
                        () = self.receive(&mut updates) => TRY_AGAIN,
                    }
                }
                Err(error) => {
                    self.state().problem = Some(chain(&error));
                    match error {
                        ProgressError::Forbidden { .. } | ProgressError::NoProgress => TRY_AGAIN_AFTER_REFUSAL,
                        ProgressError::Timeout { .. } | ProgressError::Closed => TRY_AGAIN,
                    }
                }
            };
            select! {
                () = self.unused() => return,
                () = sleep(wait) => {}
            }
        }
    }

    async fn bind(&self, fleet: &Fleet) -> Result<ProgressUpdates, ProgressError> {
        match &self.key {
            Key::Pool(pool) => fleet.progress_of_pool(pool).await,
            Key::Job(pool, job) => fleet.progress_of(pool, *job).await,
        }
    }

    /// Ends with the connection.
    async fn receive(&self, updates: &mut ProgressUpdates) {
        while let Some(progress) = updates.next().await {
            self.learn(&progress);
        }
    }

    fn learn(&self, progress: &Progress) {
        let mut state = self.state();
        let Some(Watched { seen, .. }) = state.jobs.get_mut(&progress.job_id) else { return };
        let with_text = matches!(self.key, Key::Job(..));
        match seen {
            Some(seen) => seen.learn(progress, with_text),
            None => *seen = Some(Seen::new(progress, with_text)),
        }
    }

    /// Waits until no page has asked for a while.
    async fn unused(&self) {
        while !self.is_unused() {
            let at = self.state().used_at + UNUSED_AFTER;
            sleep_until(at).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic happens under this lock")
    }
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::{Count, Stage, VERSION};
    use tokio::time::advance;

    use super::*;

    fn report(job_id: JobId, sequence: u64) -> Progress {
        let (at_ms, launches) = (1_000 * (sequence as i64 + 1), Some(Count { done: sequence, total: 9 }));
        let (stage, counter, bytes, printed) = (Stage::Running, None, None, None);
        Progress {
            version: VERSION,
            job_id,
            attempt: 1,
            sequence,
            at_ms,
            started_ms: 0,
            stage,
            launches,
            counter,
            bytes,
            printed,
            ran_on: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_jobs_that_a_page_shows_are_kept_and_only_while_it_asks() {
        let (shown, other) = (JobId::new(), JobId::new());
        let follow = Follow::new(Key::Pool("a".parse().unwrap()));
        assert_eq!(follow.look(&[shown]), (None, Vec::new()));
        follow.learn(&report(shown, 0));
        follow.learn(&report(other, 0));
        assert_eq!(follow.look(&[shown]).1.len(), 1);
        assert_eq!(follow.look(&[other]).1, []);
        advance(UNUSED_AFTER / 2).await;
        follow.look(&[other]);
        advance(UNUSED_AFTER / 2).await;
        assert!(!follow.is_unused());
        assert_eq!(follow.look(&[]).1, []);
        assert_eq!(follow.look(&[shown]).1, [], "it was forgotten meanwhile");
        advance(UNUSED_AFTER).await;
        assert!(follow.is_unused());
    }
}
