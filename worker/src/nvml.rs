//! Bindings to the functions of NVIDIA's management library (NVML) that list devices and read their sensors.
//!
//! Only child processes load the library. It uses the same kernel driver as CUDA: on a failed GPU a call may hang where no signal reaches
//! it, or crash the process. Neither may happen to the supervisor.

mod monitor;

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;
use serde::{Deserialize, Serialize};

pub use self::monitor::{Args, PERIOD, main};

/// File name under which the driver installs the library.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// Size of the buffer for a UUID, from `nvml.h`: enough for every device, including slices.
const UUID_BYTES: usize = 96;
/// Number of the sensor on the GPU's die, from `nvml.h`.
const TEMPERATURE_GPU: c_uint = 0;

/// The loaded and initialised library.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
}

/// Why the library can't be used.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    #[error("failed to open {name}: {source}")]
    Open { name: String, source: libloading::Error },
    #[error("failed to use {name}: {call} failed with {code}")]
    Call { name: String, call: &'static str, code: c_int },
}

/// A GPU or a MIG slice of one.
#[derive(Debug)]
pub struct NvmlDevice {
    pub uuid: String,
    handle: Handle,
    /// The GPU that contains this slice; `None` for a whole GPU.
    gpu: Option<Handle>,
}

/// The sensors of a device. A value that the library does not report is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub uuid: String,
    pub memory_used_bytes: Option<u64>,
    /// The percentage of the last sampling period (a second or less) in which a kernel ran. NVML does not report it for slices.
    pub utilization_percent: Option<u32>,
    /// The temperature of the whole GPU, also for a slice.
    pub temperature_celsius: Option<u32>,
    /// The power draw of the whole GPU, also for a slice.
    pub power_milliwatts: Option<u32>,
}

type Handle = *mut c_void;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

