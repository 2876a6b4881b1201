//! The time limits of the jobs in flight on one executor.
//!
//! A time limit covers a job's own work. If the driver makes a job wait for its neighbours' kernels (to load a module or free memory), the
//! executor reports it, and the job is not killed before the last of those neighbours would be. During such a call the driver holds a lock
//! that every later call needs, so other jobs that call the driver wait too. The executor reports each of them; jobs sent during the wait
//! count as waiting anyway. The executor's work between jobs may wait and block others in the same way. When a job exceeds its limit, jobs
//! that are certainly running are killed first, then those that may be blocked, and last those that wait.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::ipc::message::BETWEEN_JOBS;

/// Maximum number of waits that are accepted from a job. A job may wait before its first kernel, after its last, and a few times in between
/// if it has thousands. Further reports are ignored, because the executor runs untrusted code.
const WAITS_MAX: u8 = 8;

/// Delay between killing one of these kinds of jobs and the next. Neighbours of the killed job are lost with it but not blamed.
const NEIGHBOURS_FIRST: Duration = Duration::from_secs(1);

/// The clocks of all jobs.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    running: HashMap<u64, Clock>,
    /// The time limits of jobs whose clock is stopped because they wait for arrays.
    suspended: HashMap<u64, Duration>,
}

#[derive(Debug)]
struct Clock {
    limit: Duration,
    began: Instant,
    deadline: Instant,
    waits: Option<Wait>,
    waits_left: u8,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Jobs sent after this time may be blocked by the wait.
    since: Instant,
    /// The time by which every job that this one can wait for has ended or been killed, except those that the wait itself blocks.
    until: Instant,
}

impl Clocks {
    pub(super) fn start(&mut self, job: u64, limit: Duration, now: Instant) {
        let deadline = now + limit;
        self.running.insert(job, Clock { limit, began: now, deadline, waits: None, waits_left: WAITS_MAX });
    }

    /// Records that the job waits for its neighbours. The executor's work between jobs counts as waiting for its whole duration.
    pub(super) fn wait(&mut self, job: u64, now: Instant) {
        if job == BETWEEN_JOBS {
            self.start(job, Duration::ZERO, now);
        }
        let neighbours = self.running.iter().filter(|(other, _)| **other != job);
        let until =
            neighbours.map(|(_, clock)| clock.waits.map_or(clock.deadline + NEIGHBOURS_FIRST, |wait| wait.until)).max();
        let clock = self.running.get_mut(&job).filter(|clock| clock.waits.is_none() && clock.waits_left > 0);
        if let Some(clock) = clock {
            // Before its first kernel, the job may have waited for some time before the report arrived.
            let since = if clock.waits_left == WAITS_MAX { clock.began } else { now };
            clock.waits_left -= 1;
            clock.waits = Some(Wait { since, until: until.unwrap_or(now) });
        }
    }

    /// Records that the job no longer waits. Its time continues, or starts if it had not started.
    pub(super) fn go_on(&mut self, job: u64, now: Instant) {
        if job == BETWEEN_JOBS {
            return self.end(job, now);
        }
        let Some(clock) = self.running.get_mut(&job) else { return };
        let Some(wait) = clock.waits.take() else { return };
        clock.deadline += now.saturating_duration_since(wait.since);
        self.go_on_since(wait.since, now);
        self.prolong_waits();
    }

    /// Stops the job's clock while its arrays move. It runs no kernels for which others could wait.
    pub(super) fn suspend(&mut self, job: u64, now: Instant) {
        let Some(limit) = self.running.get(&job).map(|clock| clock.limit) else { return };
        self.end(job, now);
        self.suspended.insert(job, limit);
    }

    /// Starts the job's clock again, with the full time limit.
    pub(super) fn resume(&mut self, job: u64, now: Instant) {
        if let Some(limit) = self.suspended.remove(&job) {
            self.start(job, limit, now);
        }
    }

    pub(super) fn end(&mut self, job: u64, now: Instant) {
        self.suspended.remove(&job);
        if let Some(Clock { waits: Some(wait), .. }) = self.running.remove(&job) {
            self.go_on_since(wait.since, now);
            self.prolong_waits();
        }
    }

