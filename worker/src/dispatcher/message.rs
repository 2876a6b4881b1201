//! The life of a message, from its delivery to its settlement.
//!
//! ```text
//! delivered ─▶ decoding ─▶ every job attempted ─▶ again / handed back: published as messages of their own ─┐
//!   │  │          │                           └▶ final: reply, dead letter where due ───────────────────────┼─▶ ack
//!   │  └──────────┴─ inadmissible or unreadable: answer, dead letter with the reason ───────────────────────┘
//!   └─ duplicate: waits for the first delivery
//! ```
//! Each arrow into `ack` waits until the broker has confirmed the published messages and the events that record them. If a confirm does not
//! arrive, the message is not acknowledged: the broker delivers it again, its jobs run again, and the ledger keeps the first outcome.
//!
//! A list is answered in portions while its other jobs run. One portion is published at a time, whether or not earlier ones are recorded,
//! so an unavailable ledger delays no reply. A message that can't be published ends only after its running jobs, because their slots must
//! stay taken until then.

use std::{mem, time::Duration};

use gpufleet_schema::{
    Failure, FailureCode, TooLarge, Verdict,
    bounds::{DELIVERIES_MAX, MESSAGE_BYTES_MAX},
};
use tracing::{error, info, warn};

use super::{
    Decoded, Dispatcher, Effect, JobNo, MessageInfo, MessageNo, PublishFailure, Settlement,
    job::Job,
    output_room::{OutputRoom, PORTION_BYTES},
    renewal::Redeliveries,
    spreading::Watched,
    timers::Timer,
};
use crate::disposition::Disposition;

/// Number of requeues without a start after which a message is published again as a new message. Otherwise restarts of workers would bring
/// a harmless message to the broker's delivery limit.
const HAND_BACKS_MAX: u64 = DELIVERIES_MAX / 2;
/// Time before a delivery is requeued after a failure, because the broker redelivers it at once. It doubles with each delivery, up to
/// [`REQUEUE_WAIT_MAX`].
const REQUEUE_WAIT: Duration = Duration::from_secs(1);
const REQUEUE_WAIT_MAX: Duration = Duration::from_secs(60);

/// A message in flight on this worker.
#[derive(Debug)]
pub(super) struct Message<M, J> {
    pub(super) info: MessageInfo,
    pub(super) held: M,
    /// Whether a settlement would still reach the broker.
    pub(super) live: bool,
    pub(super) state: MessageState,
    pub(super) jobs: Vec<Job<J>>,
    /// The room for the outputs of a list; `None` for a message with one job.
    pub(super) room: Option<OutputRoom>,
    /// Number of jobs that have not ended.
    open: usize,
    /// Indices of jobs that have ended and are not answered.
    portion: Vec<usize>,
    /// Indices of the jobs in the portion that is being answered.
    answering: Vec<usize>,
    /// Number of portions whose events are not confirmed.
    recording: usize,
    /// Whether the credit of its queue counts the message as settling, because its jobs have ended.
    counts_as_settling: bool,
    /// Whether to answer the portion although it is small and other jobs run.
    hurries: bool,
    /// Whether its jobs leave as messages of their own. Back in its queue, the whole message might come to this worker again.
    pub(super) spreads: bool,
    pub(super) watched: Option<Watched>,
    pub(super) redeliveries: Redeliveries,
}

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageState {
    /// It waits for an earlier delivery of the same message.
    Duplicate,
    /// It waits for an earlier delivery, and a copy of it with a fresh count is being published.
    Renewing {
        first: MessageNo,
    },
    Decoding,
    /// It is being refused, or it is a list without jobs that is being answered.
    Answering,
    Working,
    /// It can't be answered, and its running jobs have to end. `patiently` if the requeue should be delayed, because the reason may last.
    Failed {
        patiently: bool,
    },
    AwaitsRequeue,
    Settling(Settlement),
}

impl<M, J> Message<M, J> {
    fn new(info: MessageInfo, held: M) -> Self {
        Self {
            redeliveries: Redeliveries::of(&info),
            info,
            held,
            live: true,
            state: MessageState::Duplicate,
            jobs: Vec::new(),
            room: None,
            open: 0,
            portion: Vec::new(),
            answering: Vec::new(),
            recording: 0,
            counts_as_settling: false,
            hurries: false,
            spreads: false,
            watched: None,
        }
    }

