//! Lists that run long: their results don't wait for the whole list, and other workers that are idle share the work.
//!
//! Producers pack brief jobs into one message. If the jobs run long instead, one worker holds the whole list. When the list has run for a
//! while, the worker answers the jobs that have ended, and asks the broker whether the queue is empty although other workers consume it. If
//! so, the jobs that have not started leave the list as messages of their own.

use std::time::{Duration, Instant};

use tracing::info;

use super::{Dispatcher, Effect, JobNo, MessageNo, job::Job, message::Message, timers::Timer};

/// The time between two checks. A list that is about to end by then is left alone.
const INTERVAL: Duration = Duration::from_millis(100);
/// A job that takes less is not worth a message of its own.
const LONG_JOB: Duration = Duration::from_millis(5);

/// A list, from its first start on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    at: Instant,
    next_check: Instant,
}

impl Message {
    fn unstarted(&self) -> Vec<usize> {
        (0..self.jobs.len()).filter(|index| self.jobs[*index].is_before_start()).collect()
    }

    /// The time that one of its jobs takes, by its pace so far.
    fn per_job(&self, now: Instant) -> Duration {
        let Some(Started { at, .. }) = self.started else { return Duration::ZERO };
        let ended = self.jobs.iter().filter_map(Job::disposition).count().max(1) as u32;
        now.saturating_duration_since(at) / ended
    }
}

impl Dispatcher {
    /// A job starts. The first start of a list begins its checks.
    pub(super) fn watch_list(&mut self, no: MessageNo) {
        let message = self.message(no);
        if message.started.is_none() && message.jobs.len() > 1 {
            self.check_later(no, self.now);
        }
    }

    fn check_later(&mut self, no: MessageNo, first_start: Instant) {
        let next_check = self.now + INTERVAL;
        self.message_mut(no).started = Some(Started { at: first_start, next_check });
        self.timers.set(next_check, Timer::List(no));
    }

    /// The list is settled.
    pub(super) fn end_checks(&mut self, no: MessageNo, message: &Message) {
        if let Some(Started { next_check, .. }) = message.started {
            self.timers.clear(next_check, Timer::List(no));
        }
    }

    /// Answers what has ended if the jobs are long, and asks whether other workers are idle if the rest of the list is long too.
    pub(super) fn check_list(&mut self, no: MessageNo) {
        let message = self.message(no);
        if !message.can_spread() || message.has_ended() {
            return;
        }
        let per_job = message.per_job(self.now);
        if per_job < LONG_JOB {
            return self.check_again(no);
        }
        let (rest, queue) = (per_job * message.unstarted().len() as u32, message.letter.queue);
        self.answer_soon(no);
        match rest >= INTERVAL {
            true => self.effects.push(Effect::LookForIdle { message: no, queue }),
            false => self.check_again(no),
        }
    }

    fn check_again(&mut self, no: MessageNo) {
        let started = self.message(no).started.expect("a list is checked after its first start");
        self.check_later(no, started.at);
    }

    /// The broker has answered whether other workers are idle.
    pub(super) fn looked(&mut self, no: MessageNo, others_idle: bool) {
        let Some(message) = self.messages.get(&no).filter(|message| message.can_spread()) else { return };
        let unstarted = message.unstarted();
        if !others_idle || unstarted.is_empty() {
            return self.check_again(no);
        }
        info!(
            message_id = message.letter.key.id,
            jobs = unstarted.len(),
            "other workers idle, jobs of a long list handed back"
        );
        for index in unstarted {
            self.hand_back(JobNo { message: no, index });
        }
        self.answer_soon(no);
        self.check_again(no);
    }
}
