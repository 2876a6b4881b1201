//! Who has to wait in the driver, told to the supervisor, whose time limits are for jobs' own work.
//!
//! Some calls of the driver wait for the kernels that run, and hold a lock meanwhile which every other call wants: so one that waits holds
//! up all that come to a call, and they are told of, too. A job in the midst of its calls is spoken for by the one that may hold it up,
//! before that goes on to do so; nobody is held up unheard. A job whose kernels run sleeps until they have ended, which takes no lock of the
//! driver's (so we assume: nothing could show who came first to one), and is not told of.

use std::{
    collections::HashSet,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::ipc::{FromExecutor, frame, message::BETWEEN_JOBS};

/// By job; [`BETWEEN_JOBS`] is what is done for none.
#[derive(Debug)]
pub(crate) struct Waits {
    state: Mutex<State>,
    outgoing: Arc<Mutex<UnixStream>>,
}

#[derive(Debug, Default)]
struct State {
    /// May be in a call that waits for kernels.
    waiting: HashSet<u64>,
    /// In calls that such a one may hold up.
    calling: HashSet<u64>,
    /// The supervisor knows that they may have to wait.
    told: HashSet<u64>,
}

impl Waits {
    pub(crate) fn new(outgoing: &Arc<Mutex<UnixStream>>) -> Self {
        Self { state: Mutex::default(), outgoing: Arc::clone(outgoing) }
    }

    /// The job comes to calls that may wait for others' kernels.
    pub(crate) fn waits(&self, job: u64) {
        let mut state = self.state();
        if state.waiting.insert(job) {
            let held_up: Vec<u64> = state.calling.iter().copied().collect();
            for job in held_up.into_iter().chain([job]) {
                self.tell(&mut state, job);
            }
        }
    }

    /// The job comes to calls that wait for nobody's kernels, but maybe for who does.
    pub(crate) fn calls(&self, job: u64) {
        let mut state = self.state();
        state.waiting.remove(&job);
        state.calling.insert(job);
        match state.waiting.is_empty() {
            true => self.untell(&mut state, job),
            false => self.tell(&mut state, job),
        }
    }

    /// The job calls nothing: its kernels run.
    pub(crate) fn runs(&self, job: u64) {
        let mut state = self.state();
        state.forget(job);
        self.untell(&mut state, job);
    }

    /// The job has ended, as the supervisor is told anyway.
    pub(crate) fn ends(&self, job: u64) {
        let mut state = self.state();
        state.forget(job);
        state.told.remove(&job);
    }

    /// Does what is asked for between jobs and may wait for their kernels. One at a time.
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

    /// With the state in hand, so that what is said is in order. A supervisor that is gone is noticed elsewhere.
    fn say(&self, message: &FromExecutor) {
        drop(frame::write(&self.outgoing.lock().expect("no thread panics while holding the socket"), message));
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
    use super::*;

    fn said(steps: impl FnOnce(&Waits)) -> Vec<(u64, bool)> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let waits = Waits::new(&Arc::new(Mutex::new(ours)));
        steps(&waits);
        drop(waits);
        let mut said = Vec::new();
        while let Some((message, _)) = frame::read::<FromExecutor>(&theirs).unwrap() {
            said.push(match message {
                FromExecutor::Waits { job } => (job, true),
                FromExecutor::GoesOn { job } => (job, false),
                other => panic!("{other:?}"),
            });
        }
        said
    }

    #[test]
    fn jobs_among_which_nobody_waits_tell_nothing() {
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
