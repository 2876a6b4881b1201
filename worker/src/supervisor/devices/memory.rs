//! A device's memory as its executors tell of it, put together for the scheduler.
//!
//! Each executor says what it has and what the driver calls free; the scheduler wants to know what all jobs together can have. That is
//! what the executors have and what nobody has: contexts, spare ones included, and other processes are in neither.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use crate::{
    executor::{Executor, MemoryReport},
    scheduler::{DeviceId, Event, PoolId},
    shared_state::{Locked, SharedState},
    supervisor::admission::Admission,
};

/// Of one device.
#[derive(Debug)]
pub(super) struct Memory {
    device: DeviceId,
    places: u32,
    /// All that the device has.
    total: u64,
    /// How many contexts have a heap.
    pools: u64,
    /// What these heaps take out of what is free once kernels use them. Known with the first context.
    heaps: OnceLock<u64>,
    admission: Arc<Admission>,
    said: SharedState<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// What executors have, by process.
    held: HashMap<u32, u64>,
    /// What the scheduler was told that there is.
    available: Option<u64>,
}

impl Memory {
    pub(super) fn new(device: DeviceId, places: u32, total: u64, pools: usize, admission: Arc<Admission>) -> Arc<Self> {
        admission.tell(Event::Device { device, places, bytes: total });
        let (heaps, said) = (OnceLock::new(), SharedState::default());
        Arc::new(Self { device, places, total, pools: pools as u64, heaps, admission, said })
    }

    /// A context is there, with a heap of this size.
    pub(super) fn learn_heap(&self, bytes: u64) {
        let mut said = self.said();
        if self.heaps.set(bytes.saturating_mul(self.pools)).is_ok() {
            // The next report says anew what of that is there.
            said.available = None;
            self.admission.tell(Event::Device { device: self.device, places: self.places, bytes: self.bytes() });
        }
    }

    /// What jobs can have if nobody else is there.
    fn bytes(&self) -> u64 {
        self.total.saturating_sub(self.reserved())
    }

    fn reserved(&self) -> u64 {
        self.heaps.get().copied().unwrap_or(0)
    }

    /// From now on the executor's words count, as those of the pool's; a spare one has none yet.
    pub(super) fn listen_to(self: &Arc<Self>, executor: &Executor, pool: Option<PoolId>) {
        let (memory, pid) = (Arc::clone(self), executor.pid());
        executor.watch_memory(move |report| memory.hear(pid, pool, report));
    }

    /// An executor has ended. What is free now, the others will say.
    pub(super) fn forget(&self, executor: &Executor) {
        self.said().held.remove(&executor.pid());
    }

    /// Whether an executor lives here that may have the memory for which another can't start.
    pub(super) fn is_in_use(&self) -> bool {
        !self.said().held.is_empty()
    }

    /// The scheduler is told under the lock, so that the last word of all executors is also the last that it hears.
    fn hear(&self, pid: u32, pool: Option<PoolId>, report: MemoryReport) {
        let device = self.device;
        let mut said = self.said();
        said.held.insert(pid, report.held);
        if let Some(pool) = pool {
            self.admission.tell(Event::Kept { device, pool, bytes: report.kept });
        }
        let bytes = room(&said.held, report.free, self.reserved()).min(self.bytes());
        if said.available.replace(bytes) != Some(bytes) {
            self.admission.tell(Event::Available { device, bytes });
        }
    }

    fn said(&self) -> Locked<'_, Said> {
        self.said.lock()
    }
}

fn room(held: &HashMap<u32, u64>, free: u64, reserved: u64) -> u64 {
    held.values().fold(free, |sum, bytes| sum.saturating_add(*bytes)).saturating_sub(reserved)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Priority;

    use super::*;
    use crate::scheduler::{Allowed, Demand, Promise};

    const GIB: u64 = 1 << 30;

    #[test]
    fn room_is_what_our_executors_have_and_what_nobody_has() {
        let mut held = HashMap::from([(1, 0), (2, 0)]);
        // Of 16 GiB, two contexts and a spare one have 1 GiB, another process 5 GiB.
        assert_eq!(room(&held, 10 * GIB, 0), 10 * GIB);
        held.insert(1, 4 * GIB);
        assert_eq!(room(&held, 6 * GIB, 0), 10 * GIB, "what an executor took is still there for jobs");
        held.insert(2, GIB);
        assert_eq!(room(&held, 10 * GIB, 0), 15 * GIB, "the other process has gone");
        assert_eq!(room(&held, 0, 6 * GIB), 0);
    }

    /// Waits for a place for this many bytes.
    fn demand(bytes: u64) -> Demand {
        Demand {
            pool: PoolId(0),
            priority: Priority::Normal,
            bytes,
            alone: false,
            prints: false,
            allowed: Allowed::ALL,
            returnable: false,
        }
    }

    #[tokio::test]
    async fn a_job_waits_while_another_process_has_the_memory_and_starts_when_it_has_gone() {
        let (device, pool) = (DeviceId(0), PoolId(0));
        let admission = Admission::new(&[Promise::default()]);
        let memory = Memory::new(device, 4, 17 * GIB, 1, Arc::clone(&admission));
        memory.learn_heap(GIB);
        admission.tell(Event::ExecutorUp(device, pool));
        assert!(!memory.is_in_use());
        memory.hear(1, Some(pool), MemoryReport { held: 0, kept: 0, free: 9 * GIB });
        assert!(memory.is_in_use());
        memory.hear(2, None, MemoryReport { held: 0, kept: 0, free: 8 * GIB });
        // A job runs: there are 7 GiB for it and others.
        let (_running, _) = admission.admit(demand(GIB)).await.unwrap();
        memory.hear(1, Some(pool), MemoryReport { held: GIB, kept: 0, free: 7 * GIB });
        let (fits, _) = admission.admit(demand(6 * GIB)).await.unwrap();
        drop(fits);
        let mut waits = std::pin::pin!(admission.admit(demand(7 * GIB)));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        memory.hear(1, Some(pool), MemoryReport { held: GIB, kept: 0, free: 13 * GIB });
        let (permit, _) = waits.await.unwrap();
        assert_eq!(permit.kept_max, 5 * GIB);
    }
}
