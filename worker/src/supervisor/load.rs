//! Counts the messages and running jobs of each queue, and adjusts the prefetch of the queues to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use gpufleet_schema::{Priority, bounds::MESSAGE_BYTES_MAX};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Supervisor, clock::micros, intake::TaskQueue};
use crate::{
    config::Config,
    scheduler::{
        PoolId,
        prefetch::{Prefetch, PrefetchLimits, QueueLoad},
    },
    shared_state::{Locked, SharedState},
};

/// Counts unsettled messages, and the slots that their jobs occupy.
#[derive(Debug)]
pub(super) struct Load {
    began: Instant,
    /// One entry per queue, in the order of [`Inner::queues`].
    served: Vec<Served>,
    inner: SharedState<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    prefetch: Prefetch,
    queues: Vec<Tally>,
}

/// The pool and priority of a queue.
#[derive(Debug, Clone, Copy)]
struct Served {
    pool: PoolId,
    priority: Priority,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    messages: u32,
    messages_peak: u32,
    settling: u32,
    running: u32,
    /// The sum of the start times of the running jobs.
    started_us: u64,
}

/// Counts a message of a queue as unsettled until dropped.
#[derive(Debug)]
pub(super) struct PrefetchCredit {
    load: Arc<Load>,
    queue: usize,
    /// Set when its jobs have ended.
    settles: AtomicBool,
}

/// Counts a job as running in a slot until dropped.
#[derive(Debug)]
pub(super) struct SlotUse<'a> {
    credit: &'a PrefetchCredit,
    started_us: u64,
}

/// The shortest time between two adjustments, because a subscription takes a few milliseconds to change.
const PACE: Duration = Duration::from_millis(10);
/// The longest time between two adjustments: the run time of long jobs changes the prefetch even if no message comes.
const TICK: Duration = Duration::from_millis(250);

impl Load {
    pub(super) fn new(config: &Config, queues: &[TaskQueue], places: u32) -> Arc<Self> {
        let limits = PrefetchLimits {
            messages_max: config.prefetch,
            bytes_max: config.prefetch_bytes,
            message_bytes_max: MESSAGE_BYTES_MAX as u64,
        };
        let served: Vec<_> = queues.iter().map(|queue| Served { pool: queue.id, priority: queue.priority }).collect();
        let queues = served.len();
        let inner = Inner { prefetch: Prefetch::new(limits, queues, places), queues: vec![Tally::default(); queues] };
        Arc::new(Self { began: Instant::now(), served, inner: SharedState::new(inner), changed: Notify::new() })
    }

    /// Counts a message that was delivered from the queue.
    pub(super) fn take_credit(self: &Arc<Self>, queue: &TaskQueue) -> PrefetchCredit {
        let index = queue.index;
        let tally = &mut self.lock().queues[index];
        tally.messages += 1;
        tally.messages_peak = tally.messages_peak.max(tally.messages);
        self.changed.notify_one();
        PrefetchCredit { load: Arc::clone(self), queue: index, settles: AtomicBool::new(false) }
    }

    /// The current prefetch of the queue.
    pub(super) fn prefetch(&self, queue: &TaskQueue) -> u16 {
        self.lock().prefetch.of(queue.index)
    }

    pub(super) fn messages(&self, queue: &TaskQueue) -> u32 {
        self.lock().queues[queue.index].messages
    }

    /// Unsettled messages of all queues of a pool.
    pub(super) fn messages_of(&self, pool: PoolId) -> u32 {
        let inner = self.lock();
        let of_pool = self.served.iter().zip(&inner.queues).filter(|(served, _)| served.pool == pool);
        of_pool.map(|(_, tally)| tally.messages).sum()
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    fn lock(&self) -> Locked<'_, Inner> {
        self.inner.lock()
    }
}

impl PrefetchCredit {
    /// Records how many jobs and bytes the message carries.
    pub(super) fn decoded(&self, jobs: usize, bytes: usize) {
        self.load.lock().prefetch.message(self.queue, jobs, bytes as u64);
    }

    /// Records that the jobs of the message have ended. The message then waits only for its confirms and is no longer work.
    pub(super) fn settles(&self) {
        if !self.settles.swap(true, Ordering::Relaxed) {
            self.load.lock().queues[self.queue].settling += 1;
        }
    }

    /// Records that one of its jobs starts in a slot.
    pub(super) fn runs(&self) -> SlotUse<'_> {
        let started_us = self.load.now_us();
        let tally = &mut self.load.lock().queues[self.queue];
        tally.running += 1;
        tally.started_us += started_us;
        SlotUse { credit: self, started_us }
    }
}

impl Drop for PrefetchCredit {
    fn drop(&mut self) {
        let tally = &mut self.load.lock().queues[self.queue];
        tally.messages -= 1;
        tally.settling -= u32::from(*self.settles.get_mut());
        self.load.changed.notify_one();
    }
}

impl Drop for SlotUse<'_> {
    fn drop(&mut self) {
        let PrefetchCredit { load, queue, .. } = self.credit;
        let now_us = load.now_us();
        let mut inner = load.lock();
        let tally = &mut inner.queues[*queue];
        tally.running -= 1;
        tally.started_us -= self.started_us;
        inner.prefetch.job(*queue, now_us.saturating_sub(self.started_us));
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

impl Supervisor {
    /// Sends each intake, in the order of the queues, its new prefetch when that changes.
    pub(super) async fn follow_load(self: Arc<Self>, intakes: Vec<watch::Sender<u16>>, stop: CancellationToken) {
        let following = async {
            loop {
                // The tick is the normal timeout.
                let _changed_or_tick = timeout(TICK, self.load.changed.notified()).await;
                for (queue, prefetch) in self.decide_prefetch() {
                    debug!(queue, prefetch, "prefetch changed");
                    intakes[queue].send_replace(prefetch);
                }
                sleep(PACE).await;
            }
        };
        // When the senders are dropped, the intakes keep their last prefetch.
        stop.run_until_cancelled(following).await;
    }

    fn decide_prefetch(&self) -> Vec<(usize, u16)> {
        let (places, rooms) = (self.admission.places(), self.admission.rooms());
        let now_us = self.load.now_us();
        let mut inner = self.load.lock();
        let loads = inner.queues.iter_mut().zip(&self.load.served).map(|(tally, served)| {
            let room = rooms[served.room()];
            let load = tally.load(now_us);
            tally.messages_peak = tally.messages;
            QueueLoad { open: room.open, stuck: room.stuck, ..load }
        });
        let loads: Vec<QueueLoad> = loads.collect();
        inner.prefetch.decide(now_us, places, &loads)
    }
}

impl Served {
    /// The index among the scheduler's rooms, which are ordered by pool and then by priority.
    fn room(self) -> usize {
        let priority = Priority::ALL.iter().position(|of_all| *of_all == self.priority);
        self.pool.0 as usize * Priority::ALL.len() + priority.expect("all priorities are in the list")
    }
}
