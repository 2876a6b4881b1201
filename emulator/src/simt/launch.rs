//! Starts a kernel: checks its shape and gives its blocks to threads.

use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::block::{Context, Signals};
use super::cooperative::Workspace;
use super::team;
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::module::Entry;
use crate::ops::lanes::vector_available;

/// Threads below which a launch stays on the caller's thread: starting another costs more than so few take.
const THREADS_WORTH_SHARING: u64 = 4096;

/// The same for kernels with loops, whose threads take longer.
const LOOPING_THREADS_WORTH_SHARING: u64 = 1024;

/// Blocks are taken so many times by each thread, so that all end at about the same time; more often where blocks are
/// few, and at most so many at once. What threads count together is a place that they wait for each other at.
const TAKES_OF_THREAD: u64 = 16;
const TAKEN_MAX: u64 = 32;

/// The shape of a launch and the kernel's parameters, laid out as [`Entry::params`] says.
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig<'a> {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Dynamic shared memory, behind what the kernel declares.
    pub shared_bytes: u32,
    pub params: &'a [u8],
}

/// How a launch is run.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Threads of the host that run blocks.
    pub threads: usize,
    /// Ends the launch early when set.
    pub cancel: &'a AtomicBool,
    /// Ends the launch after about so many instructions, counted for each warp.
    pub instructions_max: Option<u64>,
    /// Takes what kernels print.
    pub print: &'a (dyn Fn(&[u8]) + Sync),
    /// Use the vector instructions of this machine, where it has them. The results are the same.
    pub vector: bool,
}

impl fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("threads", &self.threads)
            .field("instructions_max", &self.instructions_max)
            .field("vector", &self.vector)
            .finish_non_exhaustive()
    }
}

impl LaunchConfig<'_> {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    pub(super) fn block_at(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }

    /// Whether the kernel can be launched so; the reason if not.
    pub fn check(&self, entry: &Entry) -> Result<(), &'static str> {
        let threads = self.block.iter().try_fold(1u32, |product, n| product.checked_mul(*n));
        let blocks = self.grid.iter().try_fold(1u64, |product, n| product.checked_mul(u64::from(*n)));
        match (threads, blocks) {
            (None | Some(0), _) => Err("a block with no threads or too many"),
            (Some(threads), _) if threads > entry.max_threads => Err("more threads in a block than the kernel allows"),
            (_, None | Some(0)) => Err("a grid with no blocks or too many"),
            _ if entry.required_block.is_some_and(|shape| shape != self.block) => {
                Err("not the block size that the kernel requires")
            }
            _ if self.params.len() < entry.params_bytes as usize => Err("too few bytes of parameters"),
            _ => Ok(()),
        }
    }
}

/// Runs `entry` to its end. Memory stays as the kernel left it, also after a fault.
pub fn launch(entry: &Entry, config: &LaunchConfig, memory: &Memory, options: &RunOptions) -> Result<(), Fault> {
    start(entry, config, memory, options, Signals::default())
}

/// As [`launch`], with all blocks under way at once, so that they can wait for each other.
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
    };
    let blocks = config.blocks();
    let loops = entry.program.functions[entry.function].has_loop;
    let worth = if loops { LOOPING_THREADS_WORTH_SHARING } else { THREADS_WORTH_SHARING };
    let small = blocks.saturating_mul(config.threads().into()) < worth;
    let helpers = if small { 0 } else { (options.threads.max(1) as u64 - 1).min(blocks - 1) };
    let (run, cooperative, members) = (&run, signals.workspace != 0, helpers as usize + 1);
    let taken = (blocks / (members as u64 * TAKES_OF_THREAD)).clamp(1, TAKEN_MAX);
    if cooperative {
        // All of them have to come: blocks wait for those of the others.
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

/// One launch, as its threads share it.
pub(super) struct Run<'a> {
    entry: &'a Entry,
    pub(super) config: &'a LaunchConfig<'a>,
    memory: &'a Memory,
    options: &'a RunOptions<'a>,
    pub(super) signals: &'a Signals,
    vector: bool,
    /// The next block to run.
    next: AtomicU64,
    /// The first fault, with its block.
    fault: Mutex<Option<(u64, Fault)>>,
}

impl Run<'_> {
    /// Takes blocks, so many at a time, until there are none left or one has failed. Each is run to its end in the order
    /// of their numbers, so that a block may wait for those before it.
    fn blocks(&self, blocks: u64, taken: u64) {
        let mut cx = self.context();
        let mut warps = Vec::new();
        loop {
            let first = self.next.fetch_add(taken, Ordering::Relaxed);
            if first >= blocks {
                return;
            }
            for index in first..blocks.min(first + taken) {
                if self.signals.stop.load(Ordering::Relaxed) {
                    return;
                }
                let result = match cx.must_stop() {
                    Some(what) => Err(self.stopped(what, index)),
                    None => cx.run_block(self.config.block_at(index), &mut warps),
                };
                if let Err(fault) = result {
                    return self.fail(index, fault);
                }
            }
        }
    }

    /// What a block needs to run on this thread.
    pub(super) fn context(&self) -> Context<'_> {
        Context::new(self.entry, self.config, self.options, self.signals, self.memory, self.vector)
    }

    /// Ends the launch with the fault of block `index`.
    pub(super) fn fail(&self, index: u64, fault: Fault) {
        let stopped = self.signals.stop.swap(true, Ordering::Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        // A block that only stopped because another failed has nothing to tell.
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
