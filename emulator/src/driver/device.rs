//! An emulated device: its memory, its fault and its primary context.
//!
//! As on a GPU, a fault sticks to the device until the process ends; new contexts have it too.

use std::{
    env::consts::ARCH,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use gpufleet_surface::launch::limits::DeviceLimits;

use super::{
    graph::bytes::GraphBytes,
    handle::{Handle, fresh},
    limits,
    memory::table::Allocations,
    pool::{POOLS, Pool},
    printf::Printf,
    settings::Settings,
    status::{Answer, Status},
    visible::Part,
};
use crate::{
    memory::{Memory, reservations::Reservations},
    module::ComputeCapability,
};

/// A device of the emulated machine.
#[derive(Debug)]
pub struct Device {
    /// Device ordinal in this process.
    pub ordinal: i32,
    /// The part of the machine that it shows: a device or a slice.
    pub part: Part,
    pub capability: ComputeCapability,
    pub limits: DeviceLimits,
    pub threads: usize,
    /// Maximum instructions of a launch; beyond that it counts as endless. `None` for no limit.
    pub instructions_max: Option<u64>,
    pub memory: Arc<Memory>,
    pub allocations: Allocations,
    pub printf: Printf,
    pub default_pool: Handle,
    /// Bytes that graphs have allocated, and their maximum.
    pub graph_bytes: GraphBytes,
    current_pool: AtomicUsize,
    fault: OnceLock<DeviceFault>,
}

/// The sticky error of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault {
    pub status: Status,
    /// Report with kernel, line, thread and address, as far as they are known.
    pub report: String,
    /// Name of the kernel that caused it. The report can contain text from the kernel, so it can't identify the kernel.
    pub kernel: Option<String>,
}

impl DeviceFault {
    /// Makes a fault that no kernel caused.
    pub fn new(status: Status, report: String) -> Self {
        Self { status, report, kernel: None }
    }

    pub fn of_kernel(self, kernel: &str) -> Self {
        Self { kernel: Some(kernel.to_owned()), ..self }
    }
}

impl Device {
    pub fn new(ordinal: u32, part: Part, settings: &Settings, reservations: &Arc<Reservations>) -> Answer<Self> {
        let memory_bytes = settings.memory_bytes / u64::from(settings.slices.max(1));
        let memory = Memory::beside(Arc::clone(reservations), memory_bytes, settings.checks).map_err(|error| {
            eprintln!("gpufleet emulator: failed to reserve {memory_bytes} bytes for a device: {error}");
            Status::OutOfMemory
        })?;
        let ordinal = ordinal.cast_signed();
        // Each host thread runs one block at a time, as a multiprocessor runs its blocks.
        let multiprocessors = u32::try_from(settings.threads).unwrap_or(u32::MAX);
        let default_pool = fresh();
        POOLS.insert(default_pool, Arc::new(Pool::new(ordinal, 0)));
        Ok(Self {
            ordinal,
            part,
            capability: settings.compute_capability,
            limits: limits::of(settings.compute_capability, multiprocessors),
            threads: settings.threads,
            instructions_max: settings.instructions_max,
            memory: Arc::new(memory),
            allocations: Allocations::default(),
            printf: Printf::default(),
            default_pool,
            graph_bytes: GraphBytes::default(),
            current_pool: AtomicUsize::new(default_pool),
            fault: OnceLock::new(),
        })
    }

    /// Returns the name, which shows that timings of this device are not those of a GPU.
    pub fn name(&self) -> String {
        format!("gpufleet emulator (CPU, {})", instruction_set())
    }

    /// Returns a PCI address that no real device has: domain `ffff`.
    pub fn pci_bus_id(&self) -> String {
        format!("FFFF:{:02X}:00.0", self.part.device)
    }

    pub fn fault(&self) -> Option<&DeviceFault> {
        self.fault.get()
    }

    /// Returns the sticky error, if there is one.
    pub fn check(&self) -> Answer {
        self.fault().map_or(Ok(()), |fault| Err(fault.status))
    }

    /// Makes a fault sticky; the first one stays.
    pub fn raise(&self, fault: DeviceFault) {
        // A later fault of work in flight is less informative than the first.
        let _ = self.fault.set(fault);
    }

    pub fn current_pool(&self) -> Handle {
        self.current_pool.load(Ordering::Relaxed)
    }

    pub fn set_current_pool(&self, pool: Handle) {
        self.current_pool.store(pool, Ordering::Relaxed);
    }
}

fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return "AVX2";
    }
    ARCH
}
