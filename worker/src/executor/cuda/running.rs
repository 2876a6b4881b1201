//! Runs a job on a stream: enqueues its copies and launches, waits for their end, and checks that its inputs have not changed.

use std::{sync::Arc, time::Instant};

use gpufleet_schema::Timings;

use super::{
    arena::{Allocation, MemoryRequest},
    buffer::DeviceBuffer,
    checked_launch::{CheckedLaunch, check_launch},
    common::Common,
    contents,
    ending::{StreamEnd, StreamError, internal},
    error::{CudaError, Damage},
    job_inputs::JobInputs,
    job_outputs,
    launching::{Launches, launch},
    module::Module,
    preparation::LaunchPreparation,
    stream::Stream,
    work::Work,
};
use crate::ipc::message::JobPlan;

/// The device memory that a job uses.
#[derive(Debug, Default)]
struct JobMemory<'a> {
    allocation: Option<Allocation<'a>>,
    inputs: JobInputs<'a>,
}

/// Runs a job to its end. Fails if the context has become unusable.
pub(crate) fn run(stream: &mut Stream, common: &Common, work: &Work) -> Result<StreamEnd, CudaError> {
    let started = Instant::now();
    let mut timings = Timings::default();
    let outcome = match attempt(stream, common, work, &mut timings) {
        Ok(()) => Ok(()),
        Err(StreamError::Failed(failure)) => Err(failure),
        Err(StreamError::Released) => return Ok(StreamEnd::Released),
        Err(StreamError::Cuda(error)) if error.damage() == Damage::None => Err(error.into_failure()),
        Err(StreamError::Cuda(error)) => return Err(error),
    };
    timings.total_us = (started.elapsed().as_micros() as u64).saturating_sub(timings.fetch_us);
    Ok(StreamEnd::Finished(outcome, timings))
}

fn attempt(stream: &mut Stream, common: &Common, work: &Work, timings: &mut Timings) -> Result<(), StreamError> {
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
    let outcome = run_loaded(stream, &preparation, work, &module, &mut memory, timings);
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
    stream: &mut Stream,
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
    stream.make_events(launches.len() + 3)?;
    let JobMemory { allocation, inputs } = memory;
    *inputs = JobInputs::lease(preparation, &work.run)?;
    let allocation = allocation.insert(allocate(preparation, local, inputs, &work.run)?);
    let blocks = inputs.blocks(&work.run, allocation);
    inputs.make_room(preparation, &work.run)?;
    common.tell_memory(|| preparation.may_wait())?;
    timings.fetch_us = inputs.arrive(preparation, stream, &work.run, &blocks)?.as_micros() as u64;
    match common.memory.arena.grows_at_launch(local) {
        true => preparation.may_wait(),
        false => common.waits.calls(preparation.job),
    }
    // Must be dropped after the job's last kernel and before its memory.
    let _scope = common.scopes.begin(preparation.job, stream.raw(), &blocks)?;
    let counter = work.run.counter.and_then(|index| blocks.get(index as usize)).map(|block| block.address);
    let mut marks = Launches::of(stream, common.progress.begin(preparation.job, counter), &work.run)?;
    let enqueued = enqueue(stream, preparation, work, &launches, &blocks, inputs, &mut marks);
    if enqueued.is_ok() {
        common.memory.arena.launched(local);
    }
    let ended = end(stream, preparation, enqueued, launches.len() + 2);
    drop(marks);
    if !ended.as_ref().is_err_and(StreamError::is_fatal) {
        common.waits.calls(preparation.job);
        // A failed job may have written to its inputs too. Its copies then do not matter, and they may be incomplete.
        let read_only = if ended.is_ok() { inputs.read_only(&work.run, &blocks) } else { inputs.shared() };
        common.guard.check(stream, &read_only)?;
    }
    ended?;
    common.waits.calls(preparation.job);
    let steps = stream.step_times(launches.len() + 2)?;
    timings.copy_in_us = steps[0];
    timings.launches_us = steps[1..=launches.len()].to_vec();
    timings.copy_out_us = steps[launches.len() + 1];
    // Fetching time does not count as the job's own time either.
    timings.fetch_us += job_outputs::leave(preparation, &work.run, &blocks)?.as_micros() as u64;
    Ok(())
}

/// Waits until the stream has finished its work; `last` is the index of the job's last event. This is needed after a failure too, because
/// earlier work still uses the memory.
fn end(
    stream: &Stream,
    preparation: &LaunchPreparation<'_>,
    enqueued: Result<(), StreamError>,
    last: usize,
) -> Result<(), StreamError> {
    let Common { library, waits, .. } = preparation.common;
    waits.runs(preparation.job);
    let ended = match &enqueued {
        Ok(()) => stream.wait_for(last, library.is_emulator()),
        Err(_) => stream.synchronize(),
    };
    match ended {
        Err(error) if enqueued.is_ok() || error.damage() != Damage::None => Err(error.into()),
        Ok(()) | Err(_) => enqueued,
    }
}

/// Enqueues the whole job on the stream: copies in, launches, copies out, with an event after each step.
fn enqueue(
    stream: &Stream,
    preparation: &LaunchPreparation<'_>,
    work: &Work,
    launches: &[CheckedLaunch<'_>],
    blocks: &[DeviceBuffer],
    inputs: &JobInputs<'_>,
    marks: &mut Launches<'_>,
) -> Result<(), StreamError> {
    stream.record(0)?;
    for (index, block) in blocks.iter().enumerate() {
        contents::fill(stream.raw(), work, inputs, index, *block)?;
    }
    preparation.common.guard.check(stream, &inputs.copies_to_check(&work.run, blocks))?;
    stream.record(1)?;
    for (checked, event) in launches.iter().zip(2..) {
        launch(stream, preparation, checked, blocks, marks)?;
        marks.mark(stream.record(event)?);
    }
    for output in &work.run.outputs {
        let index = output.buffer as usize;
        let (Some(plan), Some(block)) = (work.run.buffers.get(index), blocks.get(index)) else {
            return internal(format!("there is no buffer {index}"));
        };
        let (segment, place) = (work.segment(output.place)?, output.place);
        contents::copy_out(stream.raw(), segment, place, plan.bytes, block.address)?;
    }
    stream.record(launches.len() + 2)?;
    Ok(())
}

/// Allocates the memory of a job. If it does not fit beside the memory of the job's inputs, the inputs give theirs up.
fn allocate<'a>(
    preparation: &LaunchPreparation<'a>,
    local: u64,
    inputs: &mut JobInputs<'a>,
    run: &JobPlan,
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
