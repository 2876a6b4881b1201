//! Helper threads for launches. They are kept between launches, because starting a thread takes as long as a small
//! launch.
//!
//! A launch offers its work to idle helpers and starts immediately. When its own part is done, it withdraws the offer
//! and waits for the helpers that joined. So a launch never depends on helpers, and it also works if no thread can be
//! started, or in the child of a fork, where the threads are gone. A helper ends after a while without work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{hint, process, thread};

/// Time for which a thread spins before it sleeps: a few times the duration of a wakeup.
const LOOK_MAX: Duration = Duration::from_micros(50);

/// Spin-loop hints between two looks, because threads that join or leave take the same lock.
const LOOK_SPINS: u32 = 16;

/// Time after which a helper without work ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// Work that several threads may do together: each call does a part, until nothing is left.
type Work<'a> = dyn Fn() + Sync + 'a;

static TEAM: Team = Team {
    state: Mutex::new(State { jobs: Vec::new(), helpers: 0, next: 0 }),
    offered: Condvar::new(),
    left: Condvar::new(),
    places: AtomicUsize::new(0),
    process: AtomicU32::new(0),
};

struct Team {
    state: Mutex<State>,
    /// Signals a new job.
    offered: Condvar,
    /// Signals that a helper has left a job.
    left: Condvar,
    /// Free places in all jobs, for helpers that look without the lock.
    places: AtomicUsize,
    /// ID of the process that the threads belong to.
    process: AtomicU32,
}

struct State {
    jobs: Vec<Job>,
    helpers: usize,
    next: u64,
}

struct Job {
    number: u64,
    /// Alive until the job leaves the list. Its launch removes it when no thread runs the job.
    work: *const Work<'static>,
    places: usize,
    running: usize,
    panicked: bool,
}

// SAFETY: the closure behind the pointer may be called from any thread.
unsafe impl Send for Job {}

/// Runs `work` on this thread, and on up to `helpers` others that join in time.
pub fn together(helpers: usize, work: &Work) {
    let offer = (helpers > 0 && TEAM.is_ours()).then(|| TEAM.offer(helpers, work));
    work();
    if let Some(offer) = offer {
        assert!(!offer.end(), "a thread that ran blocks panicked");
    }
}

impl Team {
    /// Reports whether the threads belong to this process. After a fork they do not exist in the child, and one of them
    /// may have held the lock.
    fn is_ours(&self) -> bool {
        let own = process::id();
        match self.process.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == own,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&'static self, helpers: usize, work: &Work) -> Offer {
        // SAFETY: only the lifetime changes. The offer takes the work off the list when it ends or is dropped, which is
        // before the work is.
        let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.jobs.push(Job { number, work, places: helpers, running: 0, panicked: false });
        self.places.fetch_add(helpers, Ordering::Relaxed);
        while state.helpers < helpers {
            let helper = thread::Builder::new().name("emulated-blocks".to_owned()).spawn(|| self.help());
            // Without the helper the launch only takes longer.
            let Ok(_) = helper else { break };
            state.helpers += 1;
        }
        drop(state);
        self.offered.notify_all();
        Offer { team: self, number }
    }

    /// Runs a helper: takes jobs until it has been idle for a while.
    fn help(&self) {
        loop {
            self.look(|| self.places.load(Ordering::Relaxed) > 0);
            let mut state = self.state();
            let found = loop {
                if let Some(job) = state.jobs.iter_mut().find(|job| job.places > 0) {
                    job.places -= 1;
                    job.running += 1;
                    break Some((job.number, job.work));
                }
                let (next, slept) = self.offered.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
                state = next;
                if slept.timed_out() && state.jobs.iter().all(|job| job.places == 0) {
                    state.helpers -= 1;
                    break None;
                }
            };
            drop(state);
            let Some((number, work)) = found else { return };
            self.places.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the job stays on the list, and its work alive, while a thread runs it.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)() }));
            let mut state = self.state();
            let job = state.job(number);
            job.running -= 1;
            job.panicked |= result.is_err();
            drop(state);
            self.left.notify_all();
        }
    }

    /// Spins for a short time until `is_there` holds.
    fn look(&self, is_there: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_there() && start.elapsed() < LOOK_MAX {
            (0..LOOK_SPINS).for_each(|_| hint::spin_loop());
        }
    }
}

impl State {
    fn job(&mut self, number: u64) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.number == number).expect("a job is listed while a thread runs it")
    }
}

/// A job on the list. It leaves the list before this is dropped.
struct Offer {
    team: &'static Team,
    number: u64,
}

impl Offer {
    /// Removes the job from the list when no thread runs it. Returns whether one of its threads panicked.
    fn end(self) -> bool {
        let panicked = self.withdraw();
        std::mem::forget(self);
        panicked
    }

    fn withdraw(&self) -> bool {
        let team = self.team;
        let mut state = team.state();
        let places = std::mem::take(&mut state.job(self.number).places);
        team.places.fetch_sub(places, Ordering::Relaxed);
        let is_left = |state: &mut State, number| state.job(number).running == 0;
        if !is_left(&mut state, self.number) {
            drop(state);
            team.look(|| is_left(&mut team.state(), self.number));
            state = team.state();
        }
        while !is_left(&mut state, self.number) {
            state = team.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let panicked = state.job(self.number).panicked;
        state.jobs.retain(|job| job.number != self.number);
        panicked
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, Mutex};
    use std::{panic, thread};

    use super::together;

    #[test]
    fn others_come_and_all_have_left_when_it_ends() {
        for _ in 0..100 {
            let (barrier, inside) = (Barrier::new(3), AtomicUsize::new(0));
            let seen = Mutex::new(HashSet::new());
            together(2, &|| {
                inside.fetch_add(1, Ordering::SeqCst);
                seen.lock().unwrap().insert(thread::current().id());
                barrier.wait();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            assert_eq!(seen.lock().unwrap().len(), 3);
        }
    }

    #[test]
    fn many_launches_at_once_end_without_waiting_for_helpers_that_are_busy() {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let left = AtomicUsize::new(20);
                        let take = |left: usize| left.checked_sub(1);
                        together(3, &|| {
                            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {}
                        });
                        assert_eq!(left.load(Ordering::Relaxed), 0);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_of_any_thread_reaches_the_launch() {
        let (barrier, caller) = (Barrier::new(2), thread::current().id());
        for of_caller in [true, false] {
            let work = || {
                barrier.wait();
                assert_ne!(thread::current().id() == caller, of_caller, "as it should be");
            };
            assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| together(1, &work))).is_err());
        }
    }
}
