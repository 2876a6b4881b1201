//! What a launch is asked to do: its shape and parameters, how it runs, and its limits.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::memory::confinement::Confinement;
use crate::module::Entry;

/// The shape of a launch, and the kernel's parameters, laid out as [`Entry::params`] says.
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig<'a> {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory, in addition to what the kernel declares.
    pub shared_bytes: u32,
    pub params: &'a [u8],
}

/// How a launch is run.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Number of host threads that run blocks.
    pub threads: usize,
    /// Ends the launch early when set.
    pub cancel: &'a AtomicBool,
    /// Ends the launch after about this many instructions, counted per warp.
    pub instructions_max: Option<u64>,
    /// Receives the output of `printf` in kernels.
    pub print: &'a (dyn Fn(&[u8]) + Sync),
    /// Uses the machine's vector instructions if it has them. The results are equal.
    pub vector: bool,
    pub limits: RunLimits<'a>,
}

/// What a context and a job allow their kernels.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits<'a> {
    /// Local memory of a thread in bytes for recursion and calls through pointers.
    pub stack_bytes: u32,
    /// Maximum bytes that `malloc` in kernels may take.
    pub heap_bytes: u64,
    /// Number of blocks that may wait for each other in a launch that is not cooperative.
    pub resident_blocks: u64,
    /// The only memory that the kernel may access, in addition to the module's variables.
    pub confinement: Option<&'a Confinement>,
    /// Ends the launch as one that ran too long when set.
    pub interrupt: Option<&'a AtomicBool>,
}

impl Default for RunLimits<'_> {
    /// Returns the defaults of a device.
    fn default() -> Self {
        Self { stack_bytes: 1 << 10, heap_bytes: 8 << 20, resident_blocks: 64, confinement: None, interrupt: None }
    }
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
    /// Returns the number of threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Returns the number of blocks of the grid.
    pub(super) fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    /// Returns the place of a block in the grid.
    pub(super) fn block_at(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }

    /// Checks the shape for the kernel; the error is the reason.
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
