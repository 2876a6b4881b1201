//! A kernel as its caller sees it: attributes, and how much dynamic shared memory it may have.

use std::{
    ffi::CString,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use super::{
    device::Device,
    handle::{Handle, Registry},
    limits::SHARED_BYTES_DEFAULT,
    staged_launch::StagedLaunch,
    started,
    status::{Answer, Status},
};
use crate::module::Entry;

/// The largest alignment of a parameter, to which a buffer of parameters may be padded.
const PARAMETERS_ALIGN: usize = 16;
/// Attributes by their numbers in the C headers.
const DYNAMIC_SHARED_MAX: u32 = 8;
const CARVEOUT: u32 = 9;
/// The carve-out is a percentage, or -1 for the driver's choice.
const CARVEOUT_RANGE: std::ops::RangeInclusive<i32> = -1..=100;
/// Attributes from here up to 15 concern clusters, which the emulator has not; beyond that there are none.
const CLUSTER_ATTRIBUTES: std::ops::RangeInclusive<u32> = 10..=15;

/// A kernel taken from a module.
#[derive(Debug)]
pub struct Function {
    pub context: Handle,
    pub module: Handle,
    pub entry: Arc<Entry>,
    /// For callers that ask for the name as C text: it lives as long as the function.
    pub name: CString,
    dynamic_shared_max: AtomicU32,
    carveout: AtomicI32,
    staged: Mutex<StagedLaunch>,
}

/// The functions under their handles.
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

    /// The launch that is put together call by call.
    pub fn staged(&self) -> MutexGuard<'_, StagedLaunch> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of parameters that a caller may give: those of the kernel, and padding behind them.
    pub fn params_bytes_max(&self) -> usize {
        (self.entry.params_bytes as usize).next_multiple_of(PARAMETERS_ALIGN)
    }

    /// Dynamic shared memory that a launch may ask for.
    pub fn dynamic_shared_max(&self) -> u32 {
        self.dynamic_shared_max.load(Ordering::Relaxed)
    }

    /// Threads of a block that both the kernel and the device allow.
    pub fn block_threads_max(&self, device: &Device) -> u32 {
        self.entry.max_threads.min(device.limits.block_threads_max)
    }

    /// Registers of a thread. PTX counts virtual ones; a compiler for the device would keep to what lets the largest
    /// block run.
    pub fn registers(&self, device: &Device) -> u32 {
        self.entry.registers.min(device.limits.registers_per_block / self.block_threads_max(device).max(1))
    }

    pub fn attribute(&self, number: u32, device: &Device) -> Answer<i32> {
        let entry = &self.entry;
        let version = device.capability.major * 10 + device.capability.minor;
        let value = match number {
            0 => self.block_threads_max(device),
            1 => entry.shared_bytes,
            2 => entry.const_bytes,
            3 => entry.frame_bytes,
            4 => self.registers(device),
            5 | 6 => version,
            7 => 0,
            DYNAMIC_SHARED_MAX => self.dynamic_shared_max(),
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
