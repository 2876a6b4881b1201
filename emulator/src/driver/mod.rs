//! The state behind the driver API: the devices, contexts, streams, events, modules and memory for which callers have
//! handles.
//!
//! `exports` is the C interface over this module; nothing here handles raw out-pointers. The code that runs kernels and
//! the device memory are in the emulator's core, which does not depend on this module.
//!
//! The files form layers, and each uses only those below its own. At the bottom is the machine: settings, fault rules,
//! devices, host memory. Above it are the objects: streams and contexts, then functions and their launches, operations
//! and graphs (which refer to each other, because a graph can be the operation of a node), and captures, which record
//! operations in graphs. On top are the calls: on streams, events, modules and memory, and the submission of work.

pub mod array;
pub mod attribute;
pub mod capture;
pub mod context;
pub mod copy;
pub mod current;
pub mod device;
pub mod event;
pub mod faults;
pub mod fill;
pub mod function;
pub mod graph;
pub mod host;
pub mod host_call;
pub mod image_limits;
pub mod injection;
pub mod jit;
pub mod launch;
pub mod library;
pub mod limits;
pub mod link;
pub mod memory;
pub mod module;
pub mod operation;
pub mod output;
pub mod pinned;
pub mod pointer;
pub mod pool;
pub mod primary;
pub mod printf;
pub mod queue;
pub mod refusal;
pub mod settings;
pub mod staged_launch;
pub mod started;
pub mod stream;
pub mod submission;
pub mod teardown;
pub mod texture;
pub mod value;
pub mod virtual_memory;
pub mod visible;

use std::{
    ffi::{CStr, CString},
    sync::{Arc, OnceLock},
};

pub use gpufleet_surface::{handle, status};

use device::{Device, DeviceFault};
use faults::Injection;
use host::HostMemory;
use settings::Settings;
use status::{Answer, Status};

use crate::{clock, memory::reservations::Reservations};

/// The emulated machine. The objects that callers create are in the registries of their own modules.
#[derive(Debug)]
pub struct Driver {
    pub settings: Settings,
    pub injection: Injection,
    pub devices: Vec<Device>,
    pub host: HostMemory,
    /// Addresses that the program has reserved, for all devices.
    pub reservations: Arc<Reservations>,
}

/// The driver, or its error. The first `cuInit` sets it, even if it fails, because the environment is read only then.
static DRIVER: OnceLock<Answer<Driver>> = OnceLock::new();

/// Starts the driver; later calls return the result of the first.
pub fn start() -> Answer {
    DRIVER.get_or_init(Driver::start).as_ref().map(|_| started::set()).map_err(|status| *status)
}

/// The reason why the driver did not start. `cuGetErrorString` returns it for `CUDA_ERROR_SYSTEM_NOT_READY`.
static PROBLEM: OnceLock<CString> = OnceLock::new();

fn not_ready(problem: &str) -> Status {
    eprintln!("gpufleet emulator: {problem}");
    if let Ok(text) = CString::new(format!("system not ready: {problem}")) {
        PROBLEM.get_or_init(|| text);
    }
    Status::SystemNotReady
}

/// Returns the meaning of a code, with the reason if the driver did not start.
pub fn meaning(status: Status) -> &'static CStr {
    match PROBLEM.get() {
        Some(problem) if status == Status::SystemNotReady => problem,
        _ => status.meaning(),
    }
}

/// Returns the started driver.
pub fn driver() -> Answer<&'static Driver> {
    match DRIVER.get() {
        Some(Ok(driver)) => Ok(driver),
        Some(Err(_)) | None => Err(Status::NotInitialized),
    }
}

impl Driver {
    fn start() -> Answer<Self> {
        let settings = Settings::from_environment().map_err(|error| not_ready(&error.to_string()))?;
        if let Some(file) = &settings.clock {
            let failed = |error| not_ready(&format!("failed to read {}={file}: {error}", settings::CLOCK));
            clock::follow(file.as_ref()).map_err(failed)?;
        }
        let reservations = Arc::default();
        let parts = (0..).zip(visible::shown(&settings));
        let device = |(ordinal, part)| Device::new(ordinal, part, &settings, &reservations);
        let devices: Vec<_> = parts.map(device).collect::<Answer<_>>()?;
        if devices.is_empty() {
            return Err(Status::NoDevice);
        }
        let injection = Injection::new(settings.faults.clone());
        Ok(Self { settings, injection, devices, host: HostMemory::default(), reservations })
    }

    /// Returns the device with this ordinal.
    pub fn device(&'static self, ordinal: i32) -> Answer<&'static Device> {
        let index = usize::try_from(ordinal).map_err(|_| Status::InvalidDevice)?;
        self.devices.get(index).ok_or(Status::InvalidDevice)
    }

    /// Returns the device whose memory contains an address; `None` for host memory, pinned or not.
    pub fn device_of(&'static self, address: u64) -> Option<&'static Device> {
        if self.host.find(address as usize).is_some() {
            return None;
        }
        self.devices.iter().find(|device| device.memory.find(address).is_some())
    }

    /// Returns the fault of the first device that has one.
    pub fn first_fault(&self) -> Option<&DeviceFault> {
        self.devices.iter().find_map(Device::fault)
    }

    /// Takes at most `most` bytes of what the kernels of all devices printed.
    pub fn take_printed(&self, most: usize) -> Vec<u8> {
        self.devices.iter().fold(Vec::new(), |mut taken, device| {
            taken.extend(device.printf.take(most - taken.len()));
            taken
        })
    }
}
