//! Functions that NVIDIA's driver lacks: the report of a fault, what kernels printed, read-only memory, the bounds of a job,
//! its end, and this library's version.
//! Programs look these up by name, and find them only when the emulator is what they loaded.

use std::{
    ffi::{CStr, c_char},
    panic,
};

use super::call::{In, TextRoom, boundary};
use crate::driver::{device::DeviceFault, driver, memory, printf, refusal, started, status::Answer, stream::scope};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no NUL"),
};

/// Writes the report of the fault that made the device unusable: kernel, line, thread and address. It is cut to the
/// room and always ends with a NUL. Returns the bytes of the whole report without the NUL, and 0 when there was no
/// fault; with a length of 0 nothing is written.
///
/// `size_t gpufleet_emulator_fault_report(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_fault_report(text: TextRoom, room: usize) -> usize {
    tell(text, room, |fault| Some(&fault.report))
}

/// Writes the name of the kernel that made the device unusable, as the report is written. Returns 0 also when the fault
/// was no kernel's. The report is for people: it tells what a failed `assert` says, which can be anything.
///
/// `size_t gpufleet_emulator_fault_kernel(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_fault_kernel(text: TextRoom, room: usize) -> usize {
    tell(text, room, |fault| fault.kernel.as_deref())
}

fn tell(text: TextRoom, room: usize, of: impl FnOnce(&'static DeviceFault) -> Option<&'static str>) -> usize {
    let fault = || panic::catch_unwind(|| driver().ok()?.first_fault()).ok().flatten();
    // Locks of the driver may have been held in the parent when it forked.
    let told = started::check_process().ok().and_then(|()| fault()).and_then(of).unwrap_or_default();
    // No room is how a caller asks for the length alone.
    let _ = text.write(told.as_bytes(), room);
    told.len()
}

/// Writes why the last launch that the calling thread asked for with a kernel which the emulator can't run was refused
/// with `CUDA_ERROR_NOT_SUPPORTED`: the instruction and its line. The text is written as a fault's report is, and only
/// once, so that it is never taken for the reason of another refusal.
///
/// `size_t gpufleet_emulator_refusal(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_refusal(text: TextRoom, room: usize) -> usize {
    let told = refusal::last();
    // No room is how a caller asks for the length alone.
    if text.write(told.as_bytes(), room).is_ok() {
        refusal::clear();
    }
    told.len()
}

/// Takes what kernels printed, up to the room less one byte for the NUL. Returns the bytes taken; 0 when nothing is
/// left. What a kernel prints shows up here once it has ended.
///
/// Programs that do not call this have the text on their standard output, written by the calls that wait. From the first
/// call on, which may have no room, the text is kept for this function alone.
///
/// `size_t gpufleet_emulator_printf(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_printf(text: TextRoom, room: usize) -> usize {
    if started::check_process().is_err() {
        return 0;
    }
    printf::keep_for_program();
    let Some(most) = room.checked_sub(1) else { return 0 };
    let taken = panic::catch_unwind(|| driver().map(|driver| driver.take_printed(most)).unwrap_or_default());
    let taken = taken.unwrap_or_default();
    match text.write(&taken, room) {
        Ok(_) => taken.len(),
        Err(_) => 0,
    }
}

/// Makes the allocation that starts at an address read-only for kernels: one that writes there ends with
/// `CUDA_ERROR_ILLEGAL_ADDRESS`. Copies and fills by the host are not affected, and make it writable again.
///
/// `CUresult gpufleet_emulator_protect(CUdeviceptr address)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_protect(address: u64) -> i32 {
    boundary("gpufleet_emulator_protect", || memory::protect(address))
}

/// Confines the kernels that run in a stream from now on to the allocations that start at these addresses, to the variables
/// of their modules, and to what they take from the heap; any other access ends with `CUDA_ERROR_ILLEGAL_ADDRESS`. The next
/// such call frees what they left on the heap. A null pointer lifts the bounds.
///
/// `CUresult gpufleet_emulator_confine(CUstream stream, const CUdeviceptr *allocations, size_t count)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_confine(stream: usize, allocations: In<u64>, count: usize) -> i32 {
    boundary("gpufleet_emulator_confine", || {
        let list = || (0..count).map(|index| allocations.at(index)).collect::<Answer<Vec<u64>>>();
        scope::confine(stream, if allocations.is_null() { None } else { Some(list()?) })
    })
}

/// Ends the kernel that runs in a stream with `CUDA_ERROR_LAUNCH_TIMEOUT`. The report says where its threads are.
///
/// `CUresult gpufleet_emulator_interrupt(CUstream stream)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_interrupt(stream: usize) -> i32 {
    boundary("gpufleet_emulator_interrupt", || scope::interrupt(stream))
}

/// The version of this library, as text that is never freed.
///
/// `const char *gpufleet_emulator_version(void)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_version() -> *const c_char {
    VERSION.as_ptr()
}
