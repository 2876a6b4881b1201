//! The state that all streams of the process share, and their messages to the supervisor.

use std::sync::Arc;

use super::{
    device::Device,
    error::CudaError,
    guard::Guard,
    library::DriverLibrary,
    memory::{DeviceMemory, ReportError},
    pinned::PinnedSegment,
    printing::Printing,
    progress::Progress,
    scopes::Scopes,
    trains::Trains,
    transfers::Transfers,
    upstream::Upstream,
    waits::Waits,
};
use crate::ipc::FromExecutor;

/// The state that all streams of the process share.
#[derive(Debug)]
pub(crate) struct Common {
    pub library: DriverLibrary,
    pub device: Device,
    pub memory: DeviceMemory,
    pub guard: Guard,
    pub waits: Waits,
    pub transfers: Transfers,
    pub trains: Trains,
    pub printing: Arc<Printing>,
    pub progress: Progress,
    pub scopes: Scopes,
    pub upstream: Arc<Upstream>,
}

impl Common {
    /// Sends a memory report if one is due. A lost supervisor is detected elsewhere.
    pub(crate) fn tell_memory(&self, may_wait: impl FnOnce()) -> Result<(), CudaError> {
        match self.memory.report_change(&self.upstream, may_wait) {
            Ok(()) | Err(ReportError::Frame(_)) => Ok(()),
            Err(ReportError::Cuda(error)) => Err(error),
        }
    }

    /// Sends a message. A lost supervisor is detected elsewhere.
    pub(crate) fn say(&self, message: &FromExecutor) {
        drop(self.upstream.say(message));
    }

    /// Pins shared memory. If that fails, reports it, because copies are slower then.
    pub(super) fn pin(&self, segment: u32, pinned: &PinnedSegment) {
        if let Err(problem) = pinned.pin() {
            self.say(&FromExecutor::Unpinned { segment, reason: problem.to_string() });
        }
    }
}
