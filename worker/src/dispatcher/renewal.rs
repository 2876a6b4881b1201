//! Keeps the broker from dead-lettering a message in flight because it was redelivered often.
//!
//! A quorum queue counts every delivery that was not acknowledged, and dead-letters a message at its limit. A lost channel or a
//! `consumer_timeout` counts as much as a crash, so without renewal a long job on a weak link would be dead-lettered while it runs. The
//! worker that runs the job knows that none of these deliveries was a failure. When the broker's count of a redelivery is high, the worker
//! publishes a copy with a fresh count, and acknowledges the redelivery once the copy is confirmed. The queue always has the message or its
//! copy, so another worker runs the job if this one dies.
//!
//! Once everything about a message is confirmed, its redeliveries share its settlement. If the message has failed, its next redelivery
//! takes its place and counts only the deliveries that were tried.

use gpufleet_schema::bounds::DELIVERIES_MAX;
use tracing::{info, warn};

use super::{
    Dispatcher, Effect, MessageInfo, MessageNo, PublishFailure, Settlement,
    message::{Message, MessageState},
};

/// Broker's delivery count from which a redelivery is renewed: half of the limit, so that as many deliveries remain until the copy must be
/// confirmed.
const RENEWED_FROM: u64 = DELIVERIES_MAX / 2;

/// The state of a message in flight with respect to its redeliveries.
#[derive(Debug)]
pub(super) struct Redeliveries {
    /// Whether a job of the message has started, or its handling has failed. Otherwise a lost delivery is no evidence against the message.
    pub(super) was_tried: bool,
    /// The highest attempt number of the message and its redeliveries.
    pub(super) last_attempt: u32,
    /// The redeliveries that arrived before anything was published for the message; `None` until then. Later arrivals may be its retries,
    /// which have the same id and body.
    certain: Option<Vec<MessageNo>>,
    /// Whether a copy is being published.
    is_renewing: bool,
}

impl Redeliveries {
    pub(super) fn of(info: &MessageInfo) -> Self {
        Self { was_tried: false, last_attempt: info.attempt, certain: None, is_renewing: false }
    }
}

impl MessageInfo {
    /// Returns whether this is a redelivery of the same message in its queue as `earlier`, so that the broker no longer waits for
    /// `earlier`.
    fn replaces(&self, earlier: &Self) -> bool {
        let published = |info: &Self| u64::from(info.attempt).saturating_sub(info.redeliveries);
        self.is_same_as(earlier.digest)
            && published(self) == published(earlier)
            && self.redeliveries > earlier.redeliveries
    }

    fn is_same_as(&self, digest: Option<blake3::Hash>) -> bool {
        self.digest.is_some() && self.digest == digest
    }
}

impl<M, J> Message<M, J> {
    /// Returns the number of earlier deliveries that its redelivery has to count.
    fn next_count(&self) -> u64 {
        self.info.delivery_count.saturating_add(u64::from(self.redeliveries.was_tried))
    }

    /// Returns whether the queue must keep the message's redelivery, and no copy of it is being published.
    fn needs_redelivery(&self) -> bool {
        self.is_open() && !self.redeliveries.is_renewing
    }

    /// Returns whether the message has no outcome and nothing was published for it, so that every equal message is a redelivery.
    fn is_open(&self) -> bool {
        let is_open =
            matches!(self.state, MessageState::Decoding | MessageState::Working | MessageState::Failed { .. });
        is_open && self.redeliveries.certain.is_none()
    }

    /// Returns the settlement that the redelivery `no`, which has waited for this message, shares with it, if any.
    fn shared_settlement(&self, no: MessageNo, info: &MessageInfo, digest: Option<blake3::Hash>) -> Option<Settlement> {
        let MessageState::Settling(settlement @ (Settlement::Answered | Settlement::SentOn)) = self.state else {
            return None;
        };
        let is_certain = self.redeliveries.certain.as_ref().is_some_and(|certain| certain.contains(&no));
        (is_certain && info.is_same_as(digest)).then_some(settlement)
    }
}

