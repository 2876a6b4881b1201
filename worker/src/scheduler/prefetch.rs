//! How many messages a worker asks the broker for ahead of time, queue by queue.
//!
//! Prefetched jobs are unavailable to other workers; too few leave slots idle. So each queue sends what runs,
//! what open places could take, and some tens of milliseconds of work more: hundreds of tiny jobs, one or two long ones. Lengths
//! are measured: the time for which a queue's jobs hold their places. A queue that is not known yet is taken for long and large.
//!
//! Every change costs a new subscription. A queue grows when it has used up what it may have; it shrinks when less has been right
//! for a while, or at once when its messages turn out too large. The broker counts messages, not bytes: when messages grow all of
//! a sudden, those that were asked for come nevertheless, and go back where they have not started.

mod share;

#[cfg(test)]
mod tests;

use self::share::share_out;

/// What a worker has in hand of one queue, and the room there is for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InHand {
    /// Messages that are not settled.
    pub messages: u32,
    /// The most of them since the last decision.
    pub messages_peak: u32,
    /// Of these, those whose jobs have ended and whose outcome is on its way: no work any more.
    pub settling: u32,
    /// Jobs that hold a place, and for how long, all together.
    pub running: u32,
    pub running_us: u64,
    /// Places that its pool could take now.
    pub open: u32,
    /// Jobs that wait although a place is open: they do not fit, and others behind them may.
    pub stuck: u32,
}

/// The bounds of a worker's prefetch.
#[derive(Debug, Clone, Copy)]
pub struct PrefetchLimits {
    /// Messages of one queue.
    pub messages_max: u16,
    /// The sum over all queues. One message of each queue is always asked for.
    pub bytes_max: u64,
    /// What a message is taken for whose queue has sent none yet.
    pub message_bytes_max: u64,
}

/// What the queues of a worker may send ahead.
#[derive(Debug)]
pub struct Prefetch {
    limits: PrefetchLimits,
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    prefetch: u16,
    /// Jobs of a message.
    jobs: Mean,
    /// The time for which a job holds its place.
    job_us: Mean,
    /// A recent large message; it is forgotten slowly.
    bytes: f64,
    /// Since when less would do.
    less_since_us: Option<u64>,
}

/// A mean that follows the newest values.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: u32,
    value: f64,
}

/// Work to have in hand beyond what runs: a worker and its broker need a few milliseconds to replace a job, and under load some ten.
const AHEAD_US: f64 = 50_000.0;
/// Jobs that wait for memory and are looked past: as many as the backlog looks past.
const STUCK_MAX: f64 = 32.0;
/// Values that a mean goes back to: enough that one long job among tiny ones does not count for them all.
const MEMORY: u32 = 32;
/// Messages after which a large one counts for a third of its size.
const LARGE_MEMORY: f64 = 256.0;
/// One step up, so that a few jobs that happened to be short don't ask for everything.
const GROWTH_MAX: u16 = 8;
/// Less must have been right for so long.
const PATIENCE_US: u64 = 1_000_000;

impl Prefetch {
    /// For so many queues on a worker with so many places.
    pub fn new(limits: PrefetchLimits, queues: usize, places: u32) -> Self {
        let bytes = limits.message_bytes_max as f64;
        let unknown =
            || Queue { prefetch: 1, jobs: Mean::default(), job_us: Mean::default(), bytes, less_since_us: None };
        let mut prefetch = Self { limits, queues: std::iter::repeat_with(unknown).take(queues).collect() };
        let idle = InHand { open: places, ..InHand::default() };
        let targets = prefetch.targets(places, &vec![idle; queues]);
        prefetch.queues.iter_mut().zip(targets).for_each(|(queue, target)| queue.prefetch = target.messages);
        prefetch
    }

    /// What the queue may send ahead now.
    pub fn of(&self, queue: usize) -> u16 {
        self.queues[queue].prefetch
    }

    /// A message of so many jobs and bytes has come.
    pub fn message(&mut self, queue: usize, jobs: usize, bytes: u64) {
        let queue = &mut self.queues[queue];
        queue.bytes = match queue.jobs.count {
            0 => bytes as f64,
            _ => (bytes as f64).max(queue.bytes - queue.bytes / LARGE_MEMORY),
        };
        queue.jobs.add(jobs.max(1) as f64);
    }

    /// A job held its place for so long.
    pub fn job(&mut self, queue: usize, held_us: u64) {
        self.queues[queue].job_us.add(held_us.max(1) as f64);
    }

    /// What is to be asked for anew, by queue, now that it is `now_us` on some clock that never goes back. `places` is the number of
    /// jobs that can run at once on this worker.
    pub fn decide(&mut self, now_us: u64, places: u32, hands: &[InHand]) -> Vec<(usize, u16)> {
        let targets = self.targets(places, hands);
        let queues = self.queues.iter_mut().zip(hands).zip(targets).enumerate();
        queues.filter_map(|(index, ((queue, hand), target))| Some((index, queue.step(now_us, hand, target)?))).collect()
    }

