//! Decides how many messages a worker prefetches from each queue.
//!
//! Prefetched jobs are unavailable to other workers; too few leave slots idle. So the prefetch of a queue covers its running jobs, its open
//! slots, and some tens of milliseconds of further work: hundreds of tiny jobs, or one or two long ones. A job's run time is measured as
//! the time for which it occupies its slot. A new queue is assumed to have long and large jobs.
//!
//! Every change of the prefetch costs a new subscription. The prefetch grows when a queue has used all of it. It shrinks when less has been
//! enough for a while, or at once if the messages turn out too large. The broker counts messages, not bytes: if messages suddenly grow,
//! those already requested still arrive, and the worker requeues the ones that have not started.

mod share;

#[cfg(test)]
mod tests;

use self::share::share_out;

/// The load of one queue: its unsettled messages and its open slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLoad {
    /// Number of unsettled messages.
    pub messages: u32,
    /// Maximum number of unsettled messages since the last decision.
    pub messages_peak: u32,
    /// Number of unsettled messages whose jobs have ended and that wait only for confirms.
    pub settling: u32,
    /// Number of running jobs, and the sum of their run times so far in microseconds.
    pub running: u32,
    pub running_us: u64,
    /// Number of slots that the queue's pool could use now.
    pub open: u32,
    /// Number of jobs that wait although slots are open, because they do not fit. Later jobs may fit.
    pub stuck: u32,
}

/// The limits of a worker's prefetch.
#[derive(Debug, Clone, Copy)]
pub struct PrefetchLimits {
    /// Maximum number of messages of one queue.
    pub messages_max: u16,
    /// Maximum size of the messages of all queues together. Each queue may always prefetch one message.
    pub bytes_max: u64,
    /// Assumed size of a message of a new queue.
    pub message_bytes_max: u64,
}

/// The prefetch of each queue of a worker.
#[derive(Debug)]
pub struct Prefetch {
    limits: PrefetchLimits,
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    prefetch: u16,
    /// Number of jobs in a message.
    jobs: Mean,
    /// Time for which a job occupies its slot, in microseconds.
    job_us: Mean,
    /// Size of a recent large message, in bytes; it decays slowly.
    bytes: f64,
    /// Time since which a smaller prefetch would be enough.
    less_since_us: Option<u64>,
}

/// A moving mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: u32,
    value: f64,
}

/// Work to prefetch in addition to the running jobs, in microseconds. A worker and its broker need a few milliseconds to replace a job, and
/// about ten under load.
const AHEAD_US: f64 = 50_000.0;
/// Maximum number of extra messages for jobs that wait for memory: as many as the backlog's search looks at.
const STUCK_MAX: f64 = 32.0;
/// Number of values in a mean: enough that one long job among tiny ones has little effect.
const MEMORY: u32 = 32;
/// Number of messages after which a large one has decayed to about a third of its size.
const LARGE_MEMORY: f64 = 256.0;
/// Maximum factor by which the prefetch grows in one step, so that a few short jobs do not raise it to its maximum.
const GROWTH_MAX: u16 = 8;
/// Time for which a smaller prefetch must have been enough before the prefetch shrinks, in microseconds.
const PATIENCE_US: u64 = 1_000_000;

impl Prefetch {
    /// Creates the prefetch of this many queues on a worker with this many slots.
    pub fn new(limits: PrefetchLimits, queues: usize, slots: u32) -> Self {
        let bytes = limits.message_bytes_max as f64;
        let unknown =
            || Queue { prefetch: 1, jobs: Mean::default(), job_us: Mean::default(), bytes, less_since_us: None };
        let mut prefetch = Self { limits, queues: std::iter::repeat_with(unknown).take(queues).collect() };
        let idle = QueueLoad { open: slots, ..QueueLoad::default() };
        let targets = prefetch.targets(slots, &vec![idle; queues]);
        prefetch.queues.iter_mut().zip(targets).for_each(|(queue, target)| queue.prefetch = target.messages);
        prefetch
    }

    /// Returns the current prefetch of a queue.
    pub fn of(&self, queue: usize) -> u16 {
        self.queues[queue].prefetch
    }

    /// Records the number of jobs and bytes of a message.
    pub fn message(&mut self, queue: usize, jobs: usize, bytes: u64) {
        let queue = &mut self.queues[queue];
        queue.bytes = match queue.jobs.count {
            0 => bytes as f64,
            _ => (bytes as f64).max(queue.bytes - queue.bytes / LARGE_MEMORY),
        };
        queue.jobs.add(jobs.max(1) as f64);
    }

    /// Records how long a job occupied its slot, in microseconds.
    pub fn job(&mut self, queue: usize, held_us: u64) {
        self.queues[queue].job_us.add(held_us.max(1) as f64);
    }