    /// Returns whether jobs of the message could leave as messages of their own.
    pub(super) fn can_spread(&self) -> bool {
        self.state == MessageState::Working && self.live
    }

    pub(super) fn has_ended(&self) -> bool {
        self.open == 0
    }

    fn portion_bytes(&self) -> usize {
        self.portion.iter().map(|index| self.jobs[*index].bytes).sum()
    }

    fn is_all(&self, is_so: impl Fn(&Disposition) -> bool) -> bool {
        self.jobs.iter().filter_map(Job::disposition).all(is_so)
    }

    /// Returns how to settle the message once everything about it is confirmed.
    fn settlement(&self) -> Settlement {
        let is_final = |disposition: &Disposition| matches!(disposition, Disposition::Final { .. });
        let handed_back = self.jobs.iter().filter_map(Job::disposition).any(|of_job| *of_job == Disposition::HandBack);
        match self.is_all(is_final) {
            true => Settlement::Answered,
            // While the delivery was live, each job that was handed back was published as a message of its own.
            false if handed_back && !self.live => Settlement::Requeue,
            false => Settlement::SentOn,
        }
    }
}

impl<M, J> Dispatcher<M, J> {
    pub(super) fn open(&mut self, info: MessageInfo, held: M) {
        self.last_message += 1;
        let no = MessageNo(self.last_message);
        self.credit.delivered(info.queue);
        self.messages.insert(no, Message::new(info, held));
        self.admit_message(no);
    }

    /// Decides what to do with a delivery: refuse, decode or acknowledge it. A redelivery of a message in flight waits until the first
    /// delivery has been settled.
    pub(super) fn admit_message(&mut self, no: MessageNo) {
        let message = &self.messages[&no];
        let info = &message.info;
        if let Some(first) = self.duplicates.begin(no, &info.key, info.redelivered) {
            return self.redelivered(no, first);
        }
        if info.digest.is_some_and(|digest| self.duplicates.was_answered(digest)) {
            info!(message_id = info.key.id, "duplicate of an answered message, acknowledged");
            return self.settle(no, Settlement::Answered);
        }
        if let Some(reason) = info.inadmissible.clone() {
            return self.refuse(no, Failure::new(Verdict::User, FailureCode::Policy, reason));
        }
        if info.delivery_count > DELIVERIES_MAX {
            let reason = format!("the broker delivered the message {} times without an outcome", info.delivery_count);
            return self.refuse(no, Failure::new(Verdict::Infrastructure, FailureCode::AttemptsExhausted, reason));
        }
        if info.key.bytes > MESSAGE_BYTES_MAX {
            let reason = format!("{}: {}", TooLarge::message(info.key.bytes as u64), TooLarge::ADVICE);
            return self.refuse(no, Failure::new(Verdict::User, FailureCode::MalformedTask, reason));
        }
        match info.unreadable.clone() {
            Some(reason) => self.refuse(no, Failure::new(Verdict::User, FailureCode::MalformedTask, reason)),
            None => self.go(no, MessageState::Decoding, Effect::Decode(no)),
        }
    }

    pub(super) fn go(&mut self, no: MessageNo, state: MessageState, effect: Effect) {
        self.message_mut(no).state = state;
        self.effects.push(effect);
    }

    pub(super) fn decoded(&mut self, no: MessageNo, decoded: Decoded<M, J>) {
        let Decoded { is_list, body_bytes, held, jobs } = decoded;
        self.message_mut(no).held = held;
        if jobs.is_empty() {
            return self.go(no, MessageState::Answering, Effect::AnswerNothing(no));
        }
        let message = self.message_mut(no);
        (message.state, message.open) = (MessageState::Working, jobs.len());
        message.room = is_list.then(OutputRoom::default);
        let queue = message.info.queue;
        self.credit.decoded(queue, jobs.len(), body_bytes);
        self.begin_jobs(no, jobs);
        self.watch_line(no);
    }

    /// Answers a message that can't be run, and dead-letters it with the reason.
    pub(super) fn refuse(&mut self, no: MessageNo, failure: Failure) {
        self.go(no, MessageState::Answering, Effect::Refuse(no, Box::new(failure)));
    }

