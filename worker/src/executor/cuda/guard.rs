//! Detects kernels that write to a resident input, which stays on the device for other jobs.
//!
//! The emulated device makes the memory of such an input read-only, so a kernel that writes to it fails with a report of the line. A GPU
//! can't do that for memory from `cuMemAlloc`. There, a checksum is computed when the input arrives, and again after each job whose kernels
//! may only read the input, in place or as a copy. A copy that was made while other kernels read the input is also checked before its job's
//! kernels start. If a checksum differs, the process ends as after an illegal access. So no job succeeds with wrong contents, and the
//! supervisor runs the suspects again, each alone. A kernel that restores what it has overwritten is not detected.

use std::ffi::c_void;

use cudarc::driver::{
    result,
    sys::{CUdeviceptr, CUfunction, CUstream},
};

use super::{
    buffer::DeviceBuffer,
    device::Device,
    error::{CudaError, called},
    library::{DriverLibrary, Protect},
    stream::Stream,
};
use crate::executor::options::STREAMS_MAX;

/// PTX of the module with the kernel that computes checksums, and one sum for each stream.
const MODULE: &str = concat!(include_str!("checksum.ptx"), "\0");
/// Number of sums in the module.
const SUMS: usize = 64;
const THREADS: u32 = 256;
/// Blocks per multiprocessor: enough to read memory at its full rate.
const BLOCKS_OF_MULTIPROCESSOR: u32 = 8;

const _: () =
    assert!(STREAMS_MAX < SUMS, "each thread that runs jobs has a sum, and so has the one that reads the socket");

/// The way in which inputs are guarded on this device.
#[derive(Debug)]
pub(crate) enum Guard {
    Protection(Protect),
    Checksums(Checksums),
}

/// An input, or a copy of one, whose contents must still be those that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed {
    pub block: DeviceBuffer,
    pub bytes: u64,
    pub checksum: u64,
}

/// The kernel for checksums.
#[derive(Debug)]
pub(crate) struct Checksums {
    kernel: Kernel,
    sums: CUdeviceptr,
    blocks_max: u32,
    is_emulated: bool,
}

#[derive(Debug)]
struct Kernel(CUfunction);

// SAFETY: the driver's handles may be used from every thread on which the context is current.
unsafe impl Send for Kernel {}
// SAFETY: the handle is never written to.
unsafe impl Sync for Kernel {}

impl Guard {
    /// Chooses the guard that the device supports. The context must be current.
    pub(crate) fn new(library: &DriverLibrary, device: &Device) -> Result<Self, CudaError> {
        match library.protection() {
            Some(protect) => Ok(Self::Protection(protect)),
            None => Ok(Self::Checksums(Checksums::load(library, device)?)),
        }
    }

    /// Returns whether the device stops kernels that write to an input.
    pub(crate) fn protects(&self) -> bool {
        matches!(self, Self::Protection(_))
    }

    /// Guards an input that has arrived completely. Returns its checksum.
    pub(super) fn seal(&self, stream: &Stream, block: DeviceBuffer, bytes: u64) -> Result<u64, CudaError> {
        if bytes < block.bytes {
            // The rest of the block may have belonged to another job.
            let rest = (block.bytes - bytes) as usize;
            // SAFETY: the range to zero is inside the block, which nothing else uses yet.
            let zeroed = unsafe { result::memset_d8_async(block.address + bytes, 0, rest, stream.raw()) };
            called("cuMemsetD8Async", zeroed)?;
        }
        match self {
            Self::Protection(protect) => {
                stream.synchronize()?;
                // SAFETY: the function only looks up the address.
                called("gpufleet_emulator_protect", unsafe { protect(block.address) }.result())?;
                Ok(0)
            }
            Self::Checksums(checksums) => checksums.sum(stream, &[(block, bytes)]),
        }
    }