    fn targets(&self, places: u32, hands: &[InHand]) -> Vec<Target> {
        let active = hands.iter().filter(|hand| hand.messages > 0).count().max(1) as f64;
        let max = f64::from(self.limits.messages_max.max(1));
        let wanted = self.queues.iter().zip(hands).map(|(queue, hand)| queue.wanted(places, active, hand).min(max));
        let wanted: Vec<f64> = wanted.collect();
        // What a queue may send ahead it may send, whether it still needs so much or not.
        let held = self.queues.iter().zip(&wanted).map(|(queue, wanted)| wanted.max(f64::from(queue.prefetch)));
        let sizes: Vec<f64> = self.queues.iter().map(|queue| queue.bytes.max(1.0)).collect();
        let idle: Vec<bool> = hands.iter().map(|hand| hand.messages == 0).collect();
        let shares = share_out(self.limits.bytes_max as f64, &held.collect::<Vec<_>>(), &sizes, &idle);
        let target = |(wanted, most): (f64, f64)| Target {
            messages: wanted.min(most).max(1.0) as u16,
            most: most as u16,
            is_cut: most < wanted,
        };
        wanted.into_iter().zip(shares).map(target).collect()
    }
}

/// Whether so much more lies here than a queue may send ahead that what has not started should go back.
pub fn is_hoard(messages: u32, prefetch: u16) -> bool {
    messages > 2 * u32::from(prefetch)
}

/// What a queue should send ahead.
#[derive(Debug, Clone, Copy)]
struct Target {
    messages: u16,
    /// By their size it may not have more.
    most: u16,
    /// And would have more otherwise.
    is_cut: bool,
}

impl Queue {
    /// Messages that would do, whatever their size.
    fn wanted(&self, places: u32, active: f64, hand: &InHand) -> f64 {
        let jobs = self.jobs.value.max(1.0);
        let busy = f64::from(hand.running + hand.open) / jobs;
        // As many again may fit.
        let stuck = (2.0 * f64::from(hand.stuck) / jobs).min(STUCK_MAX);
        let ahead = self.job_us(hand).map_or(1.0, |us| f64::from(places) * AHEAD_US / (us * jobs) / active);
        busy.ceil() + ahead.ceil() + stuck.ceil() + f64::from(hand.settling)
    }

    /// How long a job takes. Those that run count as if they ended now, where that makes them longer.
    fn job_us(&self, hand: &InHand) -> Option<f64> {
        let mean = self.job_us;
        if hand.running == 0 {
            return (mean.count > 0).then_some(mean.value);
        }
        let so_far = hand.running_us as f64 / f64::from(hand.running);
        let weight = f64::from(hand.running) / f64::from(mean.count.clamp(hand.running, MEMORY.max(hand.running)));
        (mean.count > 0).then(|| mean.value + (so_far - mean.value).max(0.0) * weight)
    }

    fn step(&mut self, now_us: u64, hand: &InHand, target: Target) -> Option<u16> {
        let prefetch = self.prefetch;
        if prefetch > target.most {
            return Some(self.shrink(target, hand));
        }
        let more = self.more(target, hand);
        if more >= prefetch.saturating_add((prefetch / 4).max(1)) {
            self.less_since_us = None;
            let is_used_up = hand.messages_peak.saturating_add((prefetch / 4).into()) >= prefetch.into();
            return is_used_up.then(|| self.set(more));
        }
        if target.messages.saturating_add((prefetch / 3).max(2)) > prefetch {
            self.less_since_us = None;
            return None;
        }
        let since = *self.less_since_us.get_or_insert(now_us);
        (now_us.saturating_sub(since) >= PATIENCE_US).then(|| self.shrink(target, hand))
    }

    /// One step up. What the last subscription sent and still lies here comes on top of what the next one sends: a few jobs more for
    /// a moment, but bytes are counted.
    fn more(&self, target: Target, hand: &InHand) -> u16 {
        let lies_here = u16::try_from(hand.messages).unwrap_or(u16::MAX);
        let missing = target.messages.saturating_sub(lies_here);
        let room = self.prefetch.saturating_add(missing);
        let within_bytes = if target.is_cut { missing } else { u16::MAX };
        target.messages.min(self.prefetch.saturating_mul(GROWTH_MAX)).min(room).min(within_bytes)
    }

    /// What runs stays, and the new subscription's messages come on top.
    fn shrink(&mut self, target: Target, hand: &InHand) -> u16 {
        self.set(target.messages.saturating_sub(hand.running.try_into().unwrap_or(u16::MAX)).max(1))
    }

    fn set(&mut self, prefetch: u16) -> u16 {
        self.less_since_us = None;
        self.prefetch = prefetch;
        prefetch
    }
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count = (self.count + 1).min(MEMORY);
        self.value += (value - self.value) / f64::from(self.count);
    }
}
