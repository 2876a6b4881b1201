//! Reports to the supervisor which jobs may be waiting in the driver, because time limits cover only a job's own work.
//!
//! Some driver calls wait for running kernels, and meanwhile hold a lock that every other call needs. So one waiting call blocks all other
//! jobs that call the driver, and these are reported too. The job that may block others reports them before its call, so every blocked job
//! is reported. While a job's kernels run, its thread sleeps until they have ended. This is assumed to take no lock of the driver, so it is
//! not reported.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
};

use super::upstream::Upstream;
use crate::ipc::{FromExecutor, message::BETWEEN_JOBS};

/// The states of all jobs; [`BETWEEN_JOBS`] stands for the work between jobs.
#[derive(Debug)]
pub(crate) struct Waits {
    state: Mutex<State>,
    upstream: Arc<Upstream>,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that may be in a call that waits for kernels.
    waiting: HashSet<u64>,
    /// Jobs in calls that such a call may block.
    calling: HashSet<u64>,
    /// Jobs that have been reported.
    told: HashSet<u64>,
}

impl Waits {
    pub(crate) fn new(upstream: &Arc<Upstream>) -> Self {
        Self { state: Mutex::default(), upstream: Arc::clone(upstream) }
    }

    /// Records that the job starts calls that may wait for other jobs' kernels.
    pub(crate) fn waits(&self, job: u64) {
        let mut state = self.state();
        if state.waiting.insert(job) {
            let held_up: Vec<u64> = state.calling.iter().copied().collect();
            for job in held_up.into_iter().chain([job]) {
                self.tell(&mut state, job);
            }
        }
    }

    /// Records that the job starts calls that wait for no kernel, but may be blocked by a call that does.
    pub(crate) fn calls(&self, job: u64) {
        let mut state = self.state();
        state.waiting.remove(&job);
        state.calling.insert(job);
        match state.waiting.is_empty() {
            true => self.untell(&mut state, job),
            false => self.tell(&mut state, job),
        }
    }

    /// Records that the job makes no driver calls while its kernels run.
    pub(crate) fn runs(&self, job: u64) {
        let mut state = self.state();
        state.forget(job);
        self.untell(&mut state, job);
    }

    /// Records that the job has ended. The supervisor learns that from the job's answer.
    pub(crate) fn ends(&self, job: u64) {
        let mut state = self.state();
        state.forget(job);
        state.told.remove(&job);
    }

    /// Runs a chore between jobs that may wait for their kernels. Only one chore may run at a time.
    pub(crate) fn between_jobs<T>(&self, chore: impl FnOnce() -> T) -> T {
        self.waits(BETWEEN_JOBS);
        let done = chore();
        self.runs(BETWEEN_JOBS);
        done
    }

    fn tell(&self, state: &mut State, job: u64) {
        if state.told.insert(job) {
            self.say(&FromExecutor::Waits { job });
        }
    }

    fn untell(&self, state: &mut State, job: u64) {
        if state.told.remove(&job) {
            self.say(&FromExecutor::GoesOn { job });
        }
    }

    /// Sends a message under the lock, so that messages are in order. A lost supervisor is detected elsewhere.
    fn say(&self, message: &FromExecutor) {
        drop(self.upstream.say(message));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding it")
    }
}

impl State {
    fn forget(&mut self, job: u64) {
        self.waiting.remove(&job);
        self.calling.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::ipc::frame::FrameReader;

    fn said(steps: impl FnOnce(&Waits)) -> Vec<(u64, bool)> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let waits = Waits::new(&Arc::new(Upstream::over(ours)));
        steps(&waits);
        drop(waits);
        let (mut theirs, mut said) = (FrameReader::over(theirs), Vec::new());
        while let Some((message, _)) = theirs.read::<FromExecutor>().unwrap() {
            said.push(match message {
                FromExecutor::Waits { job } => (job, true),
                FromExecutor::GoesOn { job } => (job, false),
                other => panic!("{other:?}"),
            });
        }
        said
    }

    #[test]
    fn jobs_without_a_wait_report_nothing() {
        let all = said(|waits| {
            for job in [1, 2] {
                waits.calls(job);
                waits.runs(job);
                waits.calls(job);
                waits.ends(job);
            }
        });
        assert_eq!(all, []);
    }

    #[test]
    fn who_comes_to_a_call_while_another_waits_tells_it_and_who_runs_does_not() {
        let all = said(|waits| {
            waits.calls(1);
            waits.runs(1);
            waits.calls(2);
            waits.runs(2);
            waits.waits(3);
            waits.waits(3);
            waits.calls(1);
            waits.calls(3);
            waits.runs(1);
            waits.calls(2);
            waits.ends(2);
        });
        assert_eq!(all, [(3, true), (1, true), (3, false), (1, false)]);
    }

    #[test]
    fn who_is_in_a_call_is_spoken_for_before_another_waits() {
        let all = said(|waits| {
            waits.calls(1);
            waits.between_jobs(|| waits.calls(2));
            waits.ends(1);
            waits.runs(2);
        });
        assert_eq!(all, [(1, true), (0, true), (2, true), (0, false), (2, false)]);
    }
}
