//! Starts a kernel: checks its shape and gives its blocks to threads.

use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::block::{Context, Signals};
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::module::Entry;
use crate::ops::lanes::vector_available;

/// Threads below which a launch stays on the caller's thread: starting another costs more than so few take.
const THREADS_WORTH_SHARING: u64 = 4096;

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
    pub print: &'a (dyn Fn(&str) + Sync),
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

    fn block_at(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }

    /// Whether the kernel can be launched so; the reason if not.
    pub fn check(&self, entry: &Entry) -> Result<(), &'static str> {
        let threads = self.block.iter().try_fold(1u32, |product, n| product.checked_mul(*n));
        let blocks = self.grid.iter().try_fold(1u64, |product, n| product.checked_mul(u64::from(*n)));
        match (threads, blocks) {
            (None | Some(0), _) => Err("a block without threads, or with too many"),
            (Some(threads), _) if threads > entry.max_threads => Err("more threads in a block than the kernel allows"),
            (_, None | Some(0)) => Err("a grid without blocks, or with too many"),
            _ if entry.required_block.is_some_and(|shape| shape != self.block) => {
                Err("not the block that the kernel requires")
            }
            _ if self.params.len() < entry.params_bytes as usize => Err("too few bytes of parameters"),
            _ => Ok(()),
        }
    }
}

/// Runs `entry` to its end. Memory stays as the kernel left it, also after a fault.
pub fn launch(entry: &Entry, config: &LaunchConfig, memory: &Memory, options: &RunOptions) -> Result<(), Fault> {
    if let Err(reason) = config.check(entry) {
        let report = format!("{reason}, in a launch of kernel `{}`", entry.name);
        return Err(Fault { kind: FaultKind::LaunchFailed, report });
    }
    let signals = Signals::default();
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
    let small = blocks.saturating_mul(config.threads().into()) < THREADS_WORTH_SHARING;
    let helpers = if small { 0 } else { (options.threads.max(1) as u64 - 1).min(blocks - 1) };
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| run.blocks(blocks));
        }
        run.blocks(blocks);
    });
    let fault = run.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(Ok(()), |(_, fault)| Err(fault))
}

/// One launch, as its threads share it.
struct Run<'a> {
    entry: &'a Entry,
    config: &'a LaunchConfig<'a>,
    memory: &'a Memory,
    options: &'a RunOptions<'a>,
    signals: &'a Signals,
    vector: bool,
    /// The next block that nobody has taken.
    next: AtomicU64,
    /// The first fault, with its block.
    fault: Mutex<Option<(u64, Fault)>>,
}

impl Run<'_> {
    /// Takes blocks until there are none left or one has failed.
    fn blocks(&self, blocks: u64) {
        let mut cx = Context::new(self.entry, self.config, self.options, self.signals, self.memory, self.vector);
        let mut warps = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= blocks || self.signals.stop.load(Ordering::Relaxed) {
                return;
            }
            let result = match cx.must_stop() {
                Some(what) => Err(self.stopped(what)),
                None => cx.run_block(self.config.block_at(index), &mut warps),
            };
            if let Err(fault) = result {
                self.signals.stop.store(true, Ordering::Relaxed);
                let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                // A block that only stopped because another failed has nothing to tell.
                if first.as_ref().is_none_or(|(_, known)| known.kind == FaultKind::Timeout && fault.kind != known.kind)
                {
                    *first = Some((index, fault));
                }
                return;
            }
        }
    }

    fn stopped(&self, what: &str) -> Fault {
        Fault { kind: FaultKind::Timeout, report: format!("{what}, in kernel `{}`", self.entry.name) }
    }
}