    /// Handles the confirm or rejection of what was published for the message as a whole.
    pub(super) fn published(&mut self, no: MessageNo, result: Result<(), PublishFailure>) {
        let message = &self.messages[&no];
        match (message.state, result) {
            (MessageState::Renewing { first }, result) => self.renewed(no, first, result),
            (_, Ok(())) => self.settle(no, Settlement::Answered),
            (_, Err(failure)) => self.fail(no, &failure),
        }
    }

    /// Records that a job of the message has ended.
    pub(super) fn job_ended(&mut self, no: JobNo) {
        let message = self.message_mut(no.message);
        message.open -= 1;
        message.portion.push(no.index);
        self.advance(no.message);
    }

    /// Handles the confirm or failure of the published portion.
    pub(super) fn answered(&mut self, no: MessageNo, result: Result<(), PublishFailure>) {
        let Some(message) = self.working(no) else { return };
        let portion = mem::take(&mut message.answering);
        if let Err(failure) = result {
            return self.fail(no, &failure);
        }
        for index in portion {
            self.give_back_room(JobNo { message: no, index });
        }
        self.advance(no);
    }

    pub(super) fn recorded(&mut self, no: MessageNo, result: Result<(), PublishFailure>) {
        let Some(message) = self.working(no) else { return };
        message.recording -= 1;
        match result {
            Ok(()) => self.advance(no),
            Err(failure) => self.fail(no, &failure),
        }
    }

    /// Returns the message unless it has failed; a failed message no longer waits for confirms.
    fn working(&mut self, no: MessageNo) -> Option<&mut Message<M, J>> {
        self.messages.get_mut(&no).filter(|message| message.state == MessageState::Working)
    }

    /// Takes the next step of a message whose jobs are decoded, if one is due.
    fn advance(&mut self, no: MessageNo) {
        let message = self.message_mut(no);
        let has_ended = message.has_ended();
        if has_ended && !mem::replace(&mut message.counts_as_settling, true) {
            let queue = message.info.queue;
            self.credit.jobs_ended(queue);
        }
        let message = self.message_mut(no);
        match message.state {
            MessageState::Failed { patiently } if has_ended => return self.requeue(no, patiently),
            MessageState::Working => {}
            _ => return,
        }
        if !message.answering.is_empty() {
            return;
        }
        if has_ended && message.portion.is_empty() {
            if message.recording == 0 {
                let settlement = message.settlement();
                self.settle(no, settlement);
            }
            return;
        }
        if has_ended || message.hurries || message.portion_bytes() >= PORTION_BYTES {
            self.answer(no);
        }
    }

    /// Answers the jobs that have ended, if any, while other jobs of the list run.
    pub(super) fn answer_soon(&mut self, no: MessageNo) {
        let message = self.message_mut(no);
        if !message.portion.is_empty() {
            message.hurries = true;
            self.advance(no);
        }
    }

    fn answer(&mut self, no: MessageNo) {
        let message = self.message_mut(no);
        let untouched = !message.spreads
            && message.portion.len() == message.jobs.len()
            && message.is_all(|disposition| *disposition == Disposition::HandBack);
        if untouched && message.info.delivery_count.max(message.info.redeliveries) < HAND_BACKS_MAX {
            return self.settle(no, Settlement::Requeue);
        }
        self.close_redeliveries(no);
        let message = self.message_mut(no);
        message.hurries = false;
        message.recording += 1;
        message.answering = mem::take(&mut message.portion);
        let of = |index: &usize| {
            let disposition = message.jobs[*index].disposition().expect("a portion has jobs that have ended");
            (*index, disposition.clone())
        };
        let jobs = message.answering.iter().map(of).collect();
        let last_attempt = message.redeliveries.last_attempt;
        self.effects.push(Effect::Answer { message: no, jobs, last_attempt });
    }

    /// Ends the message without an outcome, because the broker has not confirmed something that must be safe before the acknowledgement.
    pub(super) fn fail(&mut self, no: MessageNo, failure: &PublishFailure) {
        warn!(
            message_id = self.message(no).info.key.id,
            error = failure.reason,
            "outcome not confirmed, delivery requeued"
        );
        self.end_without_outcome(no, true);
    }

