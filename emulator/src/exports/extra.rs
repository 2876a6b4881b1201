//! C functions that NVIDIA's driver does not have: the report of a fault, output of kernels, read-only memory,
//! confinement of a job, interruption, and this library's version. Programs look them up by name and find them only if
//! they loaded the emulator.

use std::{
    ffi::{CStr, c_char},
    panic,
};

use gpufleet_surface::argument::{In, TextRoom};

use super::boundary::boundary;
use crate::driver::{device::DeviceFault, driver, memory, output, refusal, started, status::Answer, stream};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no NUL"),
};

/// Writes the report of the fault that made the device unusable: kernel, line, thread and address. The report is
/// truncated to the buffer and always ends with a NUL; with a length of 0 nothing is written. Returns the bytes of the
/// whole report without the NUL; 0 if there was no fault.
///
/// `size_t gpufleet_emulator_fault_report(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_fault_report(text: TextRoom, room: usize) -> usize {
    tell(text, room, |fault| Some(&fault.report))
}

/// Writes the name of the kernel that made the device unusable, with the rules of the fault report. Returns 0 if there
/// was no fault or no kernel caused it. Programs should not parse the report for it: the message of a failed `assert`
/// can contain anything.
///
/// `size_t gpufleet_emulator_fault_kernel(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_fault_kernel(text: TextRoom, room: usize) -> usize {
    tell(text, room, |fault| fault.kernel.as_deref())
}

fn tell(text: TextRoom, room: usize, of: impl FnOnce(&'static DeviceFault) -> Option<&'static str>) -> usize {
    let fault = || panic::catch_unwind(|| driver().ok()?.first_fault()).ok().flatten();
    // Checked first, because locks of the driver may have been held in the parent when it forked.
    let told = started::check_process().ok().and_then(|()| fault()).and_then(of).unwrap_or_default();
    // A caller without a buffer asks only for the length.
    let _ = text.write(told.as_bytes(), room);
    told.len()
}

/// Writes why the calling thread's last launch was refused with `CUDA_ERROR_NOT_SUPPORTED`: the instruction that the
/// emulator lacks, and its line. The rules are those of the fault report, but the text is written only once, so that it
/// is never taken for the reason of another refusal.
///
/// `size_t gpufleet_emulator_refusal(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_refusal(text: TextRoom, room: usize) -> usize {
    let told = refusal::last();
    // A caller without a buffer asks only for the length.
    if text.write(told.as_bytes(), room).is_ok() {
        refusal::clear();
    }
    told.len()
}

/// Takes output of kernels, at most the buffer's length less one byte for the NUL. Returns the bytes taken; 0 if
/// nothing is left. The output of a kernel is available once it has ended.
///
/// Programs that do not call this function have the output on their standard output, written by the calls that wait.
/// After the first call, which may be without a buffer, the output is kept for this function only.
///
/// `size_t gpufleet_emulator_printf(char *text, size_t room)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_printf(text: TextRoom, room: usize) -> usize {
    if started::check_process().is_err() {
        return 0;
    }
    output::keep_for_program();
    let Some(most) = room.checked_sub(1) else { return 0 };
    let taken = panic::catch_unwind(|| driver().map(|driver| driver.take_printed(most)).unwrap_or_default());
    let taken = taken.unwrap_or_default();
    match text.write(&taken, room) {
        Ok(_) => taken.len(),
        Err(_) => 0,
    }
}

/// Makes the allocation that starts at an address read-only for kernels: a kernel that writes there ends with
/// `CUDA_ERROR_ILLEGAL_ADDRESS`. Copies and fills by the host still work and make it writable again.
///
/// `CUresult gpufleet_emulator_protect(CUdeviceptr address)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_protect(address: u64) -> i32 {
    boundary("gpufleet_emulator_protect", || memory::protect(address))
}

/// Confines later kernels of a stream to the allocations that start at these addresses, the variables of their modules,
/// and what they take from the heap; any other access ends with `CUDA_ERROR_ILLEGAL_ADDRESS`. The next such call frees
/// what they left on the heap. A null pointer lifts the confinement.
///
/// `CUresult gpufleet_emulator_confine(CUstream stream, const CUdeviceptr *allocations, size_t count)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_confine(stream: usize, allocations: In<u64>, count: usize) -> i32 {
    boundary("gpufleet_emulator_confine", || {
        let list = || (0..count).map(|index| allocations.at(index)).collect::<Answer<Vec<u64>>>();
        stream::confine(stream, if allocations.is_null() { None } else { Some(list()?) })
    })
}

/// Ends the running kernel of a stream with `CUDA_ERROR_LAUNCH_TIMEOUT`. The report says where its threads are.
///
/// `CUresult gpufleet_emulator_interrupt(CUstream stream)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_interrupt(stream: usize) -> i32 {
    boundary("gpufleet_emulator_interrupt", || stream::interrupt(stream))
}

/// Returns the version of this library, as a string that is never freed.
///
/// `const char *gpufleet_emulator_version(void)`
#[unsafe(no_mangle)]
extern "C" fn gpufleet_emulator_version() -> *const c_char {
    VERSION.as_ptr()
}
