//! Reports this process's device memory to the supervisor.
//!
//! The supervisor admits jobs by its accounts, so it must always know an upper bound of the memory that this process holds in addition to
//! what its jobs declared. This process reports an increase before the job that caused it ends, and reports again when no job runs any
//! more.

use std::{
    any::Any,
    sync::{Mutex, MutexGuard},
};

use super::{arena::Arena, device::Device, error::CudaError, program::Shelf, upstream::Upstream, waits::Waits};
use crate::ipc::{FromExecutor, frame::FrameError, message::MemoryReport};

/// All device memory of this process.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub arena: Arena,
    pub shelf: Shelf,
    /// Locked while a report is made (including the driver query) and sent, so that reports are sent in order.
    reporting: Mutex<()>,
    last: Mutex<LastReport>,
}

/// The last report. The local memory is not in it: the supervisor sees it only as less free memory.
#[derive(Debug, Clone, Copy, Default)]
struct LastReport {
    report: MemoryReport,
    local: u64,
}

impl DeviceMemory {
    pub(crate) fn new(arena: Arena) -> Self {
        Self { arena, shelf: Shelf::default(), reporting: Mutex::default(), last: Mutex::default() }
    }

    /// Returns the report for the start of the process.
    pub(crate) fn first_report(&self) -> Result<MemoryReport, CudaError> {
        Ok(MemoryReport { free: Device::free_bytes()?, ..self.last().report })
    }

    /// Sends a report if one is due. Calls `may_wait` before the driver query.
    pub(crate) fn report_change(&self, upstream: &Upstream, may_wait: impl FnOnce()) -> Result<(), ReportError> {
        self.report_evictions(upstream)?;
        if !self.has_changed() {
            return Ok(());
        }
        may_wait();
        let _reporting = self.reporting();
        // Another thread may have sent it in the meantime.
        self.send_changes(upstream)
    }

    /// Answers the supervisor's request for a report.
    pub(crate) fn answer(&self, upstream: &Upstream) -> Result<(), ReportError> {
        self.report_evictions(upstream)?;
        let _reporting = self.reporting();
        self.send(upstream)?;
        self.send_changes(upstream)
    }

    fn report_evictions(&self, upstream: &Upstream) -> Result<(), FrameError> {
        for input in self.arena.take_evicted_inputs() {
            let evicted = FromExecutor::Input { input, bytes: 0, is_resident: false };
            upstream.say(&evicted)?;
        }
        Ok(())
    }

    /// Frees all memory that no job uses.
    pub(crate) fn give_back(&self) -> Result<(), CudaError> {
        self.shelf.unload_idle();
        self.arena.give_back()
    }

    fn has_changed(&self) -> bool {
        let LastReport { report: then, local } = self.last();
        let (usage, now) = (self.arena.usage(), self.now());
        let is_idle = usage.is_idle;
        usage.local > local
            || now.cached > then.cached
            || now.held > then.held
            || is_idle && (now.cached, now.held) != (then.cached, then.held)
    }

    /// Returns a report from the accounts, with the free memory of the last driver query.
    fn now(&self) -> MemoryReport {
        let usage = self.arena.usage();
        MemoryReport {
            held: usage.held + self.shelf.loaded_bytes(),
            cached: usage.cached + self.shelf.idle_bytes(),
            free: self.last().report.free,
        }
    }

    /// Returns a report with a new driver query. Accounts and driver can't be read at the same moment. Memory that changes hands in between
    /// counts as unavailable, because the supervisor admits jobs by this report.
    fn read(&self) -> Result<MemoryReport, CudaError> {
        let before = self.now();
        let free = Device::free_bytes()?;
        let after = self.now();
        // The driver still reports local memory as free that kernels will take at their launch.
        let free = free.saturating_sub(self.arena.usage().local_to_come);
        Ok(MemoryReport { held: after.held.min(before.held), free, ..after })
    }

    /// Sends reports until the last one is up to date. A job that ends while a report is being sent may compare its state with the report
    /// before and find nothing to report, so each round covers the changes during the previous one.
    fn send_changes(&self, upstream: &Upstream) -> Result<(), ReportError> {
        while self.has_changed() {
            self.send(upstream)?;
        }
        Ok(())
    }

    fn send(&self, upstream: &Upstream) -> Result<(), ReportError> {
        let local = self.arena.usage().local;
        let now = self.read()?;
        upstream.say(&FromExecutor::Memory(now))?;
        // Set this after sending, because a job that finds no change answers at once.
        *self.last.lock().expect("no thread panics while holding it") = LastReport { report: now, local };
        Ok(())
    }

    fn reporting(&self) -> MutexGuard<'_, ()> {
        self.reporting.lock().expect("no thread panics while reporting")
    }

    fn last(&self) -> LastReport {
        *self.last.lock().expect("no thread panics while holding it")
    }
}

/// Why a report could not be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("{0}")]
    Cuda(CudaError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<CudaError> for ReportError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// A request of the supervisor that is handled between jobs.
#[derive(Debug)]
pub(crate) enum Chore {
    GiveBack,
    Measure,
    /// Drop a program or a segment that no job will use again.
    Drop(Box<dyn Any + Send>),
}

impl Chore {
    /// Handles the request. This happens on a thread of its own, because freeing, unloading and unpinning may wait for a kernel.
    pub(crate) fn run(self, memory: &DeviceMemory, waits: &Waits, upstream: &Upstream) -> Result<(), ReportError> {
        match self {
            Self::GiveBack => waits.between_jobs(|| memory.give_back())?,
            Self::Measure => {}
            Self::Drop(forgotten) => {
                waits.between_jobs(|| drop(forgotten));
                return Ok(());
            }
        }
        memory.answer(upstream)
    }
}