    /// Requeues a message whose handling has panicked, which is a bug in the worker. The panic has already been logged. The broker
    /// redelivers the message until its delivery limit.
    pub(super) fn break_off(&mut self, no: MessageNo) {
        error!(message_id = self.message(no).info.key.id, "handling the message panicked, delivery requeued");
        self.end_without_outcome(no, false);
    }

    pub(super) fn job_broken(&mut self, no: JobNo) {
        let Some(message) = self.messages.get_mut(&no.message) else { return };
        if message.state == MessageState::Working {
            message.state = MessageState::Failed { patiently: false };
            error!(message_id = message.info.key.id, "handling a job panicked, delivery requeued");
        }
        let (ending, bytes, returns, used_us) = (crate::disposition::Ending::HandedBack, 0, false, None);
        self.ended(no, super::AttemptEnd { ending, bytes, returns, used_us }, None);
        self.end_without_outcome(no.message, false);
    }

    /// Requeues the message once its running jobs have ended. Its other jobs don't start.
    fn end_without_outcome(&mut self, no: MessageNo, patiently: bool) {
        let Some(message) = self.messages.get_mut(&no) else { return };
        if matches!(message.state, MessageState::AwaitsRequeue | MessageState::Settling(_)) {
            return;
        }
        message.state = MessageState::Failed { patiently };
        message.redeliveries.was_tried = true;
        let waiting = (0..message.jobs.len()).filter(|index| message.jobs[*index].is_before_start());
        for index in waiting.collect::<Vec<_>>() {
            self.hand_back(JobNo { message: no, index });
        }
        if matches!(self.messages[&no].state, MessageState::Failed { .. }) {
            self.advance(no);
        }
    }

    fn requeue(&mut self, no: MessageNo, patiently: bool) {
        let message = self.message_mut(no);
        if !patiently || !message.live || self.draining {
            return self.settle(no, Settlement::Requeue);
        }
        let message = self.message_mut(no);
        message.state = MessageState::AwaitsRequeue;
        let at = self.now + requeue_wait(self.messages[&no].info.delivery_count);
        self.timers.set(at, Timer::Requeue(no));
    }

    /// Records that the broker has requeued the message. Jobs that have not started are handed back, because the message's next worker runs
    /// them.
    pub(super) fn lost(&mut self, no: MessageNo) {
        let Some(message) = self.messages.get_mut(&no).filter(|message| message.live) else { return };
        message.live = false;
        let waiting = (0..message.jobs.len()).filter(|index| message.jobs[*index].is_before_start());
        for index in waiting.collect::<Vec<_>>() {
            self.hand_back(JobNo { message: no, index });
        }
    }

    pub(super) fn settle(&mut self, no: MessageNo, settlement: Settlement) {
        self.go(no, MessageState::Settling(settlement), Effect::Settle(no, settlement));
    }

    /// Removes a settled message and lets its duplicates continue.
    pub(super) fn settled(&mut self, no: MessageNo, unreached: Option<blake3::Hash>) {
        let message = self.messages.remove(&no).expect("a message is settled once");
        let is_done = !matches!(message.state, MessageState::Settling(Settlement::Requeue));
        debug_assert!(
            !is_done || message.room.as_ref().is_none_or(OutputRoom::is_unused),
            "answered jobs hold no room"
        );
        if message.state == MessageState::Settling(Settlement::Answered)
            && let Some(digest) = unreached
        {
            self.duplicates.remember(digest);
        }
        self.end_checks(no, &message);
        self.credit.settled(message.info.queue, message.counts_as_settling);
        self.end_redeliveries(no, &message, unreached);
    }

    pub(super) fn message(&self, no: MessageNo) -> &Message<M, J> {
        self.messages.get(&no).expect("a message stays until it is settled")
    }

    pub(super) fn message_mut(&mut self, no: MessageNo) -> &mut Message<M, J> {
        self.messages.get_mut(&no).expect("a message stays until it is settled")
    }
}

fn requeue_wait(delivery_count: u64) -> Duration {
    let doublings = u32::try_from(delivery_count).unwrap_or(u32::MAX).min(u32::BITS - 1);
    REQUEUE_WAIT.saturating_mul(1 << doublings).min(REQUEUE_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_that_fails_again_and_again_waits_longer_each_time_up_to_a_minute() {
        let waits = [0, 1, 2, 5, 6, 14, u64::MAX].map(|count| requeue_wait(count).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 60, 60, 60]);
    }
}
