//! Room for what the jobs of one list return, from before they start until they are answered: while a portion waits for a slow broker, the
//! other jobs would else go on and pile up their outputs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Outputs and failure texts of a list that are held until a reply message is worth its while.
pub(super) const PORTION_BYTES: usize = 1 << 20;

/// Outputs of a list that are held at once: some of the largest, so that jobs run while others are answered.
const HELD_BYTES_MAX: usize = 64 << 20;

/// What one job takes at most. A portion that is not worth a message yet waits for jobs to come, and these must not wait for it.
const TAKEN_BYTES_MAX: usize = HELD_BYTES_MAX - PORTION_BYTES;

/// Of one list.
#[derive(Debug)]
pub(super) struct OutputRoom(Arc<Semaphore>);

impl OutputRoom {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(HELD_BYTES_MAX)))
    }

    /// Waits for room for so many bytes, first come, first served. It is given back when what this returns is dropped.
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
