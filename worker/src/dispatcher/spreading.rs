//! Spreads lists that run long: their results don't wait for the whole list, and idle workers share the work.
//!
//! Producers pack short jobs into one message. If the jobs run long instead, one worker holds the whole list. When the list has run for a
//! while, the worker answers the jobs that have ended, and asks the broker whether the queue is empty although other workers consume it. If
//! so, the jobs that have not started leave the list as messages of their own.
//!
//! Jobs of an affinity slot that wait for a slot on a device are treated alike. The broker gives them to their worker although others may
//! be idle, because that worker probably has their input. They leave to the pool's queue, where all workers are equal.

use std::time::{Duration, Instant};

use tracing::info;

use super::{Dispatcher, Effect, JobNo, MessageNo, job::Job, message::Message, timers::Timer};

/// Time between two checks of a list. A list that will probably end within this time is left alone.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a job of an affinity slot waits for its worker. A worker prefetches only some tens of milliseconds of work, so a job that waits
/// this long is behind long jobs. Another worker can then fetch the input in less time.
const LINE_PATIENCE: Duration = Duration::from_secs(1);
/// Minimum duration of jobs that are spread; a shorter job is not worth a message of its own.
const LONG_JOB: Duration = Duration::from_millis(5);

/// The checks of a message whose jobs may leave it: of a list from its first start on, of a message of an affinity slot from its arrival
/// on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    since: Instant,
    has_started: bool,
    next_check: Instant,
}

impl<M, J> Message<M, J> {
    fn unstarted(&self) -> Vec<usize> {
        (0..self.jobs.len()).filter(|index| self.jobs[*index].is_before_start()).collect()
    }

    /// Returns whether the message has started, or one of its jobs waits for a slot. A job that is still being prepared would have to be
    /// prepared again elsewhere.
    fn has_line(&self) -> bool {
        self.watched.is_some_and(|watched| watched.has_started) || self.jobs.iter().any(Job::awaits_slot)
    }

    /// Returns the time that one of its jobs takes, judging by those that have ended.
    fn per_job(&self, now: Instant) -> Duration {
        let Some(Watched { since, .. }) = self.watched else { return Duration::ZERO };
        let ended = self.jobs.iter().filter_map(Job::disposition).count().max(1) as u32;
        now.saturating_duration_since(since) / ended
    }
}

impl<M, J> Dispatcher<M, J> {
    /// Begins the checks of a message from an affinity slot. Its jobs wait here only until other workers are idle.
    pub(super) fn watch_line(&mut self, no: MessageNo) {
        if self.credit.has_favourite(self.message(no).info.queue) {
            let next_check = self.now + LINE_PATIENCE;
            self.check_later(no, Watched { since: self.now, has_started: false, next_check });
        }
    }

    /// Begins the checks of a list when its first job starts.
    pub(super) fn watch_list(&mut self, no: MessageNo) {
        let message = self.message(no);
        if message.watched.is_some_and(|watched| watched.has_started) {
            return;
        }
        if message.jobs.len() > 1 {
            self.check_later(no, Watched { since: self.now, has_started: true, next_check: self.now + INTERVAL });
        } else if let Some(watched) = self.message_mut(no).watched.take() {
            self.timers.clear(watched.next_check, Timer::Watched(no));
        }
    }

    fn check_later(&mut self, no: MessageNo, watched: Watched) {
        if let Some(before) = self.message_mut(no).watched.replace(watched) {
            self.timers.clear(before.next_check, Timer::Watched(no));
        }
        self.timers.set(watched.next_check, Timer::Watched(no));
    }

    /// Ends the checks of a settled message.
    pub(super) fn end_checks(&mut self, no: MessageNo, message: &Message<M, J>) {
        if let Some(watched) = message.watched {
            self.timers.clear(watched.next_check, Timer::Watched(no));
        }
    }

    /// Answers the jobs that have ended if the jobs are long, and asks whether other workers are idle if the rest of the message is long
    /// too.
    pub(super) fn check_message(&mut self, no: MessageNo) {
        let message = self.message(no);
        if !message.can_spread() || message.has_ended() {
            return;
        }
        let per_job = message.per_job(self.now);
        if per_job < LONG_JOB || !message.has_line() {
            return self.check_again(no);
        }
        let (rest, queue) = (per_job * message.unstarted().len() as u32, message.info.queue);
        self.answer_soon(no);
        match rest >= INTERVAL {
            true => self.effects.push(Effect::LookForIdle { message: no, queue }),
            false => self.check_again(no),
        }
    }

    fn check_again(&mut self, no: MessageNo) {
        let Some(watched) = self.message(no).watched else { return };
        // Until its first start a message is checked less and less often, because each check is a query to the broker and a job may wait
        // for minutes.
        let waited = self.now.saturating_duration_since(watched.since);
        let pause = if watched.has_started { INTERVAL } else { waited };
        self.check_later(no, Watched { next_check: self.now + pause, ..watched });
    }

    /// Hands back the unstarted jobs of a message if other workers are idle, which the broker was asked.
    pub(super) fn looked(&mut self, no: MessageNo, others_idle: bool) {
        let Some(message) = self.messages.get(&no).filter(|message| message.can_spread()) else { return };
        let unstarted = message.unstarted();
        if !others_idle || unstarted.is_empty() {
            return self.check_again(no);
        }
        info!(message_id = message.info.key.id, jobs = unstarted.len(), "other workers idle, waiting jobs handed back");
        self.message_mut(no).spreads = true;
        for index in unstarted {
            self.hand_back(JobNo { message: no, index });
        }
        self.answer_soon(no);
        self.check_again(no);
    }
}
