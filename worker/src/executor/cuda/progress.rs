//! How far the jobs of this process are. A job's stream notes its marks as it enqueues them. They are looked at only if the supervisor
//! asks, which it does for long jobs alone.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use cudarc::driver::{
    result,
    sys::{CUdeviceptr, CUevent},
};

use super::{
    error::{CudaError, called},
    stream::Stream,
};
use crate::ipc::FromExecutor;

/// Maximum number of marks between the repeats of a job's launches.
pub(super) const MARKS_MAX: u64 = 64;

/// The jobs whose work is on their streams.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<HashMap<u64, Arc<Mutex<Marks>>>>);

/// The marks of a job, until this is dropped. From then on its events and its memory are not used here.
#[derive(Debug)]
pub(super) struct Marked<'a> {
    progress: &'a Progress,
    job: u64,
    marks: Arc<Mutex<Marks>>,
}

#[derive(Debug, Default)]
struct Marks {
    /// The events on the job's stream that were not reached yet, in order, each with the number of launches before it.
    ahead: VecDeque<(Mark, u64)>,
    /// The launches before the last mark that was reached.
    launched: u64,
    /// The address of the job's counter.
    counter: Option<CUdeviceptr>,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark(CUevent);

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for Mark {}

impl Progress {
    /// Begins with a job whose launches are about to be enqueued.
    pub(super) fn begin(&self, job: u64, counter: Option<CUdeviceptr>) -> Marked<'_> {
        let marks = Arc::new(Mutex::new(Marks { counter, ..Marks::default() }));
        self.jobs().insert(job, Arc::clone(&marks));
        Marked { progress: self, job, marks }
    }

    /// Looks how far a job is. `None` if it is not on its stream, or no longer, or if the driver fails, which the job itself finds out.
    pub(super) fn look(&self, job: u64, stream: &Stream, is_emulated: bool) -> Option<FromExecutor> {
        // A statement of its own, so that the other jobs don't wait.
        let found = self.jobs().get(&job).map(Arc::clone);
        let found = found?;
        // The job's events and memory stay its own while this is locked.
        let mut marks = locked(&found);
        if marks.has_ended {
            return None;
        }
        marks.pass_reached();
        let counter = marks.counter.map(|address| read(address, stream, is_emulated)).transpose().ok()?;
        Some(FromExecutor::Progress { job, launched: marks.launched, counter })
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Marks>>>> {
        self.0.lock().expect("no thread panics while holding the jobs")
    }
}

impl Marked<'_> {
    /// Notes an event that was just recorded behind this many launches of the job.
    pub(super) fn mark(&self, event: CUevent, launched: u64) {
        locked(&self.marks).ahead.push_back((Mark(event), launched));
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.progress.jobs().remove(&self.job);
        locked(&self.marks).has_ended = true;
    }
}

impl Marks {
    fn pass_reached(&mut self) {
        while let Some((mark, launched)) = self.ahead.front() {
            // SAFETY: the event lives as long as the process.
            if unsafe { result::event::query(mark.0) }.is_err() {
                break;
            }
            self.launched = *launched;
            self.ahead.pop_front();
        }
    }
}

fn locked(marks: &Mutex<Marks>) -> MutexGuard<'_, Marks> {
    marks.lock().expect("no thread panics while holding the marks")
}

/// Reads a counter that kernels may be incrementing.
fn read(address: CUdeviceptr, stream: &Stream, is_emulated: bool) -> Result<u64, CudaError> {
    let mut bytes = [0; size_of::<u64>()];
    // SAFETY: the memory is the job's counter, which stays allocated while the job is locked, and the copy ends before `bytes` does.
    let copied = unsafe { result::memcpy_dtoh_async(&mut bytes, address, stream.raw()) };
    called("cuMemcpyDtoHAsync", copied)?;
    stream.wait(is_emulated)?;
    Ok(u64::from_le_bytes(bytes))
}
