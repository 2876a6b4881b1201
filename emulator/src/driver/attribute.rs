//! `cuDeviceGetAttribute`: the numbers that a device tells about itself. Every attribute of the headers has an answer;
//! what the emulator has none of (clusters, peers) is 0.

use super::{
    device::Device,
    image_limits,
    limits::{CONSTANT_BYTES, SHARED_BYTES_DEFAULT, SHARED_BYTES_RESERVED, WARP_THREADS},
    status::{Answer, Status},
};

/// The attributes of the 12.9 headers are 1 up to this.
const ATTRIBUTE_MAX: i32 = 143;
/// A pitch of a 2-D copy may be as large as an `int` holds.
const PITCH_MAX: i32 = i32::MAX;
/// Addresses that texture units would like.
const TEXTURE_ALIGNMENT: i32 = 512;
/// Nominal, in kHz and bits: programs derive peak figures from these and divide by them.
const CLOCK_KHZ: i32 = 1_000_000;
const MEMORY_BUS_BITS: i32 = 64;
const L2_CACHE_BYTES: i32 = 1 << 20;
/// The bus domain of `Device::pci_bus_id`.
const PCI_DOMAIN: i32 = 0xFFFF;

impl Device {
    /// The attribute by its number in the C headers.
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
            16 => self.multiprocessors().cast_signed(),
            33 => self.ordinal,
            37 => MEMORY_BUS_BITS,
            38 => L2_CACHE_BYTES,
            39 => limits.threads_per_multiprocessor.cast_signed(),
            50 => PCI_DOMAIN,
            75 => self.capability.major.cast_signed(),
            76 => self.capability.minor.cast_signed(),
            81 => limits.shared_bytes_per_multiprocessor.cast_signed(),
            82 => limits.registers_per_multiprocessor.cast_signed(),
            // Copies and kernels overlap (15, 31, 40), pinned memory is mapped at its own address (19, 41, 91, 99),
            // managed memory is memory that both sides reach at any time (83, 89, 101), blocks can wait for each other
            // (95), memory has virtual addresses (102), memory pools exist (115), and streams write words and wait for
            // them (122, 123).
            15 | 19 | 31 | 40 | 41 | 78 | 79 | 80 | 83 | 89 | 91 | 95 | 99 | 101 | 102 | 115 | 122 | 123 => 1,
            87 => 2,
            97 => limits.shared_bytes_opt_in.cast_signed(),
            106 => limits.blocks_per_multiprocessor.cast_signed(),
            111 if self.capability.major >= 8 => SHARED_BYTES_RESERVED.cast_signed(),
            number => image_limits::attribute(number).unwrap_or(0),
        };
        Ok(value)
    }

    /// Blocks run one on each thread, so a thread is what comes closest to a multiprocessor.
    pub fn multiprocessors(&self) -> u32 {
        u32::try_from(self.threads).unwrap_or(u32::MAX)
    }
}
