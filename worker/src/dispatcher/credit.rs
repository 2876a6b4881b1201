//! Counts the unsettled messages of each queue and the slots that their jobs occupy, and adjusts each queue's prefetch accordingly.

use std::time::{Duration, Instant};

use gpufleet_schema::Priority;

use crate::scheduler::{
    PoolId, Room,
    prefetch::{Prefetch, PrefetchLimits, QueueLoad, is_hoard},
};

/// Minimum time between two adjustments, because a new subscription takes a few milliseconds.
const PACE: Duration = Duration::from_millis(10);
/// Maximum time between two adjustments: while long jobs run, the prefetch changes even if no message arrives.
const TICK: Duration = Duration::from_millis(250);

/// The prefetch of each queue, and the counts that it is computed from.
#[derive(Debug)]
pub(super) struct Credit {
    began: Instant,
    decided: Instant,
    /// Whether a message has arrived or been settled since the last decision.
    changed: bool,
    prefetch: Option<Prefetch>,
    queues: Vec<(ServedQueue, Tally)>,
}

/// A task queue that this worker consumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServedQueue {
    pub(crate) pool: PoolId,
    pub(crate) priority: Priority,
    /// Whether the broker prefers one of the consuming workers as long as that worker has prefetch left.
    pub(crate) has_favourite: bool,
    /// The prefetch of a queue of sessions, which is their maximum number. It never changes, and the run times of sessions, which may be
    /// hours, affect no other queue.
    pub(crate) fixed_prefetch: Option<u16>,
}

/// The current counts of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    messages: u32,
    messages_peak: u32,
    /// Number of unsettled messages whose jobs have ended.
    settling: u32,
    running: u32,
    /// The sum of the start times of the running jobs, in microseconds.
    started_us: u64,
}

impl Credit {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, decided: now, changed: false, prefetch: None, queues: Vec::new() }
    }

    /// Sets the queues that the worker consumes, those with a fixed prefetch last. Returns the first prefetch of each.
    pub(super) fn serve(&mut self, limits: PrefetchLimits, queues: Vec<ServedQueue>, slots: u32) -> Vec<u16> {
        let adjusted = queues.iter().take_while(|queue| queue.fixed_prefetch.is_none()).count();
        let prefetch = Prefetch::new(limits, adjusted, slots);
        let first = queues.iter().enumerate();
        let first = first.map(|(index, queue)| queue.fixed_prefetch.unwrap_or_else(|| prefetch.of(index))).collect();
        self.prefetch = Some(prefetch);
        self.queues = queues.into_iter().map(|queue| (queue, Tally::default())).collect();
        first
    }

    /// Records the delivery of a message from the queue.
    pub(super) fn delivered(&mut self, queue: usize) {
        let tally = self.tally(queue);
        tally.messages += 1;
        tally.messages_peak = tally.messages_peak.max(tally.messages);
        self.changed = true;
    }

    /// Records how many jobs and bytes a message of the queue has.
    pub(super) fn decoded(&mut self, queue: usize, jobs: usize, bytes: usize) {
        if !self.is_fixed(queue) {
            self.prefetch_mut().message(queue, jobs, bytes as u64);
        }
    }

    /// Records that a job of the queue starts in a slot.
    pub(super) fn started(&mut self, queue: usize, now: Instant) {
        let started_us = self.micros(now);
        let tally = self.tally(queue);
        tally.running += 1;
        tally.started_us += started_us;
    }

    /// Records that a job of the queue, which started at `started`, leaves its slot.
    pub(super) fn stopped(&mut self, queue: usize, started: Instant, now: Instant) {
        let (started_us, now_us) = (self.micros(started), self.micros(now));
        let tally = self.tally(queue);
        tally.running -= 1;
        tally.started_us -= started_us;
        if !self.is_fixed(queue) {
            self.prefetch_mut().job(queue, now_us.saturating_sub(started_us));
        }
    }

    /// Records that the jobs of a message have ended. The message then waits only for its confirms and is no longer work.
    pub(super) fn jobs_ended(&mut self, queue: usize) {
        self.tally(queue).settling += 1;
    }

    /// Records that a message of the queue was settled.
    pub(super) fn settled(&mut self, queue: usize, jobs_had_ended: bool) {
        let tally = self.tally(queue);
        tally.messages -= 1;
        tally.settling -= u32::from(jobs_had_ended);
        self.changed = true;
    }

    /// Returns the queue's pool and priority if the worker holds so many of its messages that the surplus would wait while other workers
    /// may be idle.
    pub(super) fn hoard(&self, queue: usize, prefetch: u16) -> Option<(PoolId, Priority)> {
        let (served, tally) = self.queues[queue];
        let is_hoard = !self.is_fixed(queue) && is_hoard(tally.messages, prefetch);
        is_hoard.then_some((served.pool, served.priority))
    }

    /// Returns whether the queue's jobs may wait here although other workers are idle.
    pub(super) fn has_favourite(&self, queue: usize) -> bool {
        self.queues[queue].0.has_favourite
    }

    pub(super) fn messages_of(&self, pool: PoolId) -> u32 {
        self.queues.iter().filter(|(served, _)| served.pool == pool).map(|(_, tally)| tally.messages).sum()
    }

    /// Returns when the next decision is due.
    pub(super) fn due(&self) -> Instant {
        self.decided + PACE + if self.changed { Duration::ZERO } else { TICK }
    }

    /// Returns the queues whose prefetch changes, with the new prefetch.
    pub(super) fn decide(&mut self, now: Instant, slots: u32, rooms: &[Room]) -> Vec<(usize, u16)> {
        (self.decided, self.changed) = (now, false);
        let now_us = self.micros(now);
        let adjusted = self.queues.iter_mut().take_while(|(served, _)| served.fixed_prefetch.is_none());
        let loads = adjusted.map(|(served, tally)| {
            let room = rooms[served.room()];
            let load = tally.load(now_us);
            tally.messages_peak = tally.messages;
            QueueLoad { open: room.open, stuck: room.stuck, ..load }
        });
        let loads: Vec<QueueLoad> = loads.collect();
        self.prefetch.as_mut().map(|prefetch| prefetch.decide(now_us, slots, &loads)).unwrap_or_default()
    }

    fn is_fixed(&self, queue: usize) -> bool {
        self.queues[queue].0.fixed_prefetch.is_some()
    }

    fn tally(&mut self, queue: usize) -> &mut Tally {
        &mut self.queues[queue].1
    }

    fn prefetch_mut(&mut self) -> &mut Prefetch {
        self.prefetch.as_mut().expect("messages come from queues that are served")
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        let unused = |tally: &Tally| Tally { messages_peak: 0, ..*tally } == Tally::default();
        self.queues.iter().all(|(_, tally)| unused(tally))
    }
}

impl Tally {
    fn load(self, now_us: u64) -> QueueLoad {
        QueueLoad {
            messages: self.messages,
            messages_peak: self.messages_peak,
            settling: self.settling,
            running: self.running,
            running_us: (now_us * u64::from(self.running)).saturating_sub(self.started_us),
            ..QueueLoad::default()
        }
    }
}

impl ServedQueue {
    /// Returns the queue's index in the scheduler's rooms, which are ordered by pool and then by priority.
    fn room(self) -> usize {
        let priority = Priority::ALL.iter().position(|of_all| *of_all == self.priority);
        self.pool.0 as usize * Priority::ALL.len() + priority.expect("all priorities are in the list")
    }
}
