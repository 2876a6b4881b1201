//! The context of a block: the state that its instructions share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::access::{Cache, Confined, View};
use super::checks::BlockChecks;
use super::config::{LaunchConfig, RunOptions};
use super::frames::Spare;
use super::matrix::Room;
use super::texture::bound::Bound;
use crate::memory::Memory;
use crate::module::Entry;
use crate::ops::lanes::{FULL, LANES};
use crate::program::Program;

/// Number of barriers of a block, on every device.
pub const BARRIERS: usize = 16;

/// Loop iterations of a warp after which another warp gets its turn.
const TURNS_OF_WARP: u32 = 4096;

/// Loop iterations of a warp in blocks that take turns: fewer, because a block that spins at a grid barrier should soon
/// let the other blocks reach it.
const TURNS_OF_WARP_IN_TURN: u32 = 128;

/// Maximum stack of a thread in bytes, whatever the context's limit is: the local memory per thread of a device.
const STACK_BYTES_MAX: u32 = 512 << 10;

/// Signals between the threads of a launch.
#[derive(Debug, Default)]
pub struct Signals {
    /// Set when a block has failed; the other blocks may stop.
    pub stop: AtomicBool,
    /// Instructions that all threads have run, counted at backward branches and calls.
    pub spent: AtomicU64,
    /// Address of a cooperative launch's workspace; 0 in other launches.
    pub workspace: u64,
}

/// Lanes of one warp that arrive at a barrier.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    pub lanes: u32,
    /// Exited lanes of the warp that were not counted before.
    pub exited: u32,
    pub votes: u32,
}

/// Arrivals at one barrier so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// Number of threads that have arrived or count as arrived.
    pub threads: u32,
    /// Number of participating threads, in whole warps, if the instruction specifies it.
    pub expected: Option<u32>,
    pub voters: u32,
    pub votes: u32,
}

impl Arrivals {
    /// Counts exiting threads whose warp waits at the barrier. If the barrier counts whole warps, they count as
    /// arrived.
    pub fn exit(&mut self, threads: u32) {
        self.threads += if self.expected.is_some() { threads } else { 0 };
    }

    pub fn all_mask(self, voters: u32) -> u32 {
        if self.votes == voters { FULL } else { 0 }
    }

    pub fn any_mask(self) -> u32 {
        if self.votes > 0 { FULL } else { 0 }
    }
}

/// The state that the instructions of a block share.
#[derive(Debug)]
pub struct Context<'a> {
    pub program: &'a Program,
    pub entry: &'a Entry,
    pub config: &'a LaunchConfig<'a>,
    pub options: &'a RunOptions<'a>,
    pub signals: &'a Signals,
    pub view: View<'a>,
    pub spare: Spare,
    pub block: [u32; 3],
    pub vector: bool,
    pub matrices: Room,
    pub barriers: [Arrivals; BARRIERS],
    /// State of the optional checks, if the memory has any.
    pub checks: Option<Box<BlockChecks>>,
    /// Bit mask of the barriers that threads have reached.
    pub come: u32,
    /// True if threads of the block have reached the cluster's barrier, perhaps in an earlier phase.
    pub at_cluster: bool,
    pub spent: u64,
    /// Bytes of a thread's stack: local memory of its functions that is known beforehand, plus the limit for recursion.
    pub stack_bytes: u32,
    /// Loop iterations of a warp before the next warp's turn.
    pub turns: u32,
    /// Storage of the view's shared memory.
    _shared: Vec<u64>,
}

