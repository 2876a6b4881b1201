//! Costs that do not depend on the size of the work: a launch of one warp, and loading a module.

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch};

use crate::clock::time;
use crate::driver::Driver;
use crate::emulated::{KERNELS, Machine};
use crate::spread::Spread;

/// Number of launches per measurement; enough to make the clock's own cost negligible.
const LAUNCHES: u32 = 200;
/// Number of measurements of each kind.
const REPEATS: u32 = 15;
/// Lines of PTX for which the load time is reported.
pub const LINES: f64 = 300.0;

/// A kernel that does the minimum that shows that it ran.
const ONE_WARP: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry one_warp(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd3, %rd2, %rd3;
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd3], %r2;
    ret;
}
";
const BYTES: u64 = 128;

#[derive(Debug)]
pub struct Latency {
    /// Microseconds per launch: without the driver API, and through it up to the end of `cuCtxSynchronize`.
    pub bare_us: Spread,
    pub driver_us: Spread,
    /// CPU milliseconds to load [`LINES`] lines, scaled down from a module of `lines` lines.
    pub load_ms: Spread,
    pub lines: usize,
}

pub fn measure(machine: &Machine, emulator: &Path) -> anyhow::Result<Latency> {
    let lines = KERNELS.lines().filter(|line| !line.trim().is_empty()).count();
    let share = LINES / lines as f64;
    let load_ms = repeated(|| {
        let (module, took) = time(|| Machine::load(machine.memory()));
        module.map(|_| took.cpu * 1e3 * share)
    })?;
    Ok(Latency { bare_us: bare(machine.memory())?, driver_us: through_driver(emulator)?, load_ms, lines })
}

fn repeated(mut figure: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Spread> {
    let figures = (0..REPEATS).map(|_| figure()).collect::<anyhow::Result<Vec<f64>>>()?;
    Ok(Spread::of(figures))
}

/// Measures the microseconds of one of [`LAUNCHES`] launches.
fn each(mut launch: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Spread> {
    repeated(|| {
        let (outcome, took) = time(|| (0..LAUNCHES).try_for_each(|_| launch()));
        outcome.map(|()| took.wall * 1e6 / f64::from(LAUNCHES))
    })
}

fn bare(memory: &std::sync::Arc<Memory>) -> anyhow::Result<Spread> {
    let module = Module::load(ONE_WARP, memory, ComputeCapability { major: 8, minor: 0 })?;
    let entry = module.entry("one_warp").context("failed to find the kernel of one warp")?;
    let address = memory.alloc(BYTES)?;
    let params = address.to_le_bytes();
    let cancel = AtomicBool::new(false);
    let options = RunOptions {
        threads: 1,
        cancel: &cancel,
        instructions_max: None,
        print: &|_| {},
        vector: true,
        limits: RunLimits::default(),
    };
    let config = LaunchConfig { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0, params: &params };
    let spread = each(|| Ok(launch(&entry, &config, memory, &options)?));
    memory.free(address)?;
    spread
}

fn through_driver(emulator: &Path) -> anyhow::Result<Spread> {
    let driver = Driver::open(emulator, ONE_WARP, c"one_warp")?;
    let mut out = driver.alloc(BYTES as usize)?;
    let mut arguments = [(&raw mut out).cast::<c_void>()];
    // SAFETY: the kernel takes one address.
    each(|| unsafe { driver.launch_warp(&mut arguments) })
}
