//! Reports this process's device memory to the supervisor.
//!
//! The supervisor admits jobs by its accounts, so it must always know the most memory that this process may hold beyond what its jobs
//! declared. This process reports an increase before the job that caused it ends, and reports again when no job runs any more.

use std::{
    any::Any,
    os::unix::net::UnixStream,
    sync::{Mutex, MutexGuard},
};

use super::{arena::Arena, device::Device, error::CudaError, program::Shelf, waits::Waits};
use crate::ipc::{
    FromExecutor,
    frame::{self, FrameError},
    message::MemoryReport,
};

/// All device memory of this process.
#[derive(Debug)]
pub(crate) struct Memory {
    pub arena: Arena,
    pub shelf: Shelf,
    /// Locked while a report is made and sent, including the driver query, so that reports leave in order.
    telling: Mutex<()>,
    told: Mutex<Told>,
}

/// The last report, and the local memory, which the supervisor sees only as less free memory.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    report: MemoryReport,
    local: u64,
}

impl Memory {
    pub(crate) fn new(arena: Arena) -> Self {
        Self { arena, shelf: Shelf::default(), telling: Mutex::default(), told: Mutex::default() }
    }

    /// The report at the start.
    pub(crate) fn first_report(&self) -> Result<MemoryReport, CudaError> {
        Ok(MemoryReport { free: Device::free_bytes()?, ..self.told().report })
    }

    /// Sends a report if one is due; calls `may_wait` before the driver query.
    pub(crate) fn tell(&self, outgoing: &Mutex<UnixStream>, may_wait: impl FnOnce()) -> Result<(), TellError> {
        if !self.has_news() {
            return Ok(());
        }
        may_wait();
        let _telling = self.telling();
        // Another thread may have reported it in the meantime.
        self.say_news(outgoing)
    }

    /// Answers the supervisor's request for a report.
    pub(crate) fn answer(&self, outgoing: &Mutex<UnixStream>) -> Result<(), TellError> {
        let _telling = self.telling();
        self.say(outgoing)?;
        self.say_news(outgoing)
    }

    /// Frees all memory that no job uses.
    pub(crate) fn give_back(&self) -> Result<(), CudaError> {
        self.shelf.unload_idle();
        self.arena.give_back()
    }

    fn has_news(&self) -> bool {
        let Told { report: then, local } = self.told();
        let (usage, now) = (self.arena.usage(), self.now());
        let is_idle = usage.is_idle;
        usage.local > local
            || now.kept > then.kept
            || now.held > then.held
            || is_idle && (now.kept, now.held) != (then.kept, then.held)
    }

    /// The report by the accounts, with the last free memory from the driver.
    fn now(&self) -> MemoryReport {
        let usage = self.arena.usage();
        MemoryReport {
            held: usage.held + self.shelf.loaded_bytes(),
            kept: usage.kept + self.shelf.idle_bytes(),
            free: self.told().report.free,
        }
    }

    /// The accounts and the driver are not read at the same moment. Memory that changes in between counts as unavailable, because the
    /// supervisor admits jobs by this report.
    fn read(&self) -> Result<MemoryReport, CudaError> {
        let before = self.now();
        let free = Device::free_bytes()?;
        let after = self.now();
        // Subtracts the local memory that kernels take at their launch.
        let free = free.saturating_sub(self.arena.usage().local_to_come);
        Ok(MemoryReport { held: after.held.min(before.held), free, ..after })
    }

    /// Repeats until the last report is up to date: a job that ends while a report is being sent compares with the one before and may find
    /// nothing to report. Each round covers the changes during the previous one.
    fn say_news(&self, outgoing: &Mutex<UnixStream>) -> Result<(), TellError> {
        while self.has_news() {
            self.say(outgoing)?;
        }
        Ok(())
    }

    fn say(&self, outgoing: &Mutex<UnixStream>) -> Result<(), TellError> {
        let local = self.arena.usage().local;
        let now = self.read()?;
        frame::write(&outgoing.lock().expect("no thread panics while holding the socket"), &FromExecutor::Memory(now))?;
        // Set after sending, because a job that finds no change answers at once.
        *self.told.lock().expect("no thread panics while holding it") = Told { report: now, local };
        Ok(())
    }

    fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().expect("no thread panics while telling")
    }

    fn told(&self) -> Told {
        *self.told.lock().expect("no thread panics while holding it")
    }
}

/// Why a report was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TellError {
    #[error("{0}")]
    Cuda(CudaError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<CudaError> for TellError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// A request of the supervisor between jobs.
#[derive(Debug)]
pub(crate) enum Chore {
    GiveBack,
    Measure,
    /// A program or a segment that no job will use again.
    Drop(Box<dyn Any + Send>),
}

impl Chore {
    /// Runs on a thread of its own, because freeing, unloading and unpinning may wait for a kernel.
    pub(crate) fn run(self, memory: &Memory, waits: &Waits, outgoing: &Mutex<UnixStream>) -> Result<(), TellError> {
        match self {
            Self::GiveBack => waits.between_jobs(|| memory.give_back())?,
            Self::Measure => {}
            Self::Drop(forgotten) => {
                waits.between_jobs(|| drop(forgotten));
                return Ok(());
            }
        }
        memory.answer(outgoing)
    }
}
