//! The replies that a client with a name of its own has received and its program has not taken.
//!
//! The broker keeps such a reply until the program takes the result, so that a program that dies before gets it again. A reply that no
//! handle waits for is not kept in memory: once a handle does, the client requeues it, and the broker sends it again.

use std::{collections::HashMap, num::NonZeroUsize};

use gpufleet_schema::JobId;
use lru::LruCache;

/// Maximum number of jobs to remember whose results were taken. A second copy of a reply, such as after a broken connection, arrives soon.
const TAKEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("the bound is not zero");

/// The replies that have arrived and were not taken. `A` settles a delivery.
#[derive(Debug)]
pub(crate) struct Unread<A> {
    held: HashMap<JobId, A>,
    taken: LruCache<JobId, ()>,
}

/// The action of the client on a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settle<A> {
    Acknowledge(A),
    Requeue(A),
}

impl<A> Default for Unread<A> {
    fn default() -> Self {
        Self { held: HashMap::new(), taken: LruCache::new(TAKEN_MAX) }
    }
}

impl<A> Unread<A> {
    /// A reply has come. `has_waiter`: a handle waits for it and did not get this copy.
    pub(crate) fn arrived(&mut self, job_id: JobId, acker: A, has_waiter: bool) -> Option<Settle<A>> {
        if self.taken.contains(&job_id) {
            return Some(Settle::Acknowledge(acker));
        }
        if has_waiter {
            return Some(Settle::Requeue(acker));
        }
        // An older copy is a duplicate, or was requeued by the broker when its channel closed. Acknowledging it is harmless then.
        self.held.insert(job_id, acker).map(Settle::Acknowledge)
    }

    /// Records that a handle waits. Returns the delivery to requeue.
    pub(crate) fn await_again(&mut self, job_id: JobId) -> Option<A> {
        self.held.remove(&job_id)
    }

    /// Records that the program has the result. Returns the delivery to acknowledge.
    pub(crate) fn take(&mut self, job_id: JobId) -> Option<A> {
        self.taken.put(job_id, ());
        self.held.remove(&job_id)
    }

    pub(crate) fn is_taken(&self, job_id: JobId) -> bool {
        self.taken.contains(&job_id)
    }

    /// The jobs with a reply that the program can take.
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.held.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_held_until_its_result_is_taken_and_a_later_copy_is_acknowledged_at_once() {
        let (mut unread, job_id) = (Unread::default(), JobId::new());
        assert_eq!(unread.arrived(job_id, 1, false), None);
        assert_eq!(unread.jobs(), [job_id]);
        assert_eq!(unread.arrived(job_id, 2, false), Some(Settle::Acknowledge(1)), "the newest copy is held");
        assert_eq!(unread.take(job_id), Some(2));
        assert!(unread.is_taken(job_id) && unread.jobs().is_empty());
        assert_eq!(unread.arrived(job_id, 3, false), Some(Settle::Acknowledge(3)));
    }

    #[test]
    fn a_reply_that_no_handle_got_comes_again_once_a_handle_waits() {
        let (mut unread, job_id) = (Unread::default(), JobId::new());
        assert_eq!(unread.arrived(job_id, 1, false), None);
        assert_eq!(unread.await_again(job_id), Some(1));
        assert_eq!(unread.arrived(job_id, 2, true), Some(Settle::Requeue(2)), "the handle came a moment later");
        assert_eq!(unread.arrived(job_id, 3, false), None);
        assert_eq!(unread.take(job_id), Some(3));
    }

    #[test]
    fn a_result_that_came_from_elsewhere_is_taken_before_its_reply_arrives() {
        let (mut unread, job_id) = (Unread::default(), JobId::new());
        assert_eq!(unread.take(job_id), None);
        assert_eq!(unread.arrived(job_id, 1, true), Some(Settle::Acknowledge(1)));
    }
}
