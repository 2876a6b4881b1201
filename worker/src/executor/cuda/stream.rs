//! A CUDA stream with its timing events. One thread runs one job after another on it; several streams overlap copies and kernels.

mod ending;
mod launching;

use std::{
    collections::HashMap,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cudarc::driver::{
    result,
    sys::{self, CUevent, CUresult, CUstream},
};
use gpufleet_schema::{FailureCode, Timings, Verdict};

pub(crate) use self::ending::StreamEnd;
pub(super) use self::ending::{StreamError, failed};
use super::{
    arena::{Allocation, DeviceBuffer, MemoryRequest},
    checked_launch::{CheckedLaunch, check_launch},
    contents,
    device::Device,
    error::{CudaError, Damage, called},
    guard::{Guard, SUMS},
    job_inputs::JobInputs,
    job_outputs,
    library::DriverLibrary,
    memory::{DeviceMemory, ReportError},
    module::Module,
    pinned::PinnedSegment,
    preparation::LaunchPreparation,
    printing::Printing,
    program::Program,
    scopes::Scopes,
    transfers::Transfers,
    waits::Waits,
};
use crate::{
    executor::options::STREAMS_MAX,
    ipc::{
        FromExecutor, frame,
        message::{Place, Run},
    },
};

/// Time for which a thread polls before it sleeps, because a tiny job ends sooner than a thread can sleep and wake up.
const ASKING: Duration = Duration::from_micros(200);

const _: () =
    assert!(STREAMS_MAX < SUMS, "each thread that runs jobs has a sum, and so has the one that reads the socket");

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

/// A job with its program and segments.
#[derive(Debug)]
pub(crate) struct Work {
    pub run: Run,
    pub program: Arc<Program>,
    pub segments: HashMap<u32, Arc<PinnedSegment>>,
}

/// The device memory that a job uses.
#[derive(Debug, Default)]
struct JobMemory<'a> {
    allocation: Option<Allocation<'a>>,
    inputs: JobInputs<'a>,
}

impl Work {
    /// Returns the shared memory that contains this place.
    pub(super) fn segment(&self, place: Place) -> Result<&PinnedSegment, StreamError> {
        match self.segments.get(&place.segment) {
            Some(segment) => Ok(segment),
            None => {
                failed(Verdict::Infrastructure, FailureCode::Internal, format!("there is no segment for {place:?}"))
            }
        }
    }
}

/// The stream and the events that time its work. Both live as long as the process.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: CUstream,
    number: usize,
    events: Vec<CUevent>,
    /// Events that are recorded alternately while a job launches its kernels.
    milestones: [CUevent; 2],
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
}

impl Stream {
    /// Creates a stream for the calling thread, on which the context must be current. `number` distinguishes it from the others.
    pub(crate) fn new(number: usize) -> Result<Self, CudaError> {
        let raw = called("cuStreamCreate", result::stream::create(result::stream::StreamKind::NonBlocking))?;
        Ok(Self { raw, number, events: Vec::new(), milestones: [make_event()?, make_event()?] })
    }

    /// Runs a job to its end. Fails if the context has become unusable.
    pub(crate) fn run(&mut self, common: &Common, work: &Work) -> Result<StreamEnd, CudaError> {
        let started = Instant::now();
        let mut timings = Timings::default();
        let outcome = match self.attempt(common, work, &mut timings) {
            Ok(()) => Ok(()),
            Err(StreamError::Failed(failure)) => Err(failure),
            Err(StreamError::Released) => return Ok(StreamEnd::Released),
            Err(StreamError::Cuda(error)) if error.damage() == Damage::None => Err(error.into_failure()),
            Err(StreamError::Cuda(error)) => return Err(error),
        };
        timings.total_us = (started.elapsed().as_micros() as u64).saturating_sub(timings.fetch_us);
        Ok(StreamEnd::Finished(outcome, timings))
    }

