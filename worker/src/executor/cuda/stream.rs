//! A CUDA stream with the events that time its work. One thread runs one job after another on it; several streams overlap copies and
//! kernels.

use std::time::{Duration, Instant};

use cudarc::driver::{
    result,
    sys::{self, CUevent, CUresult, CUstream},
};

use super::error::{CudaError, called};

/// Time for which a thread polls before it sleeps, because a tiny job ends sooner than a thread can sleep and wake up.
const ASKING: Duration = Duration::from_micros(200);

/// The stream and the events that time its work. Both live as long as the process.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: CUstream,
    number: usize,
    events: Vec<CUevent>,
    /// Events that are recorded alternately while a job launches its kernels.
    milestones: [CUevent; 2],
    /// Events between the repeats of a job's launches, by which others see how far it is.
    marks: Vec<CUevent>,
    /// The event of [`Stream::wait`]. It is none of `events`, so that a wait between a job's steps does not change their times.
    waited: CUevent,
}

impl Stream {
    /// Creates a stream for the calling thread, on which the context must be current. `number` distinguishes it from the others.
    pub(crate) fn new(number: usize) -> Result<Self, CudaError> {
        let raw = called("cuStreamCreate", result::stream::create(result::stream::StreamKind::NonBlocking))?;
        let (events, marks, milestones) = (Vec::new(), Vec::new(), [make_event()?, make_event()?]);
        Ok(Self { raw, number, events, milestones, marks, waited: make_event()? })
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Creates events until the stream has this many.
    pub(super) fn make_events(&mut self, count: usize) -> Result<(), CudaError> {
        while self.events.len() < count {
            self.events.push(make_event()?);
        }
        Ok(())
    }

    /// Creates marks until the stream has this many.
    pub(super) fn make_marks(&mut self, count: usize) -> Result<(), CudaError> {
        while self.marks.len() < count {
            self.marks.push(make_event()?);
        }
        Ok(())
    }

    /// Records the event with this index, which must exist, and returns it.
    pub(super) fn record(&self, index: usize) -> Result<CUevent, CudaError> {
        self.record_event(self.events[index])?;
        Ok(self.events[index])
    }

    /// Records the mark with this index, which must exist, and returns it.
    pub(super) fn record_mark(&self, index: usize) -> Result<CUevent, CudaError> {
        self.record_event(self.marks[index])?;
        Ok(self.marks[index])
    }

    /// Records one of the two milestones. Even and odd numbers alternate between them.
    pub(super) fn record_milestone(&self, number: u64) -> Result<(), CudaError> {
        self.record_event(self.milestone(number))
    }

    /// Waits until the stream has reached the event with this index.
    pub(super) fn wait_for(&self, index: usize, is_emulated: bool) -> Result<(), CudaError> {
        wait_for_event(self.events[index], is_emulated)
    }

    /// Waits until the stream has reached the milestone that was recorded with this number.
    pub(super) fn wait_for_milestone(&self, number: u64, is_emulated: bool) -> Result<(), CudaError> {
        wait_for_event(self.milestone(number), is_emulated)
    }

    /// Waits for the work that was enqueued so far.
    pub(super) fn wait(&self, is_emulated: bool) -> Result<(), CudaError> {
        self.record_event(self.waited)?;
        wait_for_event(self.waited, is_emulated)
    }

    /// Waits for the work that was enqueued so far, without an event.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is live.
        called("cuStreamSynchronize", unsafe { result::stream::synchronize(self.raw) })
    }

    /// Returns the times of the first steps, each from its event to the next, in microseconds. The stream must have finished its work.
    pub(super) fn step_times(&self, steps: usize) -> Result<Vec<u64>, CudaError> {
        self.events[..=steps].windows(2).map(|pair| microseconds_between(pair[0], pair[1])).collect()
    }

    fn milestone(&self, number: u64) -> CUevent {
        self.milestones[(number % 2) as usize]
    }

    fn record_event(&self, event: CUevent) -> Result<(), CudaError> {
        // SAFETY: stream and event are live.
        called("cuEventRecord", unsafe { result::event::record(event, self.raw) })
    }
}

fn make_event() -> Result<CUevent, CudaError> {
    called("cuEventCreate", result::event::create(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))
}

fn microseconds_between(start: CUevent, end: CUevent) -> Result<u64, CudaError> {
    // SAFETY: both events are live and were recorded on one stream, which has finished its work.
    let milliseconds = called("cuEventElapsedTime", unsafe { result::event::elapsed(start, end) })?;
    Ok((f64::from(milliseconds.max(0.0)) * 1000.0).round() as u64)
}

/// Waits until its stream has reached an event. On a GPU, the thread polls briefly and then sleeps, because the driver would poll to the
/// end by default. The emulator does the work on the waiting thread.
fn wait_for_event(event: CUevent, is_emulated: bool) -> Result<(), CudaError> {
    let since = Instant::now();
    while !is_emulated && since.elapsed() < ASKING {
        // SAFETY: the event is live.
        match called("cuEventQuery", unsafe { result::event::query(event) }) {
            Err(error) if error.result == CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
            // Synchronise even though the event is reached, because the driver writes the output of kernels in a wait and not in a query.
            Ok(()) => break,
            failed => return failed,
        }
    }
    // SAFETY: the event is live.
    called("cuEventSynchronize", unsafe { result::event::synchronize(event) })
}
