//! The state that all streams of the process share, and their messages to the supervisor.

use std::{
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
};

use super::{
    device::Device,
    error::CudaError,
    guard::Guard,
    library::DriverLibrary,
    memory::{DeviceMemory, ReportError},
    pinned::PinnedSegment,
    printing::Printing,
    scopes::Scopes,
    transfers::Transfers,
    waits::Waits,
};
use crate::ipc::{FromExecutor, frame};

/// The state that all streams of the process share.
#[derive(Debug)]
pub(crate) struct Common {
    pub library: DriverLibrary,
    pub device: Device,
    pub memory: DeviceMemory,
    pub guard: Guard,
    pub waits: Waits,
    pub transfers: Transfers,
    pub printing: Arc<Printing>,
    pub scopes: Scopes,
    /// The socket to the supervisor.
    pub outgoing: Arc<Mutex<UnixStream>>,
}

impl Common {
    /// Sends a memory report if one is due. A lost supervisor is detected elsewhere.
    pub(crate) fn tell_memory(&self, may_wait: impl FnOnce()) -> Result<(), CudaError> {
        match self.memory.report_change(&self.outgoing, may_wait) {
            Ok(()) | Err(ReportError::Frame(_)) => Ok(()),
            Err(ReportError::Cuda(error)) => Err(error),
        }
    }

    /// Sends a message. A lost supervisor is detected elsewhere.
    pub(crate) fn say(&self, message: &FromExecutor) {
        drop(frame::write(&self.outgoing.lock().expect("no thread panics while holding the socket"), message));
    }

    /// Pins shared memory. If that fails, reports it, because copies are slower then.
    pub(super) fn pin(&self, segment: u32, pinned: &PinnedSegment) {
        if let Err(problem) = pinned.pin() {
            self.say(&FromExecutor::Unpinned { segment, reason: problem.to_string() });
        }
    }
}