impl<'a> Context<'a> {
    pub fn new(
        entry: &'a Entry,
        config: &'a LaunchConfig<'a>,
        options: &'a RunOptions<'a>,
        signals: &'a Signals,
        memory: &'a Memory,
        vector: bool,
    ) -> Context<'a> {
        let shared_bytes = dynamic_start(entry) + u64::from(config.shared_bytes);
        // Two more words, because the start is rounded up to 16 bytes for the widest access.
        let mut shared = vec![0u64; shared_bytes.div_ceil(8) as usize + 2];
        let start = (shared.as_mut_ptr() as u64).next_multiple_of(16) as *mut u8;
        let checks = memory.checks();
        let local_bytes = local_bytes(entry, options);
        let reserved = entry.program.reserved_shared;
        let block_checks = || Box::new(BlockChecks::new(checks, config.threads(), shared_bytes, local_bytes, reserved));
        let view = View {
            memory,
            shared: start,
            shared_bytes,
            params: config.params,
            caches: vec![Cache::default(); entry.program.accesses as usize],
            patterns: Default::default(),
            textures: Default::default(),
            confined: options.limits.confinement.map(|confinement| Confined {
                confinement,
                variables: &entry.storage.addresses,
                workspace: signals.workspace,
            }),
        };
        Context {
            program: &entry.program,
            entry,
            config,
            options,
            signals,
            view,
            spare: Spare::default(),
            block: [0; 3],
            vector,
            matrices: Room::default(),
            barriers: [Arrivals::default(); BARRIERS],
            checks: checks.any().then(block_checks),
            come: 0,
            at_cluster: false,
            spent: 0,
            stack_bytes: if entry.needs_stack { local_bytes as u32 } else { u32::MAX },
            turns: if signals.workspace == 0 { TURNS_OF_WARP } else { TURNS_OF_WARP_IN_TURN },
            _shared: shared,
        }
    }

    /// Returns the reason if the launch has to end now.
    #[inline(always)]
    pub fn must_stop(&self) -> Option<&'static str> {
        if self.options.cancel.load(Ordering::Relaxed) {
            return Some("the launch was cancelled");
        }
        if self.signals.stop.load(Ordering::Relaxed) {
            return Some("another block of the launch failed");
        }
        if self.options.limits.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed)) {
            return Some("the launch was interrupted: it ran too long");
        }
        match self.options.instructions_max {
            Some(limit) if self.signals.spent.load(Ordering::Relaxed) + self.spent > limit => {
                Some("the launch exceeded its instruction limit")
            }
            _ => None,
        }
    }

    /// Records that lanes of a warp have synchronised, for the race check.
    pub fn met(&mut self, warp: u32, lanes: u32) {
        if let Some(checks) = &mut self.checks {
            checks.clocks.meet(warp, lanes);
        }
    }

    /// Describes a location in the block's shared memory.
    pub fn shared_place(&self, offset: u64) -> String {
        let mut variables = self.program.shared.iter().chain(&self.program.functions[self.entry.function].shared);
        let found = variables.find(|one| (one.offset.into()..u64::from(one.offset + one.bytes)).contains(&offset));
        let place = format!("offset {offset} of shared memory");
        match (found, offset.checked_sub(dynamic_start(self.entry))) {
            (Some(one), _) => format!("{place}, {} bytes into `{}`", offset - u64::from(one.offset), one.name),
            (None, Some(offset)) => format!("{place}, {offset} bytes into its dynamic part"),
            (None, None) => place,
        }
    }

    /// Takes `bytes` from the device heap; `None` if it is used up.
    pub fn take_heap(&self, bytes: u64) -> Option<u64> {
        let address = self.view.memory.take_heap(bytes, self.options.limits.heap_bytes)?;
        if let Some(confinement) = self.options.limits.confinement {
            confinement.take_heap(address);
        }
        Some(address)
    }

    /// Returns memory to the heap; returns false if the address did not come from it.
    pub fn give_heap(&mut self, address: u64) -> bool {
        let is_own = self.options.limits.confinement.is_none_or(|confinement| confinement.give_heap(address));
        if !is_own || !self.view.memory.give_heap(address) {
            return false;
        }
        // The caches may refer to the freed memory.
        self.view.caches.fill(Cache::default());
        self.view.textures = Bound::default();
        true
    }

    /// Counts threads that arrive at a barrier.
    pub fn arrive(&mut self, id: u32, threads: Option<u32>, coming: Coming) -> Result<(), &'static str> {
        if threads.is_some_and(|threads| threads == 0 || threads % LANES as u32 != 0) {
            return Err("the thread count of a barrier is not a multiple of the warp size");
        }
        let arrivals = self.barriers.get_mut(id as usize).ok_or("barrier number above 15")?;
        if arrivals.threads > 0 && arrivals.expected != threads {
            return Err("threads reached one barrier with different thread counts");
        }
        self.come |= 1 << id;
        arrivals.expected = threads;
        arrivals.threads += coming.lanes + if threads.is_some() { coming.exited } else { 0 };
        arrivals.voters += coming.lanes;
        arrivals.votes += coming.votes;
        Ok(())
    }

    /// Makes turns shorter, because other blocks on this thread may be those that this one waits for.
    pub fn share_thread(&mut self) {
        self.turns = TURNS_OF_WARP_IN_TURN;
    }

    /// Adds the instructions of this block to those of the launch, if anything needs the sum.
    pub fn account(&mut self) {
        if self.options.instructions_max.is_some() {
            self.signals.spent.fetch_add(self.spent, Ordering::Relaxed);
        }
        self.spent = 0;
    }
}

/// Returns the local memory of a thread in bytes: that of its functions, and a stack for recursion and indirect calls.
pub fn local_bytes(entry: &Entry, options: &RunOptions) -> u64 {
    let stack = if entry.needs_stack { options.limits.stack_bytes } else { 0 };
    (u64::from(entry.frame_bytes) + u64::from(stack.min(STACK_BYTES_MAX))).next_multiple_of(16)
}

/// Returns the offset of dynamic shared memory: behind the static shared memory, aligned for any type and as its
/// variables require.
pub fn dynamic_start(entry: &Entry) -> u64 {
    u64::from(entry.shared_bytes).next_multiple_of(entry.program.dynamic_align.max(16).into())
}
