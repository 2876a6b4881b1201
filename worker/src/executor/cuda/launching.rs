//! Launches the kernels of a job on a stream.

use std::ffi::c_void;

use cudarc::driver::{
    DriverError, result,
    sys::{CUevent, CUresult},
};
use gpufleet_schema::{FailureCode, Verdict};

use super::{
    buffer::DeviceBuffer,
    checked_launch::CheckedLaunch,
    common::Common,
    ending::{StreamError, failed},
    error::{CudaError, called},
    preparation::LaunchPreparation,
    progress::{MARKS_MAX, Marked},
    stream::Stream,
};
use crate::ipc::message::{ArgPlan, JobPlan};

/// Number of launches after which a stream waits for its earlier ones. A driver queues about a thousand launches; a thread that launches
/// more spins in the driver and may block other threads.
const LAUNCHES_AHEAD: u64 = 256;

/// The launches of a job, which are counted, repeats singly.
pub(super) struct Launches<'a> {
    launched: u64,
    marked: Marked<'a>,
    /// The number of launches between two marks.
    stride: u64,
}

impl<'a> Launches<'a> {
    /// Creates the marks on the stream for a job with these launches.
    pub(super) fn of(stream: &mut Stream, marked: Marked<'a>, run: &JobPlan) -> Result<Self, CudaError> {
        let repeats = || run.launches.iter().map(|launch| u64::from(launch.repeat));
        let total: u64 = repeats().sum();
        if repeats().any(|repeat| repeat > 1) {
            stream.make_marks(total.min(MARKS_MAX) as usize)?;
        }
        Ok(Self { launched: 0, marked, stride: total.div_ceil(MARKS_MAX).max(1) })
    }

    /// Notes the event behind the repeats of a launch.
    pub(super) fn mark(&self, event: CUevent) {
        self.marked.mark(event, self.launched);
    }

    /// Counts a launch. Between its repeats there is a mark now and then.
    fn count(&mut self, stream: &Stream, is_last_repeat: bool) -> Result<(), CudaError> {
        self.launched += 1;
        if !is_last_repeat && self.launched.is_multiple_of(self.stride) {
            let event = stream.record_mark((self.launched / self.stride - 1) as usize)?;
            self.mark(event);
        }
        Ok(())
    }
}

/// Launches a kernel, as often as it repeats.
pub(super) fn launch(
    stream: &Stream,
    preparation: &LaunchPreparation<'_>,
    checked: &CheckedLaunch<'_>,
    blocks: &[DeviceBuffer],
    launches: &mut Launches<'_>,
) -> Result<(), StreamError> {
    let args = &checked.launch.args;
    let mut values: Vec<u64> = args.iter().map(|arg| value(arg, blocks)).collect();
    let mut params: Vec<*mut c_void> = args.iter().zip(&mut values).map(|(arg, value)| pointer(arg, value)).collect();
    for left in (0..checked.launch.repeat).rev() {
        // SAFETY: the function is loaded, and `check_launch` has compared the number and size of its parameters with `params`. The
        // kernel's memory accesses are its own responsibility, and limited to the process: a GPU stops an invalid access only where no
        // memory is mapped, so it can reach blocks of the pool's other jobs, but this process has no memory of another pool.
        let result = unsafe { put(stream, checked, &mut params) };
        match called("cuLaunchKernel", result) {
            Ok(()) => {}
            Err(error) if is_of_the_launch(error.result) => {
                let is_refusal = error.result == CUresult::CUDA_ERROR_NOT_SUPPORTED;
                let why = if is_refusal { preparation.common.library.refusal() } else { None };
                let message = match why {
                    Some(why) => format!("launch of {}: {why}", checked.launch.entry),
                    None => format!("launch of {}: {error}", checked.launch.entry),
                };
                return failed(Verdict::User, FailureCode::LaunchError, message);
            }
            Err(error) => return Err(error.into()),
        }
        launches.count(stream, left == 0)?;
        if launches.launched.is_multiple_of(LAUNCHES_AHEAD) {
            pass_milestone(stream, preparation, launches.launched / LAUNCHES_AHEAD)?;
        }
    }
    Ok(())
}

/// Enqueues one launch. Independent blocks need only the older call, which every driver has.
///
/// # Safety
/// There are as many `params` as the kernel has parameters, and each points to as many bytes as its parameter has.
unsafe fn put(stream: &Stream, checked: &CheckedLaunch<'_>, params: &mut [*mut c_void]) -> Result<(), DriverError> {
    let CheckedLaunch { function, geometry, together, launch } = checked;
    if together.is_special() {
        // SAFETY: required of the caller; the function is loaded and the stream live.
        return unsafe { together.launch(function, *geometry, launch.shared_bytes, stream.raw(), params) };
    }
    let ([gx, gy, gz], [bx, by, bz]) = (geometry.grid, geometry.block);
    // SAFETY: as above.
    unsafe {
        result::launch_kernel(function.raw(), (gx, gy, gz), (bx, by, bz), launch.shared_bytes, stream.raw(), params)
    }
}

/// Records the next milestone, and waits for the previous one.
fn pass_milestone(stream: &Stream, preparation: &LaunchPreparation<'_>, number: u64) -> Result<(), CudaError> {
    stream.record_milestone(number)?;
    if number > 1 {
        let Common { library, waits, .. } = preparation.common;
        waits.runs(preparation.job);
        stream.wait_for_milestone(number - 1, library.is_emulator())?;
        waits.calls(preparation.job);
    }
    Ok(())
}

/// Returns the value of a parameter of at most eight bytes; zero for a structure.
fn value(arg: &ArgPlan, blocks: &[DeviceBuffer]) -> u64 {
    match arg {
        ArgPlan::Buffer { buffer, offset } => blocks[*buffer as usize].address + offset,
        ArgPlan::Scalar { bits, .. } => *bits,
        ArgPlan::Bytes { .. } => 0,
    }
}

/// Returns a pointer to a parameter. The driver only reads through it.
fn pointer(arg: &ArgPlan, value: &mut u64) -> *mut c_void {
    match arg {
        ArgPlan::Bytes { bytes, .. } => bytes.as_ptr().cast_mut().cast(),
        ArgPlan::Buffer { .. } | ArgPlan::Scalar { .. } => std::ptr::from_mut(value).cast(),
    }
}

/// Returns whether the error means that the launch is invalid on this device.
fn is_of_the_launch(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_INVALID_VALUE
            | CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            | CUresult::CUDA_ERROR_NOT_SUPPORTED
            | CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE
            | CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    )
}
