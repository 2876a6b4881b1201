//! What this process has of the device's memory, told to the supervisor.
//!
//! The supervisor admits jobs by its books, so it has to know at any time the most that this process may have beyond what its jobs
//! declared: it is told when that grows, before the job ends that left it behind, and when nothing runs any more.

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

/// Device memory in all its forms.
#[derive(Debug)]
pub(crate) struct Memory {
    pub arena: Arena,
    pub shelf: Shelf,
    /// Held by who tells, so that reports leave in the order in which they were true. The driver is asked meanwhile.
    telling: Mutex<()>,
    told: Mutex<Told>,
}

/// The last word, and what of it the supervisor sees only by what is free.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    report: MemoryReport,
    local: u64,
}

impl Memory {
    pub(crate) fn new(arena: Arena) -> Self {
        Self { arena, shelf: Shelf::default(), telling: Mutex::default(), told: Mutex::default() }
    }

    /// What is told at the start.
    pub(crate) fn first_report(&self) -> Result<MemoryReport, CudaError> {
        Ok(MemoryReport { free: Device::free_bytes()?, ..self.told().report })
    }

    /// Tells the supervisor if it has to know; `may_wait` comes before the driver is asked for it.
    pub(crate) fn tell(&self, outgoing: &Mutex<UnixStream>, may_wait: impl FnOnce()) -> Result<(), TellError> {
        if !self.has_news() {
            return Ok(());
        }
        may_wait();
        let _telling = self.telling();
        // Another may have told it meanwhile.
        self.say_news(outgoing)
    }

    /// Tells the supervisor, who asked.
    pub(crate) fn answer(&self, outgoing: &Mutex<UnixStream>) -> Result<(), TellError> {
        let _telling = self.telling();
        self.say(outgoing)?;
        self.say_news(outgoing)
    }

    /// Gives back all that no job has.
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

    /// By the books: what is free is the driver's to say.
    fn now(&self) -> MemoryReport {
        let usage = self.arena.usage();
        MemoryReport {
            held: usage.held + self.shelf.loaded_bytes(),
            kept: usage.kept + self.shelf.idle_bytes(),
            free: self.told().report.free,
        }
    }

    /// Books and driver are not read at one moment. What comes or goes meanwhile counts as not there, since jobs are admitted by what is.
    fn read(&self) -> Result<MemoryReport, CudaError> {
        let before = self.now();
        let free = Device::free_bytes()?;
        let after = self.now();
        // Also what kernels take only at their launch.
        let free = free.saturating_sub(self.arena.usage().local_to_come);
        Ok(MemoryReport { held: after.held.min(before.held), free, ..after })
    }

    /// Until the last word is true: who ends while it is on its way compares with the one before, and may find nothing to tell. Each round
    /// is for what has changed during the one before.
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
        // Not before it has left: a job that finds nothing left to tell answers at once.
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

/// Why the supervisor was not told.
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

/// What the supervisor asks for between jobs.
#[derive(Debug)]
pub(crate) enum Chore {
    GiveBack,
    Measure,
    /// A program or a segment that no job will name again.
    Drop(Box<dyn Any + Send>),
}

impl Chore {
    /// Apart from streams and from whoever reads the socket: giving back, unloading and unpinning may wait for a kernel.
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
