//! The dispatcher's deadlines, ordered by time.

use std::{collections::BTreeSet, time::Instant};

use super::{JobNo, MessageNo};

/// The event at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The queue limit of a job passes.
    Expiry(JobNo),
    /// A session has waited long enough at this worker.
    Patience(JobNo),
    /// The time to requeue a message whose outcome was not confirmed.
    Requeue(MessageNo),
    /// The time to check a message whose jobs may leave it.
    Watched(MessageNo),
    /// Jobs have waited for orders for a while.
    Orders,
}

/// All deadlines that are set.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn clear(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes and returns a timer that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Timer> {
        if self.first()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }

    /// Removes and returns the messages that wait to be requeued.
    pub(super) fn requeues(&mut self) -> Vec<MessageNo> {
        let mut messages = Vec::new();
        self.0.retain(|(_, timer)| match timer {
            Timer::Requeue(message) => {
                messages.push(*message);
                false
            }
            Timer::Expiry(_) | Timer::Patience(_) | Timer::Watched(_) | Timer::Orders => true,
        });
        messages
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether no timer of a message is set.
    #[cfg(test)]
    pub(super) fn have_no_message(&self) -> bool {
        self.0.iter().all(|(_, timer)| *timer == Timer::Orders)
    }
}