impl<M, J> Dispatcher<M, J> {
    /// Lets a redelivery of a message in flight wait for it, and renews the redelivery if the broker's count is high.
    pub(super) fn redelivered(&mut self, no: MessageNo, first: MessageNo) {
        self.drop_replaced(no, first);
        let info = &self.message(no).info;
        let (attempt, delivery_count) = (info.attempt, info.delivery_count);
        let is_due = info.redeliveries >= RENEWED_FROM;
        let message = self.message_mut(first);
        message.redeliveries.last_attempt = message.redeliveries.last_attempt.max(attempt);
        if !is_due || !message.needs_redelivery() {
            return;
        }
        message.redeliveries.is_renewing = true;
        // A copy with a count of zero would look like a new message.
        let delivery_count = message.next_count().min(delivery_count).max(1);
        self.duplicates.leave(no, first);
        self.go(no, MessageState::Renewing { first }, Effect::Copy { message: no, delivery_count });
    }

    /// Settles the earlier redelivery that this one replaces. If its channel is closed, that only frees its memory.
    fn drop_replaced(&mut self, no: MessageNo, first: MessageNo) {
        let info = &self.message(no).info;
        let is_open = self.message(first).is_open();
        // A message that waited for another one comes here late, and must not replace a redelivery that arrived after it: that one may be
        // all that the broker still has.
        let mut earlier = self.duplicates.waiting_for(first).iter().copied().filter(|other| *other < no);
        let Some(replaced) = earlier.find(|earlier| {
            let earlier = &self.message(*earlier).info;
            info.replaces(earlier) || is_open && info.is_same_as(earlier.digest)
        }) else {
            return;
        };
        self.duplicates.leave(replaced, first);
        let certain = self.message_mut(first).redeliveries.certain.iter_mut().flatten();
        certain.filter(|certain| **certain == replaced).for_each(|certain| *certain = no);
        // While the outcome is open, the queue needs the message once. It has the message twice if a copy was confirmed and the connection
        // broke before the redelivery was acknowledged.
        self.settle(replaced, if is_open { Settlement::SentOn } else { Settlement::Requeue });
    }

    /// Handles the confirm or rejection of a redelivery's copy.
    pub(super) fn renewed(&mut self, no: MessageNo, first: MessageNo, result: Result<(), PublishFailure>) {
        let first_here = self.messages.get_mut(&first);
        let is_first_here = first_here.map(|first| first.redeliveries.is_renewing = false).is_some();
        let info = &self.message(no).info;
        match result {
            Ok(()) => {
                let deliveries = info.redeliveries;
                info!(message_id = info.key.id, deliveries, "message of a running job republished with a fresh count");
                self.settle(no, Settlement::SentOn);
            }
            Err(failure) if is_first_here => {
                warn!(message_id = info.key.id, error = failure.reason, "message of a running job not republished");
                self.message_mut(no).state = MessageState::Duplicate;
                self.duplicates.wait(no, first);
            }
            Err(failure) => self.fail(no, &failure),
        }
    }

    /// Records that something is about to be published for the message, so that later redeliveries may be its retries.
    pub(super) fn close_redeliveries(&mut self, no: MessageNo) {
        let waiting = self.duplicates.waiting_for(no).to_vec();
        self.message_mut(no).redeliveries.certain.get_or_insert(waiting);
    }

    /// Settles the redeliveries of a settled message like the message, or lets them take its place.
    pub(super) fn end_redeliveries(&mut self, no: MessageNo, message: &Message<M, J>, unreached: Option<blake3::Hash>) {
        let digest = unreached.or(message.info.digest);
        let waiting = self.duplicates.end(no, &message.info.key);
        for no in &waiting {
            let info = &mut self.message_mut(*no).info;
            if info.is_same_as(digest) {
                info.delivery_count = info.delivery_count.min(message.next_count());
            }
        }
        for no in waiting {
            match message.shared_settlement(no, &self.message(no).info, digest) {
                Some(settlement) => self.settle(no, settlement),
                None => self.admit_message(no),
            }
        }
    }
}