    /// Returns the queues whose prefetch changes, with the new prefetch. `now_us` is a monotonic time, and `slots` is the number of jobs
    /// that can run at once on this worker.
    pub fn decide(&mut self, now_us: u64, slots: u32, loads: &[QueueLoad]) -> Vec<(usize, u16)> {
        let targets = self.targets(slots, loads);
        let queues = self.queues.iter_mut().zip(loads).zip(targets).enumerate();
        queues.filter_map(|(index, ((queue, load), target))| Some((index, queue.step(now_us, load, target)?))).collect()
    }

    fn targets(&self, slots: u32, loads: &[QueueLoad]) -> Vec<Target> {
        let active = loads.iter().filter(|load| load.messages > 0).count().max(1) as f64;
        let max = f64::from(self.limits.messages_max.max(1));
        let wanted = self.queues.iter().zip(loads).map(|(queue, load)| queue.wanted(slots, active, load).min(max));
        let wanted: Vec<f64> = wanted.collect();
        // A queue may send its whole prefetch, even if it no longer needs that much.
        let held = self.queues.iter().zip(&wanted).map(|(queue, wanted)| wanted.max(f64::from(queue.prefetch)));
        let sizes: Vec<f64> = self.queues.iter().map(|queue| queue.bytes.max(1.0)).collect();
        let idle: Vec<bool> = loads.iter().map(|load| load.messages == 0).collect();
        let shares = share_out(self.limits.bytes_max as f64, &held.collect::<Vec<_>>(), &sizes, &idle);
        let target = |(wanted, most): (f64, f64)| Target {
            messages: wanted.min(most).max(1.0) as u16,
            most: most as u16,
            is_cut: most < wanted,
        };
        wanted.into_iter().zip(shares).map(target).collect()
    }
}

/// Returns whether the worker holds so many more messages of a queue than its prefetch that unstarted jobs should be requeued.
pub fn is_hoard(messages: u32, prefetch: u16) -> bool {
    messages > 2 * u32::from(prefetch)
}

/// The target for the prefetch of a queue.
#[derive(Debug, Clone, Copy)]
struct Target {
    messages: u16,
    /// The maximum, given the size of its messages.
    most: u16,
    /// Whether that maximum determines the target.
    is_cut: bool,
}

impl Queue {
    /// Returns the number of messages needed, regardless of their size.
    fn wanted(&self, slots: u32, active: f64, load: &QueueLoad) -> f64 {
        let jobs = self.jobs.value.max(1.0);
        let busy = f64::from(load.running + load.open) / jobs;
        // Twice the number, so that as many others can arrive, which may fit.
        let stuck = (2.0 * f64::from(load.stuck) / jobs).min(STUCK_MAX);
        let ahead = self.job_us(load).map_or(1.0, |us| f64::from(slots) * AHEAD_US / (us * jobs) / active);
        busy.ceil() + ahead.ceil() + stuck.ceil() + f64::from(load.settling)
    }

    /// Returns the run time of a job in microseconds. Running jobs count as if they ended now, if that raises the mean.
    fn job_us(&self, load: &QueueLoad) -> Option<f64> {
        let mean = self.job_us;
        if load.running == 0 {
            return (mean.count > 0).then_some(mean.value);
        }
        let so_far = load.running_us as f64 / f64::from(load.running);
        let weight = f64::from(load.running) / f64::from(mean.count.clamp(load.running, MEMORY.max(load.running)));
        (mean.count > 0).then(|| mean.value + (so_far - mean.value).max(0.0) * weight)
    }

    fn step(&mut self, now_us: u64, load: &QueueLoad, target: Target) -> Option<u16> {
        let prefetch = self.prefetch;
        if prefetch > target.most {
            return Some(self.shrink(target, load));
        }
        let more = self.more(target, load);
        if more >= prefetch.saturating_add((prefetch / 4).max(1)) {
            self.less_since_us = None;
            let is_used_up = load.messages_peak.saturating_add((prefetch / 4).into()) >= prefetch.into();
            return is_used_up.then(|| self.set(more));
        }
        if target.messages.saturating_add((prefetch / 3).max(2)) > prefetch {
            self.less_since_us = None;
            return None;
        }
        let since = *self.less_since_us.get_or_insert(now_us);
        (now_us.saturating_sub(since) >= PATIENCE_US).then(|| self.shrink(target, load))
    }

    /// Returns the next step up. Messages of the old subscription add to those of the new one, so for a moment the worker has a few jobs
    /// more than intended. Only the limit on bytes takes them into account.
    fn more(&self, target: Target, load: &QueueLoad) -> u16 {
        let lies_here = u16::try_from(load.messages).unwrap_or(u16::MAX);
        let missing = target.messages.saturating_sub(lies_here);
        let room = self.prefetch.saturating_add(missing);
        let within_bytes = if target.is_cut { missing } else { u16::MAX };
        target.messages.min(self.prefetch.saturating_mul(GROWTH_MAX)).min(room).min(within_bytes)
    }

    /// Shrinks the prefetch by the number of running jobs below the target, because the messages of the new subscription add to them.
    fn shrink(&mut self, target: Target, load: &QueueLoad) -> u16 {
        self.set(target.messages.saturating_sub(load.running.try_into().unwrap_or(u16::MAX)).max(1))
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
