//! Bounds the memory for outputs of one list, from before its jobs start until they are answered. Otherwise the outputs of other jobs would
//! accumulate while a portion waits for a slow broker.

use std::collections::VecDeque;

/// Size of outputs and failure texts at which a portion of a list is published, in bytes.
pub(super) const PORTION_BYTES: usize = 1 << 20;

/// Maximum size of the outputs of a list held at once, in bytes: enough for several of the largest, so that jobs run while others are
/// answered.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// Maximum room that one job takes, in bytes. A small portion waits for further jobs to end, so these must not have to wait for the
/// portion's room.
const TAKEN_BYTES_MAX: u64 = HELD_BYTES_MAX - PORTION_BYTES as u64;

/// The room of one list. Jobs get room in the order in which they ask for it.
#[derive(Debug)]
pub(super) struct OutputRoom {
    free: u64,
    waiting: VecDeque<(usize, u64)>,
}

impl Default for OutputRoom {
    fn default() -> Self {
        Self { free: HELD_BYTES_MAX, waiting: VecDeque::new() }
    }
}

impl OutputRoom {
    /// Returns the room that a job with outputs of this size takes, in bytes.
    pub(super) fn taken(bytes: u64) -> u64 {
        bytes.min(TAKEN_BYTES_MAX)
    }

    /// Takes room for a job, or puts the job in line. Returns whether the job has the room.
    pub(super) fn take(&mut self, job: usize, taken: u64) -> bool {
        self.waiting.push_back((job, taken));
        self.next() == Some(job)
    }

    /// Removes a job from the line.
    pub(super) fn leave(&mut self, job: usize) {
        self.waiting.retain(|(waiting, _)| *waiting != job);
    }

    pub(super) fn give_back(&mut self, taken: u64) {
        self.free += taken;
    }

    /// Gives the next job in line its room, if there is enough, and returns the job.
    pub(super) fn next(&mut self) -> Option<usize> {
        let (job, taken) = *self.waiting.front().filter(|(_, taken)| *taken <= self.free)?;
        self.free -= taken;
        self.waiting.pop_front();
        Some(job)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.free == HELD_BYTES_MAX && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_job_takes_leaves_room_for_a_portion_that_waits_for_it() {
        let mut room = OutputRoom::default();
        let largest = OutputRoom::taken(u64::MAX);
        assert!(room.take(0, PORTION_BYTES as u64) && room.take(1, largest) && room.take(2, 0));
        assert!(!room.take(3, 1));
        assert!(!room.take(4, 0), "first come, first served");
        room.give_back(largest);
        assert_eq!([room.next(), room.next(), room.next()], [Some(3), Some(4), None]);
    }

    #[test]
    fn a_job_that_leaves_the_line_lets_the_next_one_in() {
        let mut room = OutputRoom::default();
        assert!(room.take(0, 2 * PORTION_BYTES as u64));
        assert!(!room.take(1, TAKEN_BYTES_MAX) && !room.take(2, 1));
        room.leave(1);
        assert_eq!(room.next(), Some(2));
    }
}
