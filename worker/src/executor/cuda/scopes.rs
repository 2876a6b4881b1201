//! Confines each job on the emulated device: its kernels can access only the memory of the job. At the job's time limit they can be ended
//! with a report of where their threads were. A GPU can do neither.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use cudarc::driver::sys::{CUdeviceptr, CUresult, CUstream};

use super::{
    buffer::DeviceBuffer,
    error::{CudaError, called},
    library::{Confine, DriverLibrary, Interrupt},
};

/// The jobs whose kernels may be running, with their streams.
#[derive(Debug)]
pub(crate) struct Scopes {
    confine: Option<Confine>,
    interrupt: Option<Interrupt>,
    streams: Mutex<HashMap<u64, RawStream>>,
}

#[derive(Debug, Clone, Copy)]
struct RawStream(CUstream);

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for RawStream {}

/// The confinement of a job's kernels, until this is dropped.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    scopes: &'a Scopes,
    job: u64,
    stream: CUstream,
}

impl Scopes {
    pub(crate) fn new(library: &DriverLibrary) -> Self {
        Self { confine: library.confine(), interrupt: library.interrupt(), streams: Mutex::default() }
    }

    /// Confines the kernels that the job launches on a stream. No other job may run on the stream.
    pub(super) fn begin(&self, job: u64, stream: CUstream, blocks: &[DeviceBuffer]) -> Result<Scope<'_>, CudaError> {
        let scope = Scope { scopes: self, job, stream };
        let allocations: Vec<CUdeviceptr> = blocks.iter().map(|block| block.address).collect();
        if let Some(confine) = self.confine {
            // SAFETY: the list is live and has the length that is passed.
            let confined = unsafe { confine(stream, allocations.as_ptr(), allocations.len()) };
            match confined {
                // The emulator is set to behave like a GPU.
                CUresult::CUDA_ERROR_NOT_SUPPORTED => {}
                confined => called("gpufleet_emulator_confine", confined.result())?,
            }
        }
        self.streams().insert(job, RawStream(stream));
        Ok(scope)
    }

    /// Ends the kernel of a job that exceeds its time limit. This call never waits.
    pub(crate) fn interrupt(&self, job: u64) {
        // Hold the lock, so that the stream does not pass to another job in between.
        let streams = self.streams();
        if let (Some(interrupt), Some(stream)) = (self.interrupt, streams.get(&job)) {
            // SAFETY: the stream is live. If the job has no kernel running, nothing happens.
            let _ = unsafe { interrupt(stream.0) };
        }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, RawStream>> {
        self.streams.lock().expect("no thread panics while holding the streams")
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.scopes.streams().remove(&self.job);
        if let Some(confine) = self.scopes.confine {
            // SAFETY: the stream is live; a null list lifts the confinement. In an unusable context, nothing runs any more.
            let _ = unsafe { confine(self.stream, std::ptr::null(), 0) };
        }
    }
}
