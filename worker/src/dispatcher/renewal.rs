//! Renews the redeliveries of messages in flight.
//!
//! A quorum queue counts every delivery that was not acknowledged, and dead-letters a message at its limit. A lost channel or a
//! `consumer_timeout` counts as much as a crash, so a long job on a weak link would be dead-lettered while it runs. The worker that holds
//! the job knows that none of these deliveries was a failure. When the broker's count is high, it publishes a copy whose count starts
//! again, and acknowledges the redelivery once the copy is confirmed. The queue always has the message or its copy, so another worker runs
//! the job if this one dies.
//!
//! Once everything about a message is confirmed, its redeliveries share its settlement. If the message has failed, the next one of them takes
//! its place and counts only the deliveries that were tried.

use gpufleet_schema::bounds::DELIVERIES_MAX;
use tracing::{info, warn};

use super::{
    Dispatcher, Effect, Letter, MessageNo, PublishFailure, Settlement,
    message::{Message, Stage},
};

/// The broker's count from which a redelivery is renewed. It leaves as many deliveries again for the copy to be confirmed.
const RENEWED_FROM: u64 = DELIVERIES_MAX / 2;

/// What a message in flight knows of its redeliveries.
#[derive(Debug)]
pub(super) struct Redeliveries {
    /// A job of the message has started, or its handling has failed. Without either, a lost delivery says nothing against it.
    pub(super) was_tried: bool,
    /// The highest attempt number of the message and its redeliveries.
    pub(super) last_attempt: u32,
    /// The redeliveries that came before anything was published for the message. Its retries, which have the same id and body, are not
    /// among them.
    certain: Option<Vec<MessageNo>>,
    /// A copy is being published.
    is_renewing: bool,
}

impl Redeliveries {
    pub(super) fn of(letter: &Letter) -> Self {
        Self { was_tried: false, last_attempt: letter.attempt, certain: None, is_renewing: false }
    }
}

impl Letter {
    /// Whether it is a redelivery of the same message in its queue, so that the broker no longer waits for the earlier one.
    fn replaces(&self, earlier: &Self) -> bool {
        let published = |letter: &Self| u64::from(letter.attempt).saturating_sub(letter.redeliveries);
        self.is_same_as(earlier.digest)
            && published(self) == published(earlier)
            && self.redeliveries > earlier.redeliveries
            && !self.uncounted
    }

    fn is_same_as(&self, digest: Option<blake3::Hash>) -> bool {
        self.digest.is_some() && self.digest == digest
    }
}

impl Message {
    /// The number of earlier deliveries that its redelivery has to count.
    fn next_count(&self) -> u64 {
        self.letter.delivery_count.saturating_add(u64::from(self.redeliveries.was_tried))
    }

    /// Whether the queue must keep its redelivery, and no copy of it is on its way.
    fn needs_redelivery(&self) -> bool {
        self.is_open() && !self.redeliveries.is_renewing
    }

    /// Whether its outcome is open and nothing was published for it, so that every equal message is a redelivery.
    fn is_open(&self) -> bool {
        let is_open = matches!(self.stage, Stage::Decoding | Stage::Working | Stage::Failed { .. });
        is_open && self.redeliveries.certain.is_none()
    }

    /// The settlement of a redelivery that has waited for this message, if it shares it.
    fn shared_settlement(&self, no: MessageNo, letter: &Letter, digest: Option<blake3::Hash>) -> Option<Settlement> {
        let Stage::Settling(settlement @ (Settlement::Answered | Settlement::SentOn)) = self.stage else { return None };
        let is_certain = self.redeliveries.certain.as_ref().is_some_and(|certain| certain.contains(&no));
        (is_certain && letter.is_same_as(digest)).then_some(settlement)
    }
}

impl Dispatcher {
    /// A redelivery of a message in flight waits for it, renewed if the broker has counted many.
    pub(super) fn redelivered(&mut self, no: MessageNo, first: MessageNo) {
        self.drop_replaced(no, first);
        let letter = &self.message(no).letter;
        let (attempt, delivery_count) = (letter.attempt, letter.delivery_count);
        let is_due = letter.redeliveries >= RENEWED_FROM && !letter.uncounted;
        let message = self.message_mut(first);
        message.redeliveries.last_attempt = message.redeliveries.last_attempt.max(attempt);
        if !is_due || !message.needs_redelivery() {
            return;
        }
        message.redeliveries.is_renewing = true;
        // A copy without a count would look like a new message.
        let delivery_count = message.next_count().min(delivery_count).max(1);
        self.duplicates.leave(no, first);
        self.go(no, Stage::Renewing { first }, Effect::Copy { message: no, delivery_count });
    }

    /// The earlier redelivery that this one replaces is settled. If its channel is closed, that has no effect but frees its memory.
    fn drop_replaced(&mut self, no: MessageNo, first: MessageNo) {
        let letter = &self.message(no).letter;
        let is_open = self.message(first).is_open();
        let mut others = self.duplicates.waiting_for(first).iter().copied().filter(|other| *other != no);
        let Some(replaced) = others.find(|earlier| {
            let earlier = &self.message(*earlier).letter;
            letter.replaces(earlier) || is_open && letter.is_same_as(earlier.digest)
        }) else {
            return;
        };
        self.duplicates.leave(replaced, first);
        let certain = self.message_mut(first).redeliveries.certain.iter_mut().flatten();
        certain.filter(|certain| **certain == replaced).for_each(|certain| *certain = no);
        // While the outcome is open, the queue needs the message once. It has it twice if a copy was confirmed and the connection broke before
        // the redelivery was acknowledged.
        self.settle(replaced, if is_open { Settlement::SentOn } else { Settlement::Requeue });
    }

    /// The copy of a redelivery is confirmed or refused.
    pub(super) fn renewed(&mut self, no: MessageNo, first: MessageNo, result: Result<(), PublishFailure>) {
        let first_here = self.messages.get_mut(&first);
        let is_first_here = first_here.map(|first| first.redeliveries.is_renewing = false).is_some();
        let letter = &self.message(no).letter;
        match result {
            Ok(()) => {
                let deliveries = letter.redeliveries;
                info!(
                    message_id = letter.key.id,
                    deliveries, "message of a running job republished with a fresh count"
                );
                self.settle(no, Settlement::SentOn);
            }
            Err(failure) if is_first_here => {
                warn!(message_id = letter.key.id, error = failure.reason, "message of a running job not republished");
                self.message_mut(no).stage = Stage::Duplicate;
                self.duplicates.wait(no, first);
            }
            Err(failure) => self.fail(no, &failure),
        }
    }

    /// Something is about to be published for the message. Later redeliveries may be its retries.
    pub(super) fn close_redeliveries(&mut self, no: MessageNo) {
        let waiting = self.duplicates.waiting_for(no).to_vec();
        self.message_mut(no).redeliveries.certain.get_or_insert(waiting);
    }

    /// The redeliveries of a settled message share its settlement or take its place.
    pub(super) fn end_redeliveries(&mut self, no: MessageNo, message: &Message, unreached: Option<blake3::Hash>) {
        let digest = unreached.or(message.letter.digest);
        let waiting = self.duplicates.end(no, &message.letter.key);
        for no in &waiting {
            let letter = &mut self.message_mut(*no).letter;
            if letter.is_same_as(digest) {
                letter.delivery_count = letter.delivery_count.min(message.next_count());
            }
        }
        for no in waiting {
            match message.shared_settlement(no, &self.message(no).letter, digest) {
                Some(settlement) => self.settle(no, settlement),
                None => self.admit_message(no),
            }
        }
    }
}
