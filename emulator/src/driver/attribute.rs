//! Device attributes (`cuDeviceGetAttribute`). Every attribute of the headers has a value; it is 0 for features that
//! the emulator lacks, such as clusters and peer access.

use gpufleet_surface::launch::limits::WARP_THREADS;

use super::{
    device::Device,
    image_limits,
    limits::{CONSTANT_BYTES, SHARED_BYTES_DEFAULT},
    status::{Answer, Status},
};

/// Largest attribute number of the CUDA 12.9 headers; the first is 1.
const ATTRIBUTE_MAX: i32 = 143;
/// Maximum pitch of a 2D copy in bytes: the largest `int`.
const PITCH_MAX: i32 = i32::MAX;
/// Alignment in bytes that is reported for texture memory; the emulator does not need it.
const TEXTURE_ALIGNMENT: i32 = 512;
/// Nominal clock rate in kHz, bus width in bits and cache size in bytes. Programs derive peak figures from them and
/// divide by them, so they are not 0.
const CLOCK_KHZ: i32 = 1_000_000;
const MEMORY_BUS_BITS: i32 = 64;
const L2_CACHE_BYTES: i32 = 1 << 20;
/// PCI domain of [`Device::pci_bus_id`].
const PCI_DOMAIN: i32 = 0xFFFF;

impl Device {
    /// Returns an attribute by its number in the C headers.
    pub fn attribute(&self, number: i32) -> Answer<i32> {
        if !(1..=ATTRIBUTE_MAX).contains(&number) {
            return Err(Status::InvalidValue);
        }
        let limits = &self.limits;
        let value = match number {
            1 => limits.block_threads_max.cast_signed(),
            2..=4 => limits.block_max[(number - 2) as usize].cast_signed(),
            5..=7 => limits.grid_max[(number - 5) as usize].cast_signed(),
            8 => SHARED_BYTES_DEFAULT.cast_signed(),
            9 => CONSTANT_BYTES.cast_signed(),
            10 => WARP_THREADS.cast_signed(),
            11 => PITCH_MAX,
            12 => limits.registers_per_block.cast_signed(),
            13 | 36 => CLOCK_KHZ,
            14 | 30 => TEXTURE_ALIGNMENT,
            16 => limits.multiprocessors.cast_signed(),
            33 => self.ordinal,
            37 => MEMORY_BUS_BITS,
            38 => L2_CACHE_BYTES,
            39 => limits.threads_per_multiprocessor.cast_signed(),
            50 => PCI_DOMAIN,
            75 => self.capability.major.cast_signed(),
            76 => self.capability.minor.cast_signed(),
            81 => limits.shared_bytes_per_multiprocessor.cast_signed(),
            82 => limits.registers_per_multiprocessor.cast_signed(),
            // Copies and kernels overlap (15, 31, 40); pinned memory is mapped at its own address (19, 41, 91, 99);
            // managed memory is accessible to host and device at any time (83, 89, 101); cooperative launches work
            // (95); virtual memory management (102) and memory pools (115) exist; streams write words and wait for them
            // (122, 123).
            15 | 19 | 31 | 40 | 41 | 78 | 79 | 80 | 83 | 89 | 91 | 95 | 99 | 101 | 102 | 115 | 122 | 123 => 1,
            87 => 2,
            97 => limits.shared_bytes_opt_in.cast_signed(),
            106 => limits.blocks_per_multiprocessor.cast_signed(),
            111 => limits.shared_bytes_reserved.cast_signed(),
            number => image_limits::attribute(number).unwrap_or(0),
        };
        Ok(value)
    }
}
