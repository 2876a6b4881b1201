//! Launches: checks the shape of a launch and distributes its blocks over threads.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::config::{LaunchConfig, RunOptions};
use super::context::{Context, Signals, local_bytes};
use super::cooperative::Workspace;
use super::resident::{Portions, Resident};
use super::team;
use super::warp::Warps;
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::module::Entry;
use crate::ops::lanes::{LANES, vector_available};

/// Number of threads below which a launch stays on the calling thread, because involving another thread costs more than
/// running them.
const THREADS_WORTH_SHARING: u64 = 4096;

/// Number of threads below which a launch of a kernel with loops stays on the calling thread. It is lower, because such
/// threads run longer.
const LOOPING_THREADS_WORTH_SHARING: u64 = 1024;

/// Number of portions in which each thread takes its blocks, so that all threads end at about the same time; and the
/// maximum blocks of a portion. Portions are not smaller, because all threads contend for the shared counter.
const TAKES_OF_THREAD: u64 = 16;
const TAKEN_MAX: u64 = 32;

/// Maximum host memory in bytes for blocks that wait for each other, in a launch that is not cooperative.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

/// Runs `entry` to its end. Memory stays as the kernel left it, even after a fault.
pub fn launch(entry: &Entry, config: &LaunchConfig, memory: &Memory, options: &RunOptions) -> Result<(), Fault> {
    start(entry, config, memory, options, Signals::default())
}

/// Runs a launch like [`launch`], with all blocks in progress at once, so that they can wait for each other.
pub fn launch_cooperative(
    entry: &Entry,
    config: &LaunchConfig,
    memory: &Memory,
    options: &RunOptions,
) -> Result<(), Fault> {
    let workspace = Workspace::new(memory);
    start(entry, config, memory, options, Signals { workspace: workspace.address(), ..Signals::default() })
}

fn start(
    entry: &Entry,
    config: &LaunchConfig,
    memory: &Memory,
    options: &RunOptions,
    signals: Signals,
) -> Result<(), Fault> {
    if let Err(reason) = config.check(entry) {
        let report = format!("{reason}, in a launch of kernel `{}`", entry.name);
        return Err(Fault { kind: FaultKind::LaunchFailed, report });
    }
    if let Some(report) = entry.refusal() {
        return Err(Fault { kind: FaultKind::IllegalInstruction, report });
    }
    let run = Run {
        entry,
        config,
        memory,
        options,
        signals: &signals,
        vector: options.vector && vector_available(),
        next: AtomicU64::new(0),
        fault: Mutex::new(None),
        places: places(entry, config, options),
        resident: AtomicU64::new(0),
    };
    let blocks = config.blocks();
    let loops = entry.program.functions[entry.function].has_loop;
    let worth = if loops { LOOPING_THREADS_WORTH_SHARING } else { THREADS_WORTH_SHARING };
    let small = blocks.saturating_mul(config.threads().into()) < worth;
    let helpers = if small { 0 } else { (options.threads.max(1) as u64 - 1).min(blocks - 1) };
    let (run, cooperative, members) = (&run, signals.workspace != 0, helpers as usize + 1);
    let taken = (blocks / (members as u64 * TAKES_OF_THREAD)).clamp(1, TAKEN_MAX);
    if cooperative {
        // All threads have to take part, because blocks wait for those on other threads.
        thread::scope(|scope| {
            for member in 1..=helpers {
                scope.spawn(move || run.together((member..blocks).step_by(members)));
            }
            run.together((0..blocks).step_by(members));
        });
    } else {
        team::together(helpers as usize, &|| run.blocks(blocks, taken));
    }
    let fault = run.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
    fault.map_or(Ok(()), |(_, fault)| Err(fault))
}

/// One launch, shared by its threads.
pub(super) struct Run<'a> {
    entry: &'a Entry,
    pub(super) config: &'a LaunchConfig<'a>,
    memory: &'a Memory,
    options: &'a RunOptions<'a>,
    pub(super) signals: &'a Signals,
    vector: bool,
    /// Number of the next block to run.
    pub(super) next: AtomicU64,
    /// Number of blocks that may be in progress in addition to one on each thread, and of those that are.
    pub(super) places: u64,
    pub(super) resident: AtomicU64,
    /// The first fault, with its block.
    fault: Mutex<Option<(u64, Fault)>>,
}

/// Returns how many blocks may be in progress in addition to one on each thread: as many as the device runs at a time,
/// within bounded memory.
fn places(entry: &Entry, config: &LaunchConfig, options: &RunOptions) -> u64 {
    let frame = u64::from(entry.program.functions[entry.function].frame_bytes);
    let warp = frame + LANES as u64 * local_bytes(entry, options);
    let warps = u64::from(config.threads().div_ceil(LANES as u32));
    let block = u64::from(entry.shared_bytes) + u64::from(config.shared_bytes) + warps * warp;
    options.limits.resident_blocks.saturating_sub(1).min(RESIDENT_BYTES_MAX / block.max(1))
}

impl<'a> Run<'a> {
    /// Runs blocks, which it takes in portions, until none are left or one has failed. Each block runs to its end, in
    /// order, so that it may wait for earlier ones; one that takes long runs together with later ones.
    fn blocks(&'a self, blocks: u64, portion: u64) {
        let mut cx = self.context();
        let (mut warps, mut portions) = (Warps::new(), Portions::new(blocks, portion));
        while let Some(index) = portions.next(self) {
            if self.signals.stop.load(Ordering::Relaxed) {
                return;
            }
            let result = match cx.must_stop() {
                Some(what) => Err(self.stopped(what, index)),
                None => cx.run_block(self.config.block_at(index), &mut warps),
            };
            match result {
                Ok(None) => {}
                Ok(Some(run)) => return self.beside(Resident::started(index, cx, run, warps), &mut portions),
                Err(fault) => return self.fail(index, fault),
            }
        }
    }

    /// Returns what a block needs to run on this thread.
    pub(super) fn context(&'a self) -> Context<'a> {
        Context::new(self.entry, self.config, self.options, self.signals, self.memory, self.vector)
    }

    /// Ends the launch with the fault of block `index`.
    pub(super) fn fail(&self, index: u64, fault: Fault) {
        let stopped = self.signals.stop.swap(true, Ordering::Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        // A block that only stopped because another failed has the less informative fault.
        let tells_more = |known: &Fault| known.kind == FaultKind::Timeout && fault.kind != known.kind;
        if first.as_ref().map_or(!stopped || fault.kind != FaultKind::Timeout, |(_, known)| tells_more(known)) {
            *first = Some((index, fault));
        }
    }

    fn stopped(&self, what: &str, block: u64) -> Fault {
        let (name, blocks) = (&self.entry.name, self.config.blocks());
        let report = format!("{what} in kernel `{name}`\n  before block {} of {blocks} started", block + 1);
        Fault { kind: FaultKind::Timeout, report }
    }
}