    /// Returns when to check the job's time limit again, or `None` if the limit has passed or the job is unknown.
    pub(super) fn time_left(&self, job: u64, now: Instant) -> Option<Instant> {
        // The job's deadline will be later than this, whenever its clock starts.
        if let Some(limit) = self.suspended.get(&job) {
            return Some(now + *limit);
        }
        let clock = self.running.get(&job)?;
        let held_until = match clock.waits {
            Some(wait) => Some(wait.until + NEIGHBOURS_FIRST),
            None => self.waits().filter(|wait| wait.since < clock.began).map(|wait| wait.until).max(),
        };
        Some(held_until.map_or(clock.deadline, |held| held.max(clock.deadline))).filter(|until| *until > now)
    }

    fn waits(&self) -> impl Iterator<Item = Wait> {
        self.running.values().filter_map(|clock| clock.waits)
    }

    /// Extends the time of jobs that arrived during a wait, because they had to wait too.
    fn go_on_since(&mut self, since: Instant, now: Instant) {
        for clock in self.running.values_mut().filter(|clock| clock.began > since) {
            clock.deadline = clock.deadline.max(now + clock.limit);
        }
    }

    /// Extends the waits of jobs that may wait for jobs with extended time. Jobs that were sent after the start of a wait do not count,
    /// because the wait would otherwise never end.
    fn prolong_waits(&mut self) {
        let running = self.running.values().filter(|clock| clock.waits.is_none());
        let running: Vec<_> = running.map(|clock| (clock.began, clock.deadline + NEIGHBOURS_FIRST)).collect();
        for wait in self.running.values_mut().filter_map(|clock| clock.waits.as_mut()) {
            let neighbours = running.iter().filter(|(began, _)| *began <= wait.since).map(|(_, until)| *until);
            wait.until = neighbours.fold(wait.until, Instant::max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in seconds after the start of a test.
    struct Time(Instant);

    impl Time {
        fn at(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }

        fn left(&self, clocks: &Clocks, job: u64, now: u64) -> Option<u64> {
            clocks.time_left(job, self.at(now)).map(|until| until.duration_since(self.0).as_secs())
        }
    }

    /// Creates clocks for jobs with these limits, all sent at once.
    fn clocks(limits: &[(u64, u64)]) -> (Clocks, Time) {
        let (mut clocks, time) = (Clocks::default(), Time(Instant::now()));
        for (job, limit) in limits {
            clocks.start(*job, Duration::from_secs(*limit), time.at(0));
        }
        (clocks, time)
    }

    #[test]
    fn a_job_has_its_limit_and_no_more() {
        let (clocks, time) = clocks(&[(1, 10)]);
        assert_eq!(time.left(&clocks, 1, 9), Some(10));
        assert_eq!(time.left(&clocks, 1, 10), None);
        assert_eq!(time.left(&clocks, 2, 0), None, "there is none");
    }

    #[test]
    fn a_job_that_waits_is_cut_no_sooner_than_its_neighbours() {
        let (mut clocks, time) = clocks(&[(1, 100), (2, 10), (3, 50)]);
        clocks.wait(2, time.at(1));
        assert_eq!(time.left(&clocks, 2, 10), Some(102));
        assert_eq!(time.left(&clocks, 2, 100), Some(102), "the first is cut now");
        assert_eq!(time.left(&clocks, 2, 102), None);
        // This job waits for the waiting one, and so for the others too.
        clocks.wait(3, time.at(2));
        assert_eq!(time.left(&clocks, 3, 50), Some(102));
    }

    #[test]
    fn who_waits_waits_also_for_a_neighbour_that_has_waited() {
        let (mut clocks, time) = clocks(&[(1, 100), (2, 60), (3, 5)]);
        clocks.wait(2, time.at(1));
        clocks.wait(3, time.at(1));
        clocks.end(1, time.at(99));
        clocks.go_on(2, time.at(99));
        assert_eq!(time.left(&clocks, 3, 102), Some(161), "the second is cut at 159");
    }

    #[test]
    fn a_job_that_was_sent_before_the_wait_was_heard_may_be_held_and_one_that_ran_before_is_not() {
        let (mut clocks, time) = clocks(&[(1, 100)]);
        clocks.start(2, Duration::from_secs(10), time.at(1));
        clocks.start(3, Duration::from_secs(10), time.at(2));
        clocks.wait(2, time.at(3));
        assert_eq!(time.left(&clocks, 1, 99), Some(100));
        assert_eq!(time.left(&clocks, 3, 12), Some(101));
        assert_eq!(time.left(&clocks, 2, 101), Some(102));
    }

    #[test]
    fn alone_there_is_nothing_to_wait_for() {
        let (mut clocks, time) = clocks(&[(1, 10)]);
        clocks.wait(1, time.at(1));
        assert_eq!(time.left(&clocks, 1, 9), Some(10));
        assert_eq!(time.left(&clocks, 1, 10), None);
    }

    #[test]
    fn the_whole_limit_is_left_to_a_job_that_has_waited() {
        let (mut clocks, time) = clocks(&[(1, 100), (2, 10)]);
        clocks.wait(2, time.at(1));
        clocks.go_on(2, time.at(60));
        assert_eq!(time.left(&clocks, 2, 60), Some(70));
        assert_eq!(time.left(&clocks, 1, 60), Some(100), "it ran all along");
    }

    #[test]
    fn jobs_that_came_while_one_waited_have_waited_with_it() {
        for ends in [false, true] {
            let (mut clocks, time) = clocks(&[(1, 100), (2, 10)]);
            clocks.wait(2, time.at(1));
            clocks.start(3, Duration::from_secs(5), time.at(2));
            assert_eq!(time.left(&clocks, 3, 7), Some(101));
            match ends {
                true => clocks.end(2, time.at(60)),
                false => clocks.go_on(2, time.at(60)),
            }
            assert_eq!(time.left(&clocks, 3, 60), Some(65));
            clocks.start(4, Duration::from_secs(5), time.at(61));
            assert_eq!(time.left(&clocks, 4, 61), Some(66));
        }
    }

    #[test]
    fn a_job_that_is_held_after_its_kernels_is_not_cut_for_it_and_its_time_stands_still() {
        let (mut clocks, time) = clocks(&[(1, 100), (2, 10)]);
        clocks.start(3, Duration::from_secs(30), time.at(5));
        clocks.wait(3, time.at(5));
        clocks.wait(2, time.at(8));
        assert_eq!(time.left(&clocks, 2, 10), Some(102));
        clocks.go_on(3, time.at(90));
        clocks.go_on(2, time.at(90));
        clocks.wait(2, time.at(91));
        clocks.go_on(2, time.at(95));
        assert_eq!(time.left(&clocks, 2, 95), Some(104), "4 of the seconds were no time of its own");
    }

    #[test]
    fn work_between_jobs_holds_jobs_that_arrive_during_it_and_none_after_it() {
        let (mut clocks, time) = clocks(&[(1, 100)]);
        clocks.wait(BETWEEN_JOBS, time.at(1));
        clocks.start(2, Duration::from_secs(10), time.at(2));
        assert_eq!(time.left(&clocks, 1, 50), Some(100));
        assert_eq!(time.left(&clocks, 2, 50), Some(101));
        clocks.go_on(BETWEEN_JOBS, time.at(60));
        assert_eq!(time.left(&clocks, 2, 60), Some(70));
        // The next report begins another wait.
        clocks.wait(BETWEEN_JOBS, time.at(61));
        clocks.wait(2, time.at(65));
        clocks.go_on(BETWEEN_JOBS, time.at(80));
        assert_eq!(time.left(&clocks, 2, 80), Some(102));
    }

    #[test]
    fn no_job_waits_for_ever() {
        let (mut clocks, time) = clocks(&[(1, 1000), (2, 10)]);
        for second in 0..100 {
            clocks.wait(2, time.at(10 * second));
            clocks.wait(BETWEEN_JOBS, time.at(10 * second));
            clocks.go_on(2, time.at(10 * second + 9));
            clocks.go_on(BETWEEN_JOBS, time.at(10 * second + 9));
        }
        assert_eq!(time.left(&clocks, 2, 91), None);
    }

    #[test]
    fn the_time_in_which_inputs_come_does_not_count() {
        let (mut clocks, time) = clocks(&[(1, 10), (2, 100)]);
        clocks.suspend(1, time.at(5));
        assert_eq!(time.left(&clocks, 1, 50), Some(60), "to look again");
        clocks.wait(2, time.at(51));
        assert_eq!(time.left(&clocks, 2, 99), Some(100), "it waits for no job that has no kernels");
        clocks.go_on(2, time.at(52));
        clocks.resume(1, time.at(60));
        assert_eq!((time.left(&clocks, 1, 69), time.left(&clocks, 1, 70)), (Some(70), None));
        clocks.suspend(1, time.at(69));
        clocks.end(1, time.at(69));
        assert_eq!(time.left(&clocks, 1, 69), None);
    }
}
