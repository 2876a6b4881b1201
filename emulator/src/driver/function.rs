//! Functions: a kernel as its caller sees it, with its attributes.

use std::{
    ffi::CString,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use gpufleet_surface::launch::limits::{DeviceLimits, KernelLimits};

use super::{
    device::Device,
    handle::{Handle, Registry},
    limits::SHARED_BYTES_DEFAULT,
    staged_launch::StagedLaunch,
    started,
    status::{Answer, Status},
};
use crate::module::Entry;

/// Largest alignment of a parameter in bytes; a parameter buffer may be padded to it.
const PARAMETERS_ALIGN: usize = 16;
/// Numbers of attributes in the C headers (`CUfunction_attribute`).
const DYNAMIC_SHARED_MAX: u32 = 8;
const CARVEOUT: u32 = 9;
/// Values of the carve-out: a percentage, or -1 for the driver's choice.
const CARVEOUT_RANGE: std::ops::RangeInclusive<i32> = -1..=100;
/// Numbers of the attributes for clusters, which the emulator lacks. They are the last.
const CLUSTER_ATTRIBUTES: std::ops::RangeInclusive<u32> = 10..=15;

/// A kernel of a module.
#[derive(Debug)]
pub struct Function {
    pub context: Handle,
    pub module: Handle,
    pub entry: Arc<Entry>,
    /// The kernel's name for callers that want a C string; it lives as long as the function.
    pub name: CString,
    dynamic_shared_max: AtomicU32,
    carveout: AtomicI32,
    staged: Mutex<StagedLaunch>,
}

/// Returns the registry of functions.
pub fn functions() -> Answer<&'static Registry<Function>> {
    static FUNCTIONS: LazyLock<Registry<Function>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*FUNCTIONS)
}

impl Function {
    pub fn new(context: Handle, module: Handle, entry: Arc<Entry>) -> Self {
        Self {
            context,
            module,
            name: CString::new(entry.name.as_str()).unwrap_or_default(),
            dynamic_shared_max: AtomicU32::new(SHARED_BYTES_DEFAULT.saturating_sub(entry.shared_bytes)),
            carveout: AtomicI32::new(-1),
            staged: Mutex::default(),
            entry,
        }
    }

    /// Locks the function's staged launch, which is put together call by call.
    pub fn staged(&self) -> MutexGuard<'_, StagedLaunch> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum bytes of parameters that a caller may pass: those of the kernel, with padding at the end.
    pub fn params_bytes_max(&self) -> usize {
        (self.entry.params_bytes as usize).next_multiple_of(PARAMETERS_ALIGN)
    }

    /// Returns the limits of the kernel on a device. PTX counts virtual registers; a compiler for the device would limit
    /// them so that the largest block can run.
    pub fn limits(&self, device: &DeviceLimits) -> KernelLimits {
        let entry = &self.entry;
        let block_threads_max = entry.max_threads.min(device.block_threads_max);
        KernelLimits {
            block_threads_max,
            required_block: entry.required_block,
            registers: entry.registers.min(device.registers_per_block / block_threads_max.max(1)),
            shared_bytes: entry.shared_bytes,
            dynamic_shared_max: self.dynamic_shared_max.load(Ordering::Relaxed),
        }
    }

    pub fn attribute(&self, number: u32, device: &Device) -> Answer<i32> {
        let (entry, limits) = (&self.entry, self.limits(&device.limits));
        let version = device.capability.major * 10 + device.capability.minor;
        let value = match number {
            0 => limits.block_threads_max,
            1 => entry.shared_bytes,
            2 => entry.const_bytes,
            3 => entry.frame_bytes,
            4 => limits.registers,
            5 | 6 => version,
            7 => 0,
            DYNAMIC_SHARED_MAX => limits.dynamic_shared_max,
            CARVEOUT => return Ok(self.carveout.load(Ordering::Relaxed)),
            number if CLUSTER_ATTRIBUTES.contains(&number) => 0,
            _ => return Err(Status::InvalidValue),
        };
        i32::try_from(value).map_err(|_| Status::InvalidValue)
    }

    pub fn set_attribute(&self, number: u32, value: i32, device: &Device) -> Answer {
        match number {
            DYNAMIC_SHARED_MAX => {
                let most = device.limits.shared_bytes_opt_in.saturating_sub(self.entry.shared_bytes);
                let bytes = u32::try_from(value).ok().filter(|bytes| *bytes <= most).ok_or(Status::InvalidValue)?;
                self.dynamic_shared_max.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            CARVEOUT if CARVEOUT_RANGE.contains(&value) => {
                self.carveout.store(value, Ordering::Relaxed);
                Ok(())
            }
            number if CLUSTER_ATTRIBUTES.contains(&number) => Err(Status::NotSupported),
            _ => Err(Status::InvalidValue),
        }
    }
}