    /// Checks that the contents have not changed. The error, if they have, ends the process. Waits for the stream.
    pub(super) fn check(&self, stream: &Stream, inputs: &[Sealed]) -> Result<(), CudaError> {
        let Self::Checksums(checksums) = self else { return Ok(()) };
        if inputs.is_empty() {
            return Ok(());
        }
        let blocks: Vec<_> = inputs.iter().map(|input| (input.block, input.bytes)).collect();
        let expected = inputs.iter().fold(0, |sum: u64, input| sum.wrapping_add(input.checksum));
        match checksums.sum(stream, &blocks)? == expected {
            true => Ok(()),
            false => Err(CudaError::shared_input_written()),
        }
    }
}

impl Checksums {
    fn load(library: &DriverLibrary, device: &Device) -> Result<Self, CudaError> {
        // SAFETY: the text ends in NUL, and it contains both names. The module stays loaded as long as the process lives.
        let (kernel, (sums, _)) = unsafe {
            let module = called("cuModuleLoadData", result::module::load_data(MODULE.as_ptr().cast()))?;
            let kernel = result::module::get_function(module, c"checksum".to_owned());
            let sums = result::module::get_global(module, c"sums".to_owned());
            (called("cuModuleGetFunction", kernel)?, called("cuModuleGetGlobal", sums)?)
        };
        let blocks_max = device.info.multiprocessors.saturating_mul(BLOCKS_OF_MULTIPROCESSOR);
        let checksums = Self { kernel: Kernel(kernel), sums, blocks_max, is_emulated: library.is_emulator() };
        // With lazy loading, this makes the driver load the kernel's code now and not while jobs run.
        checksums.add(std::ptr::null_mut(), 0, DeviceBuffer { address: sums, bytes: 8 }, 8)?;
        // SAFETY: the stream is the default stream.
        called("cuStreamSynchronize", unsafe { result::stream::synchronize(std::ptr::null_mut()) })?;
        Ok(checksums)
    }

    /// Returns the sum of the checksums of several blocks, after the earlier work of the stream.
    fn sum(&self, stream: &Stream, blocks: &[(DeviceBuffer, u64)]) -> Result<u64, CudaError> {
        let sum = self.sums + 8 * stream.number() as u64;
        // SAFETY: each stream has a sum that no other stream uses.
        called("cuMemsetD8Async", unsafe { result::memset_d8_async(sum, 0, 8, stream.raw()) })?;
        for (block, bytes) in blocks {
            self.add(stream.raw(), stream.number(), *block, *bytes)?;
        }
        stream.wait(self.is_emulated)?;
        let mut bytes = [0_u8; 8];
        // SAFETY: the sum has eight bytes.
        called("cuMemcpyDtoH", unsafe { result::memcpy_dtoh_sync(&mut bytes, sum) })?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn add(&self, stream: CUstream, slot: usize, block: DeviceBuffer, bytes: u64) -> Result<(), CudaError> {
        let (mut address, mut bytes, mut slot) = (block.address, bytes, slot as u32);
        let mut params = [
            std::ptr::from_mut(&mut address).cast::<c_void>(),
            std::ptr::from_mut(&mut bytes).cast(),
            std::ptr::from_mut(&mut slot).cast(),
        ];
        let blocks = self.blocks(bytes);
        // SAFETY: the kernel takes these three parameters, reads the block, and writes to the sum with this number.
        let launched =
            unsafe { result::launch_kernel(self.kernel.0, (blocks, 1, 1), (THREADS, 1, 1), 0, stream, &mut params) };
        called("cuLaunchKernel", launched)
    }

    /// Returns the number of thread blocks: one thread for each word, up to the number that keeps the device busy.
    fn blocks(&self, bytes: u64) -> u32 {
        let blocks = bytes.div_ceil(8 * u64::from(THREADS)).clamp(1, u64::from(self.blocks_max.max(1)));
        u32::try_from(blocks).unwrap_or(self.blocks_max)
    }
}
