//! Output of `printf` in kernels. It is kept in a bounded buffer that drops its oldest lines, as a device does, until a
//! call of the driver that waits writes it to standard output, or the program takes it.

use std::{
    collections::VecDeque,
    io::Write as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::driver;

/// Bytes of the buffer: a device's default. No line is longer.
const BYTES_MAX: usize = crate::simt::PRINT_BYTES_MAX;

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

/// Set if a kernel has printed since the output was last written.
static PRINTED: AtomicBool = AtomicBool::new(false);
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

/// The output buffer of one device.
#[derive(Debug, Default)]
pub struct Printf {
    bytes: Mutex<VecDeque<u8>>,
}

impl Printf {
    /// Appends text.
    pub fn add(&self, text: &[u8]) {
        let mut bytes = self.bytes();
        PRINTED.store(true, Ordering::Relaxed);
        bytes.extend(text);
        let surplus = bytes.len().saturating_sub(BYTES_MAX);
        bytes.drain(..surplus);
    }

    /// Takes at most `most` bytes from the front.
    pub fn take(&self, most: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        let count = most.min(bytes.len());
        bytes.drain(..count).collect()
    }

    fn bytes(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Printf};

    #[test]
    fn text_is_taken_in_parts_and_once() {
        let printf = Printf::default();
        printf.add(b"block 1\n");
        assert_eq!(printf.take(6), b"block ");
        assert_eq!(printf.take(100), b"1\n");
        assert!(printf.take(100).is_empty());
    }

    #[test]
    fn the_oldest_text_goes_when_the_buffer_is_full() {
        let printf = Printf::default();
        printf.add(&b"a".repeat(BYTES_MAX));
        printf.add(b"end");
        let taken = printf.take(usize::MAX);
        assert_eq!(taken.len(), BYTES_MAX);
        assert!(taken.ends_with(b"aend"));
    }
}
