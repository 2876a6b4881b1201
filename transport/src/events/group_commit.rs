//! Group commit: a batch of events leaves when the broker has confirmed the batch before it.
//!
//! If no batch is unconfirmed, events leave at once. Otherwise they gather, so the size of the batches follows the load. Only a full
//! batch leaves beside unconfirmed ones. This is plain data: it has no clock, and never waits.

use std::collections::BTreeSet;

use super::{
    Confirmed,
    batch::{Addition, Batch},
};
use crate::PublishError;

/// The most unconfirmed batches, enough to keep the broker busy while full batches travel.
const UNCONFIRMED_MAX: usize = 4;

/// A batch's position in the order in which batches leave.
pub(super) type Number = u64;

/// The batch that events gather in, the numbers of the unconfirmed batches, and the callers that wait for them.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    gathering: Batch,
    /// The number that the gathering batch will have.
    next: Number,
    unconfirmed: BTreeSet<Number>,
    flushes: Vec<Flush>,
}

/// A caller that waits for all batches up to a number.
#[derive(Debug)]
struct Flush {
    up_to: Number,
    outcome: Result<(), PublishError>,
    confirmed: Confirmed,
}

impl GroupCommit {
    /// Adds events to the gathering batch.
    pub(super) fn add(&mut self, addition: Addition) {
        self.gathering.add(addition);
    }

    /// Whether the gathering batch is full. Then it must leave before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.gathering.is_full()
    }

    /// Takes the batch that is to leave now, if any.
    pub(super) fn take_due(&mut self) -> Option<(Number, Batch)> {
        let limit = if self.gathering.is_full() { UNCONFIRMED_MAX } else { 1 };
        (self.unconfirmed.len() < limit).then(|| self.take_rest()).flatten()
    }

    /// Takes the gathering batch, unless it is empty.
    pub(super) fn take_rest(&mut self) -> Option<(Number, Batch)> {
        if self.gathering.is_empty() {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.unconfirmed.insert(number);
        Some((number, std::mem::take(&mut self.gathering)))
    }

    /// Answers the callers that waited for this batch alone or for the last of several.
    pub(super) fn settle(&mut self, number: Number, batch: Batch, outcome: &Result<(), PublishError>) {
        self.unconfirmed.remove(&number);
        if outcome.is_err() {
            for flush in self.flushes.iter_mut().filter(|flush| number <= flush.up_to) {
                flush.outcome.clone_from(outcome);
            }
        }
        for confirmed in batch.callers {
            let _caller_gone = confirmed.send(outcome.clone());
        }
        self.answer_flushes();
    }

    /// Answers when everything that was added so far is confirmed or lost.
    pub(super) fn flush(&mut self, confirmed: Confirmed) {
        let up_to = if self.gathering.is_empty() { self.next.checked_sub(1) } else { Some(self.next) };
        match up_to {
            Some(up_to) => self.flushes.push(Flush { up_to, outcome: Ok(()), confirmed }),
            None => drop(confirmed.send(Ok(()))),
        }
        self.answer_flushes();
    }

    /// The number of events in the gathering batch.
    pub(super) fn gathered(&self) -> usize {
        self.gathering.len()
    }

    /// The number of unconfirmed batches.
    pub(super) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    fn answer_flushes(&mut self) {
        let first_open = self.unconfirmed.first().copied().unwrap_or(self.next);
        for flush in self.flushes.extract_if(.., |flush| flush.up_to < first_open) {
            let _caller_gone = flush.confirmed.send(flush.outcome);
        }
    }
}

#[cfg(test)]
mod tests;