impl Nvml {
    pub fn open(name: &str) -> Result<Self, NvmlError> {
        // SAFETY: the initialisers of NVML only set up its own state. If the path names another library, the operator vouches for it.
        let library = unsafe { Library::new(OsStr::new(name)) };
        let library = library.map_err(|source| NvmlError::Open { name: name.to_owned(), source })?;
        // SAFETY: the type is that of nvml.h.
        let code = match unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0") } {
            // SAFETY: as above.
            Ok(init) => unsafe { init() },
            Err(source) => return Err(NvmlError::Open { name: name.to_owned(), source }),
        };
        match code {
            0 => Ok(Self { library }),
            code => Err(NvmlError::Call { name: name.to_owned(), call: "nvmlInit_v2", code }),
        }
    }

    /// Lists all GPUs in the order of their buses, with the slices of a partitioned GPU in place of the GPU. A GPU that does not answer is
    /// left out.
    pub fn devices(&self) -> Vec<NvmlDevice> {
        let Some(count) = self.number("nvmlDeviceGetCount_v2\0", &[]) else { return Vec::new() };
        let mut devices = Vec::new();
        for index in 0..count {
            let Some(gpu) = self.handle("nvmlDeviceGetHandleByIndex_v2\0", None, index) else { continue };
            let slices = self.slices(gpu);
            if slices.is_empty() {
                devices.extend(self.uuid(gpu).map(|uuid| NvmlDevice { uuid, handle: gpu, gpu: None }));
            }
            devices.extend(slices);
        }
        devices
    }

    /// Reads the sensors of a device.
    pub fn read(&self, device: &NvmlDevice) -> Reading {
        let gpu = device.gpu.unwrap_or(device.handle);
        let memory = self.structure::<MemoryInfo>("nvmlDeviceGetMemoryInfo\0", device.handle);
        let utilization = self.structure::<Utilization>("nvmlDeviceGetUtilizationRates\0", device.handle);
        Reading {
            uuid: device.uuid.clone(),
            memory_used_bytes: memory.map(|memory| memory.used),
            utilization_percent: utilization.map(|utilization| utilization.gpu),
            temperature_celsius: self.temperature(gpu),
            power_milliwatts: self.number("nvmlDeviceGetPowerUsage\0", &[gpu]),
        }
    }

    fn slices(&self, gpu: Handle) -> Vec<NvmlDevice> {
        let count = self.number("nvmlDeviceGetMaxMigDeviceCount\0", &[gpu]).unwrap_or(0);
        let slice = |index| {
            let handle = self.handle("nvmlDeviceGetMigDeviceHandleByIndex\0", Some(gpu), index)?;
            Some(NvmlDevice { uuid: self.uuid(handle)?, handle, gpu: Some(gpu) })
        };
        // Slice numbers may have gaps.
        (0..count).filter_map(slice).collect()
    }

    fn uuid(&self, device: Handle) -> Option<String> {
        let uuid = self.symbol::<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int>("nvmlDeviceGetUUID\0")?;
        let mut text = [0_u8; UUID_BYTES];
        // SAFETY: the type is that of nvml.h, the handle comes from the library, and the buffer has the length that is passed.
        let code = unsafe { uuid(device, text.as_mut_ptr().cast(), UUID_BYTES as c_uint) };
        let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
        (code == 0).then(|| text.to_owned())
    }

    fn temperature(&self, device: Handle) -> Option<u32> {
        let call =
            self.symbol::<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int>("nvmlDeviceGetTemperature\0")?;
        let mut value = 0;
        // SAFETY: the type is that of nvml.h, the handle comes from the library, and `value` is a valid place for the result.
        (unsafe { call(device, TEMPERATURE_GPU, &raw mut value) } == 0).then_some(value)
    }

    /// Calls a function that returns a number. `device` has one handle, or none for a function without a device.
    fn number(&self, name: &'static str, device: &[Handle]) -> Option<u32> {
        let mut value: c_uint = 0;
        let code = match device {
            [] => {
                let call = self.symbol::<unsafe extern "C" fn(*mut c_uint) -> c_int>(name)?;
                // SAFETY: the functions that are called without a device have this type in nvml.h, and `value` is a valid place for the
                // result.
                unsafe { call(&raw mut value) }
            }
            [device, ..] => {
                let call = self.symbol::<unsafe extern "C" fn(Handle, *mut c_uint) -> c_int>(name)?;
                // SAFETY: the functions that are called with a device have this type in nvml.h, the handle comes from the library, and
                // `value` is a valid place for the result.
                unsafe { call(*device, &raw mut value) }
            }
        };
        (code == 0).then_some(value)
    }

    /// Calls a function that returns a handle by index: of a GPU, or of a slice of the GPU `of`.
    fn handle(&self, name: &'static str, of: Option<Handle>, index: c_uint) -> Option<Handle> {
        let mut handle: Handle = std::ptr::null_mut();
        let code = match of {
            None => {
                let call = self.symbol::<unsafe extern "C" fn(c_uint, *mut Handle) -> c_int>(name)?;
                // SAFETY: the function that is called without a GPU has this type in nvml.h, and `handle` is a valid place for the result.
                unsafe { call(index, &raw mut handle) }
            }
            Some(gpu) => {
                let call = self.symbol::<unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int>(name)?;
                // SAFETY: the function that is called with a GPU has this type in nvml.h, `gpu` comes from the library, and `handle` is a
                // valid place for the result.
                unsafe { call(gpu, index, &raw mut handle) }
            }
        };
        (code == 0).then_some(handle)
    }

    /// Calls a function that fills a structure for a device.
    fn structure<T: Default>(&self, name: &'static str, device: Handle) -> Option<T> {
        let call = self.symbol::<unsafe extern "C" fn(Handle, *mut T) -> c_int>(name)?;
        let mut value = T::default();
        // SAFETY: both structures are laid out as in nvml.h, the handle comes from the library, and `value` is a valid place for the
        // result.
        (unsafe { call(device, &raw mut value) } == 0).then_some(value)
    }

    /// Looks up a function of the library, which an older version may lack. The caller must know the function's type.
    fn symbol<T: Copy>(&self, name: &'static str) -> Option<T> {
        debug_assert!(CString::from_vec_with_nul(name.into()).is_ok(), "{name:?} ends with its only NUL");
        // SAFETY: this only looks up the symbol; the callers, which know its type, call it.
        unsafe { self.library.get::<T>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }
}
