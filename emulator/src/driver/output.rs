//! The way of the kernels' output to the program: a call of the driver that waits writes it to standard output, unless
//! the program takes it.

use std::{
    io::Write as _,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{driver, printf::PRINTED};

/// Calls that write the output of earlier kernels before they start a kernel.
const LAUNCHES: [&str; 3] = ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"];

/// Calls after which a driver writes the output of kernels: those that wait for work, and those that load, unload or
/// end something. These are the names of the latest versions; earlier versions and per-thread variants call these
/// functions.
const WRITERS: [&str; 26] = [
    "cuCtxDestroy_v2",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuLibraryUnload",
    "cuMemcpy",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyPeer",
    "cuMemcpy2D_v2",
    "cuMemcpy2DUnaligned_v2",
    "cuMemcpy3D_v2",
    "cuMemcpy3DPeer",
    "cuMemcpyDtoA_v2",
    "cuMemcpyAtoD_v2",
    "cuMemcpyHtoA_v2",
    "cuMemcpyAtoH_v2",
    "cuMemcpyAtoA_v2",
];

/// Set if the program takes the output itself.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Keeps later output for the program, which takes it.
pub fn keep_for_program() {
    IS_TAKEN.store(true, Ordering::Relaxed);
}

/// Called at the start of a driver call: writes the output if the call launches a kernel.
pub fn write_before(call: &str) {
    write_for(call, &LAUNCHES);
}

/// Called at the end of a driver call: writes the output if the call waits.
pub fn write_after(call: &str) {
    write_for(call, &WRITERS);
}

fn write_for(call: &str, writers: &[&str]) {
    if PRINTED.load(Ordering::Relaxed) && !IS_TAKEN.load(Ordering::Relaxed) && writers.contains(&call) {
        write();
    }
}

/// Writes the output to standard output. Errors are ignored here, because the program's own writes show them.
pub fn write() {
    let mut stdout = std::io::stdout().lock();
    if let (true, Ok(driver)) = (PRINTED.swap(false, Ordering::Relaxed), driver()) {
        let _ = stdout.write_all(&driver.take_printed(usize::MAX)).and_then(|()| stdout.flush());
    }
}
