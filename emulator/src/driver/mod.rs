//! The state behind the driver API: devices, contexts, streams, events, modules and memory that callers hold handles to.
//!
//! `exports` is the C surface over this module; nothing in here knows about raw out-pointers. What runs a kernel and
//! what holds device memory are parts of the emulator's core and know nothing of this module.

pub mod attribute;
pub mod capture;
pub mod context;
pub mod copy;
pub mod current;
pub mod device;
pub mod event;
pub mod fill;
pub mod function;
pub mod graph;
pub mod handle;
pub mod host;
pub mod injection;
pub mod jit;
pub mod launch;
pub mod library;
pub mod limits;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod operation;
pub mod pointer;
pub mod pool;
pub mod printf;
pub mod queue;
pub mod settings;
pub mod status;
pub mod stream;
pub mod value;
pub mod visible;

use std::sync::OnceLock;

use context::Context;
use device::Device;
use event::Event;
use function::Function;
use graph::{Graph, exec::Exec, user_object::UserObject};
use handle::Registry;
use host::HostMemory;
use injection::Injection;
use module::Module;
use pool::Pool;
use settings::Settings;
use status::{Answer, Status};
use stream::Stream;

/// Everything that lives as long as the process.
#[derive(Debug)]
pub struct Driver {
    pub settings: Settings,
    pub injection: Injection,
    pub devices: Vec<Device>,
    pub host: HostMemory,
    pub contexts: Registry<Context>,
    pub streams: Registry<Stream>,
    pub events: Registry<Event>,
    pub modules: Registry<Module>,
    pub functions: Registry<Function>,
    pub pools: Registry<Pool>,
    pub graphs: Registry<Graph>,
    /// For each node of a graph the graph's handle.
    pub nodes: Registry<handle::Handle>,
    pub execs: Registry<Exec>,
    pub user_objects: Registry<UserObject>,
    pub libraries: Registry<library::Library>,
    pub kernels: Registry<library::Kernel>,
}

/// Set once by the first `cuInit`, also when that fails: the environment is read only then.
static DRIVER: OnceLock<Answer<Driver>> = OnceLock::new();

/// Starts the driver, or answers what the first start answered.
pub fn start() -> Answer {
    DRIVER.get_or_init(Driver::start).as_ref().map(|_| ()).map_err(|status| *status)
}

/// The started driver.
pub fn driver() -> Answer<&'static Driver> {
    match DRIVER.get() {
        Some(Ok(driver)) => Ok(driver),
        Some(Err(_)) | None => Err(Status::NotInitialized),
    }
}

impl Driver {
    fn start() -> Answer<Self> {
        let settings = Settings::from_environment().map_err(|error| {
            // There is no other way out: the driver API carries no text for a failed start.
            eprintln!("gpufleet emulator: failed to {error}");
            Status::SystemNotReady
        })?;
        let pools = Registry::default();
        let parts = (0..).zip(visible::shown(&settings));
        let devices: Vec<_> =
            parts.map(|(ordinal, part)| Device::new(ordinal, part, &settings, &pools)).collect::<Answer<_>>()?;
        if devices.is_empty() {
            return Err(Status::NoDevice);
        }
        Ok(Self {
            injection: Injection::new(settings.faults.clone()),
            settings,
            devices,
            host: HostMemory::default(),
            contexts: Registry::default(),
            streams: Registry::default(),
            events: Registry::default(),
            modules: Registry::default(),
            functions: Registry::default(),
            pools,
            graphs: Registry::default(),
            nodes: Registry::default(),
            execs: Registry::default(),
            user_objects: Registry::default(),
            libraries: Registry::default(),
            kernels: Registry::default(),
        })
    }

    /// The device with this ordinal.
    pub fn device(&'static self, ordinal: i32) -> Answer<&'static Device> {
        let index = usize::try_from(ordinal).map_err(|_| Status::InvalidDevice)?;
        self.devices.get(index).ok_or(Status::InvalidDevice)
    }

    /// Forgets every object of a context that has ended.
    pub(crate) fn forget_context(&self, context: handle::Handle) {
        self.functions.retain(|function| function.context != context);
        self.modules.retain(|module| module.context != context);
        self.events.retain(|event| event.context != context);
        self.streams.retain(|stream| stream.context != context);
    }
}
