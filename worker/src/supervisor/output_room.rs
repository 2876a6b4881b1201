//! Bounds the outputs of one list from before its jobs start until they are answered. Otherwise the outputs of the other jobs would
//! accumulate while a portion waits for a slow broker.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The size of outputs and failure texts at which a portion of a list is published.
pub(super) const PORTION_BYTES: usize = 1 << 20;

/// The most outputs of a list held at once: room for several of the largest, so that jobs run while others are answered.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The most room that one job takes. A small portion waits for further jobs, so these must not wait for the portion's room.
const TAKEN_BYTES_MAX: usize = HELD_BYTES_MAX - PORTION_BYTES;

/// The room of one list.
#[derive(Debug)]
pub(super) struct OutputRoom(Arc<Semaphore>);

impl OutputRoom {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(HELD_BYTES_MAX)))
    }

    /// Waits for room for this many bytes, first come, first served. Dropping the permit releases the room.
    pub(super) async fn take(&self, bytes: u64) -> OwnedSemaphorePermit {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(TAKEN_BYTES_MAX);
        let taken = Arc::clone(&self.0).acquire_many_owned(bytes as u32).await;
        taken.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn what_one_job_takes_leaves_room_for_a_portion_that_waits_for_it() {
        let room = OutputRoom::new();
        let _portion = room.take(PORTION_BYTES as u64).await;
        let largest = room.take(u64::MAX).await;
        let _none = room.take(0).await;
        let mut next = pin!(room.take(1));
        assert!(poll!(next.as_mut()).is_pending());
        drop(largest);
        drop(next.await);
    }
}
