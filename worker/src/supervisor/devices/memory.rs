//! Combines the memory reports of a device's executors for the scheduler.
//!
//! Each executor reports the memory that it holds and the memory that the driver reports as free. The scheduler needs the memory that all
//! jobs together can use: the sum of what all executors hold and what is free. That excludes contexts, including those of spares, and other
//! processes.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use crate::{
    executor::{Executor, MemoryReport},
    scheduler::{Change, DeviceId, ExecutorId},
    shared_state::{Locked, SharedState},
    supervisor::handle::DispatcherHandle,
};

/// The memory of one device.
#[derive(Debug)]
pub(super) struct MemoryReports {
    device: DeviceId,
    slots: u32,
    /// The device's total memory, in bytes.
    total: u64,
    /// The number of contexts with a heap, one for each executor.
    contexts: u64,
    /// The free memory that these heaps will take once kernels use them, in bytes. Known once the first context exists.
    heaps: OnceLock<u64>,
    dispatcher: Arc<DispatcherHandle>,
    said: SharedState<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// The memory that each executor and each session holds in bytes, by process id.
    held: HashMap<u32, u64>,
    /// The available memory last sent to the scheduler, in bytes.
    available: Option<u64>,
}

impl MemoryReports {
    pub(super) fn new(
        device: DeviceId,
        slots: u32,
        total: u64,
        contexts: u64,
        dispatcher: Arc<DispatcherHandle>,
    ) -> Arc<Self> {
        dispatcher.tell_devices(Change::Device { device, slots, bytes: total });
        let (heaps, said) = (OnceLock::new(), SharedState::default());
        Arc::new(Self { device, slots, total, contexts, heaps, dispatcher, said })
    }

    /// Sets the heap size of a context, in bytes.
    pub(super) fn learn_heap(&self, bytes: u64) {
        let mut said = self.said();
        if self.heaps.set(bytes.saturating_mul(self.contexts)).is_ok() {
            // The next report updates the available memory.
            said.available = None;
            self.dispatcher.tell_devices(Change::Device {
                device: self.device,
                slots: self.slots,
                bytes: self.bytes(),
            });
        }
    }

    /// Returns the memory for jobs if no other process uses the device, in bytes.
    fn bytes(&self) -> u64 {
        self.total.saturating_sub(self.reserved())
    }

    fn reserved(&self) -> u64 {
        self.heaps.get().copied().unwrap_or(0)
    }

    /// Starts to use the reports of a process, as those of the executor `id`; a spare executor has no pool yet.
    pub(super) fn listen_to(self: &Arc<Self>, process: &Executor, id: Option<ExecutorId>) {
        let (memory, pid) = (Arc::clone(self), process.pid());
        process.watch_memory(move |report| memory.hear(pid, id, report));
        if let Some(executor) = id {
            let dispatcher = Arc::clone(&self.dispatcher);
            process.watch_inputs(move |input, is_resident| {
                dispatcher.tell_devices(Change::Input { executor, input, is_resident });
            });
        }
    }

    /// Removes an executor that has ended. The other executors will report the memory that is now free.
    pub(super) fn forget(&self, executor: &Executor) {
        self.said().held.remove(&executor.pid());
    }

    /// Takes note that a session holds memory, so that it does not count as another process's. The next report of an executor has the free
    /// memory that goes with it.
    pub(super) fn session_holds(&self, gate: u32, bytes: u64) {
        self.said().held.insert(gate, bytes);
    }

    /// Removes a session that has ended.
    pub(super) fn forget_session(&self, gate: u32) {
        self.said().held.remove(&gate);
    }

    /// Returns whether another running executor may hold the memory that a new one needs to start.
    pub(super) fn is_in_use(&self) -> bool {
        !self.said().held.is_empty()
    }

    /// Applies a report. The scheduler is updated under the lock, so that it gets the reports in order.
    fn hear(&self, pid: u32, id: Option<ExecutorId>, report: MemoryReport) {
        let device = self.device;
        let mut said = self.said();
        said.held.insert(pid, report.held);
        if let Some(executor) = id {
            self.dispatcher.tell_devices(Change::Cached { executor, bytes: report.cached });
        }
        let bytes = room(&said.held, report.free, self.reserved()).min(self.bytes());
        if said.available.replace(bytes) != Some(bytes) {
            self.dispatcher.tell_devices(Change::Available { device, bytes });
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
    use super::*;
    use crate::{
        scheduler::PoolId,
        supervisor::handle::{Input, Mail},
    };

    const GIB: u64 = 1 << 30;

    #[test]
    fn room_is_the_memory_of_our_executors_plus_free_memory() {
        let mut held = HashMap::from([(1, 0), (2, 0)]);
        // The device has 16 GiB. Two contexts and a spare one take 1 GiB, another process 5 GiB.
        assert_eq!(room(&held, 10 * GIB, 0), 10 * GIB);
        held.insert(1, 4 * GIB);
        assert_eq!(room(&held, 6 * GIB, 0), 10 * GIB, "what an executor took is still there for jobs");
        held.insert(2, GIB);
        assert_eq!(room(&held, 10 * GIB, 0), 15 * GIB, "the other process has gone");
        assert_eq!(room(&held, 0, 6 * GIB), 0);
    }

    #[tokio::test]
    async fn the_scheduler_learns_what_other_processes_leave_for_jobs() {
        let device = DeviceId(0);
        let executor = ExecutorId { device, pool: PoolId(0), index: 1 };
        let (dispatcher, mut mail) = DispatcherHandle::new(tokio::runtime::Handle::current());
        let memory = MemoryReports::new(device, 4, 17 * GIB, 1, dispatcher);
        memory.learn_heap(GIB);
        assert!(!memory.is_in_use());
        memory.hear(1, Some(executor), MemoryReport { held: 0, cached: 0, free: 9 * GIB });
        assert!(memory.is_in_use());
        memory.hear(2, None, MemoryReport { held: 0, cached: 0, free: 8 * GIB });
        memory.hear(1, Some(executor), MemoryReport { held: GIB, cached: 2, free: 7 * GIB });
        let mut told = Vec::new();
        while let Ok(Mail::Input(Input::Devices(event))) = mail.try_recv() {
            told.push(event);
        }
        let expected = [
            Change::Device { device, slots: 4, bytes: 17 * GIB },
            Change::Device { device, slots: 4, bytes: 16 * GIB },
            Change::Cached { executor, bytes: 0 },
            Change::Available { device, bytes: 8 * GIB },
            Change::Available { device, bytes: 7 * GIB },
            Change::Cached { executor, bytes: 2 },
        ];
        assert_eq!(told, expected, "an executor's memory is available for jobs");
    }
}