    fn attempt(&mut self, common: &Common, work: &Work, timings: &mut Timings) -> Result<(), StreamError> {
        let preparation = LaunchPreparation { common, job: work.run.job };
        common.waits.calls(preparation.job);
        preparation.pin(&work.segments);
        let loading = Instant::now();
        let (module, was_loaded) = preparation.module(&work.program)?;
        timings.module_cached = was_loaded;
        if !was_loaded {
            timings.load_us = loading.elapsed().as_micros() as u64;
        }
        let mut memory = JobMemory::default();
        let outcome = self.run_loaded(&preparation, work, &module, &mut memory, timings);
        if outcome.as_ref().is_err_and(StreamError::is_fatal) {
            // Nothing can be freed in an unusable context.
            std::mem::forget((module, memory));
            return outcome;
        }
        if Arc::strong_count(&module) == 1 {
            // The job's module is not shared, so the job unloads it.
            preparation.may_wait();
        }
        // Drop the module first, so that a job that waits for memory also finds the module's.
        drop(module);
        drop(memory);
        outcome
    }

    /// Runs the job with its loaded module. When this returns, none of the job's work is running any more.
    fn run_loaded<'a>(
        &mut self,
        preparation: &LaunchPreparation<'a>,
        work: &Work,
        module: &Module,
        memory: &mut JobMemory<'a>,
        timings: &mut Timings,
    ) -> Result<(), StreamError> {
        let common = preparation.common;
        let mut launches = Vec::with_capacity(work.run.launches.len());
        for (index, launch) in work.run.launches.iter().enumerate() {
            let buffers = &work.run.buffers;
            launches.push(preparation.with_room(|| check_launch(preparation, module, launch, index, buffers))?);
        }
        timings.device_bytes_peak = work.run.buffers.iter().map(|buffer| buffer.bytes).sum();
        let thread_bytes = launches.iter().map(|launch| launch.function.local_bytes).max().unwrap_or(0);
        let local = common.device.local.taken(thread_bytes);
        self.make_events(launches.len() + 3)?;
        let JobMemory { allocation, inputs } = memory;
        *inputs = JobInputs::lease(preparation, &work.run)?;
        let allocation = allocation.insert(allocate(preparation, local, inputs, &work.run)?);
        let blocks = inputs.blocks(&work.run, allocation);
        inputs.make_room(preparation, &work.run)?;
        common.tell_memory(|| preparation.may_wait())?;
        timings.fetch_us = inputs.arrive(preparation, self, &work.run, &blocks)?.as_micros() as u64;
        match common.memory.arena.grows_at_launch(local) {
            true => preparation.may_wait(),
            false => common.waits.calls(preparation.job),
        }
        // Must be dropped after the job's last kernel and before its memory.
        let _scope = common.scopes.begin(preparation.job, self.raw, &blocks)?;
        let enqueued = self.enqueue(preparation, work, &launches, &blocks, inputs);
        if enqueued.is_ok() {
            common.memory.arena.launched(local);
        }
        let ended = self.end(preparation, enqueued, self.events[launches.len() + 2]);
        if !ended.as_ref().is_err_and(StreamError::is_fatal) {
            common.waits.calls(preparation.job);
            // A failed job may have written to its inputs too. Its copies then do not matter, and they may be incomplete.
            let read_only = if ended.is_ok() { inputs.read_only(&work.run, &blocks) } else { inputs.shared() };
            common.guard.check(self, &read_only)?;
        }
        ended?;
        common.waits.calls(preparation.job);
        self.read_events(launches.len(), timings)?;
        // Fetching time does not count as the job's own time either.
        timings.fetch_us += job_outputs::leave(preparation, &work.run, &blocks)?.as_micros() as u64;
        Ok(())
    }

    /// Waits until the stream has finished its work; `last` is the job's last event. This is needed after a failure too, because earlier
    /// work still uses the memory.
    fn end(
        &self,
        preparation: &LaunchPreparation<'_>,
        enqueued: Result<(), StreamError>,
        last: CUevent,
    ) -> Result<(), StreamError> {
        let Common { library, waits, .. } = preparation.common;
        waits.runs(preparation.job);
        let ended = match &enqueued {
            Ok(()) => self.wait_for(last, library.is_emulator()),
            // SAFETY: the stream is live.
            Err(_) => called("cuStreamSynchronize", unsafe { result::stream::synchronize(self.raw) }),
        };
        match ended {
            Err(error) if enqueued.is_ok() || error.damage() != Damage::None => Err(error.into()),
            Ok(()) | Err(_) => enqueued,
        }
    }

    /// Enqueues the whole job on the stream: copies in, launches, copies out, with an event after each step.
    fn enqueue(
        &self,
        preparation: &LaunchPreparation<'_>,
        work: &Work,
        launches: &[CheckedLaunch<'_>],
        blocks: &[DeviceBuffer],
        inputs: &JobInputs<'_>,
    ) -> Result<(), StreamError> {
        let mut launched = 0;
        let mut events = self.events.iter();
        self.record(events.next())?;
        for (index, block) in blocks.iter().enumerate() {
            contents::fill(self.raw, work, inputs, index, *block)?;
        }
        preparation.common.guard.check(self, &inputs.copies_to_check(&work.run, blocks))?;
        self.record(events.next())?;
        for checked in launches {
            self.launch(preparation, checked, blocks, &mut launched)?;
            self.record(events.next())?;
        }
        for output in &work.run.outputs {
            let index = output.buffer as usize;
            let (Some(plan), Some(block)) = (work.run.buffers.get(index), blocks.get(index)) else {
                return failed(Verdict::Infrastructure, FailureCode::Internal, format!("there is no buffer {index}"));
            };
            let (segment, place) = (work.segment(output.place)?, output.place);
            contents::copy_out(self.raw, segment, place, plan.bytes, block.address)?;
        }
        Ok(self.record(events.next())?)
    }

    /// Waits until the stream has reached an event. On a GPU, the thread polls briefly and then sleeps, because the driver would poll to
    /// the end by default. The emulator does the work on the waiting thread.
    fn wait_for(&self, event: CUevent, is_emulated: bool) -> Result<(), CudaError> {
        let since = Instant::now();
        while !is_emulated && since.elapsed() < ASKING {
            // SAFETY: the event is live.
            match called("cuEventQuery", unsafe { result::event::query(event) }) {
                Err(error) if error.result == CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
                // Synchronise even though the event is reached, because the driver writes the output of kernels in a wait and not in a
                // query.
                Ok(()) => break,
                failed => return failed,
            }
        }
        // SAFETY: the event is live.
        called("cuEventSynchronize", unsafe { result::event::synchronize(event) })
    }

    pub(super) fn make_events(&mut self, count: usize) -> Result<(), CudaError> {
        while self.events.len() < count {
            self.events.push(make_event()?);
        }
        Ok(())
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Waits for the work that was enqueued so far.
    pub(super) fn wait(&self, is_emulated: bool) -> Result<(), CudaError> {
        self.record(self.events.first())?;
        self.wait_for(self.events[0], is_emulated)
    }

    fn record(&self, event: Option<&CUevent>) -> Result<(), CudaError> {
        let event = *event.expect("as many events were made as there are steps");
        // SAFETY: stream and event are live.
        called("cuEventRecord", unsafe { result::event::record(event, self.raw) })
    }

    fn read_events(&self, launches: usize, timings: &mut Timings) -> Result<(), CudaError> {
        let mut steps = Vec::with_capacity(launches + 2);
        for pair in self.events[..launches + 3].windows(2) {
            // SAFETY: both events are live and were recorded on this stream, which has finished its work.
            let milliseconds = called("cuEventElapsedTime", unsafe { result::event::elapsed(pair[0], pair[1]) })?;
            steps.push((f64::from(milliseconds.max(0.0)) * 1000.0).round() as u64);
        }
        timings.copy_in_us = steps[0];
        timings.launches_us = steps[1..=launches].to_vec();
        timings.copy_out_us = steps[launches + 1];
        Ok(())
    }
}

/// Allocates the memory of a job. If it does not fit beside the memory of the job's inputs, the inputs give theirs up.
fn allocate<'a>(
    preparation: &LaunchPreparation<'a>,
    local: u64,
    inputs: &mut JobInputs<'a>,
    run: &Run,
) -> Result<Allocation<'a>, StreamError> {
    let allocate = |inputs: &JobInputs<'_>| {
        let sizes = inputs.own_sizes(run);
        preparation.allocate(MemoryRequest { sizes: &sizes, local }, run.cache_bytes_max)
    };
    match allocate(inputs) {
        Err(error) if error.is_out_of_memory() && !inputs.is_empty() => {
            inputs.give_up();
            allocate(inputs)
        }
        allocated => allocated,
    }
}

fn make_event() -> Result<CUevent, CudaError> {
    called("cuEventCreate", result::event::create(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))
}
