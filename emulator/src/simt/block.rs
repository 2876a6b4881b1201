//! One block: runs its warps in turn, with its barriers and the state that its instructions share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::access::{Cache, Confined, View};
use super::checks::BlockChecks;
use super::frames::Spare;
use super::launch::{LaunchConfig, RunOptions};
use super::matrix::Room;
use super::specials::dynamic_start;
use super::texture::Bound;
use super::warp::{Pause, Standing, Warp, Warps};
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::module::Entry;
use crate::ops::lanes::{FULL, LANES};
use crate::program::Program;

/// Number of barriers of a block, on every device.
const BARRIERS: usize = 16;

/// Number of the cluster's barrier, for the race check.
const CLUSTER: u32 = BARRIERS as u32;

/// Loop iterations of a warp after which another warp gets its turn.
const TURNS_OF_WARP: u32 = 4096;

/// Loop iterations of a warp in blocks that take turns: fewer, because a block that spins at a grid barrier should soon
/// let the other blocks reach it.
const TURNS_OF_WARP_IN_TURN: u32 = 128;

/// Maximum stack of a thread in bytes, whatever the context's limit is: the local memory per thread of a device.
const STACK_BYTES_MAX: u32 = 512 << 10;

/// Maximum number of places that a report names for the threads of a block; further places are only counted.
const STANDINGS_MAX: usize = 3;

/// Instructions of a block's warps after which the thread also runs other blocks, because the block may wait for a
/// later one.
const PATIENCE: u64 = 1 << 22;

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
    threads: u32,
    /// Number of participating threads, in whole warps, if the instruction specifies it.
    expected: Option<u32>,
    voters: u32,
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
    come: u32,
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

    /// Runs one block to its end. If it takes long or sleeps, it may wait for another block, and its state is returned.
    /// `warps` are warps of earlier blocks, which are reused.
    pub fn run_block(&mut self, block: [u32; 3], warps: &mut Warps) -> Result<Option<BlockRun>, Fault> {
        let mut run = BlockRun::new(block, self);
        let result = run.warps(self, warps);
        self.account();
        match result {
            Ok(()) if !run.is_finished() => Ok(Some(run)),
            _ => {
                warps.append(&mut run.waiting);
                result.map(|()| None)
            }
        }
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

/// A block in progress.
#[derive(Debug)]
pub struct BlockRun {
    /// Number of threads that have not exited.
    threads: u32,
    /// Number of threads in the warps that have started.
    started: u32,
    /// Warps that have started and not finished.
    waiting: Warps,
}

impl BlockRun {
    /// Prepares `cx` for `block`, before its first turn.
    pub fn new(block: [u32; 3], cx: &mut Context) -> BlockRun {
        cx.block = block;
        cx.barriers = [Arrivals::default(); BARRIERS];
        cx.come = 0;
        cx.at_cluster = false;
        // SAFETY: the view's shared memory is the context's own, of that size.
        unsafe { cx.view.shared.write_bytes(0, cx.view.shared_bytes as usize) };
        if let Some(checks) = &mut cx.checks {
            checks.start_block();
        }
        BlockRun { threads: cx.config.threads(), started: 0, waiting: Vec::new() }
    }

    fn warps(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<(), Fault> {
        self.start(cx, spare)?;
        while !self.is_finished() && cx.spent <= PATIENCE && self.asleep_until().is_none() {
            self.turn(cx, spare)?;
        }
        Ok(())
    }

    /// Reports whether every warp has finished; valid after the start.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives every warp its first turn.
    pub fn start(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<(), Fault> {
        let total = cx.config.threads();
        // Each warp runs as far as it can before the next one starts, so that a kernel without barriers needs only one
        // register file.
        for index in 0..total.div_ceil(LANES as u32) {
            let mut warp = spare.pop().unwrap_or_else(|| Box::new(Warp::new(local_bytes(cx.entry, cx.options))));
            let lanes = (total - index * LANES as u32).min(LANES as u32);
            warp.start(index, lanes, cx);
            self.started += lanes;
            let pause = step(&mut warp, &mut self.threads, cx);
            match pause {
                Ok(Pause::Finished) => spare.push(warp),
                _ => self.waiting.push(warp),
            }
            pause.map_err(|fault| self.told(fault, cx))?;
            self.release(cx);
        }
        self.release(cx);
        Ok(())
    }

    /// Gives a turn to every warp that can continue.
    pub fn turn(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<(), Fault> {
        let advanced = self.round(cx, spare)?;
        let released = self.release(cx);
        if advanced || released || self.is_finished() { Ok(()) } else { Err(self.deadlock(cx)) }
    }

    /// Gives every warp a turn; returns whether one of them progressed.
    fn round(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<bool, Fault> {
        let mut advanced = false;
        let mut index = 0;
        while let Some(warp) = self.waiting.get_mut(index) {
            if warp.asleep.is_some_and(|until| until > Instant::now()) {
                advanced = true;
                index += 1;
                continue;
            }
            warp.asleep = None;
            let pause = step(warp, &mut self.threads, cx);
            advanced |= pause != Ok(Pause::Waiting);
            if pause == Ok(Pause::Finished) {
                spare.push(self.waiting.swap_remove(index));
            } else {
                index += 1;
            }
            pause.map_err(|fault| self.told(fault, cx))?;
            // Before another warp arrives at the barrier, which would count for the next phase.
            advanced |= self.release(cx);
        }
        Ok(advanced)
    }

    /// If all warps sleep or wait at barriers, returns when the first of them wakes.
    pub fn asleep_until(&self) -> Option<Instant> {
        let awake = |warp: &Warp| warp.asleep.is_none() && !warp.waits();
        let first = self.waiting.iter().filter_map(|warp| warp.asleep).min()?;
        (!self.waiting.iter().any(|warp| awake(warp))).then_some(first)
    }

    /// Reports whether a barrier is complete; it does not wait for threads that have exited.
    fn complete(&self, arrivals: Arrivals) -> bool {
        arrivals.threads > 0 && arrivals.threads >= arrivals.expected.unwrap_or(self.threads)
    }

    #[inline(always)]
    fn release(&mut self, cx: &mut Context) -> bool {
        // A barrier can't complete before a thread has arrived.
        (cx.come != 0 || !self.waiting.is_empty()) && self.release_waiting(cx)
    }

    fn release_waiting(&mut self, cx: &mut Context) -> bool {
        let (mut released, mut left) = (false, cx.come);
        while left != 0 {
            let id = left.trailing_zeros();
            left &= left - 1;
            let arrivals = cx.barriers[id as usize];
            if self.complete(arrivals) {
                if let Some(checks) = &mut cx.checks {
                    self.order(id, checks);
                }
                for warp in &mut self.waiting {
                    warp.release(id, arrivals.voters, cx);
                }
                cx.barriers[id as usize] = Arrivals::default();
                cx.come &= !(1 << id);
                released = true;
            }
        }
        if cx.at_cluster && self.started == cx.config.threads() && self.waiting.iter().any(|warp| warp.at_cluster().0) {
            let all = self.waiting.iter().all(|warp| warp.at_cluster().1);
            if all {
                if let Some(checks) = &mut cx.checks {
                    self.waiting.iter().for_each(|warp| checks.clocks.arrive(CLUSTER, warp.index, FULL));
                    self.waiting.iter().for_each(|warp| checks.clocks.pass(CLUSTER, warp.index, FULL));
                    checks.clocks.open(CLUSTER);
                }
                self.waiting.iter_mut().for_each(|warp| warp.release_cluster());
            }
            released |= all;
        }
        released
    }

    /// Records that everything before the completed barrier `id` comes before what its threads do now, including the
    /// accesses of threads that have exited.
    #[cold]
    fn order(&self, id: u32, checks: &mut BlockChecks) {
        for index in 0..self.started.div_ceil(LANES as u32) {
            let live = self.waiting.iter().find(|warp| warp.index == index).map_or(0, |warp| warp.live);
            if live != FULL {
                checks.clocks.arrive(id, index, !live);
            }
        }
        for warp in &self.waiting {
            checks.clocks.pass(id, warp.index, warp.waiting_at(id));
        }
        checks.clocks.open(id);
    }

    #[cold]
    fn deadlock(&mut self, cx: &Context) -> Fault {
        let what = "barrier deadlock: not every thread of the block can reach the barrier,";
        let fault = self.waiting.iter_mut().find_map(|warp| warp.waiting_fault(what, cx));
        let fault = fault.expect("a warp that is left and does not run waits at a barrier");
        self.tell_where(fault, cx)
    }

    /// Adds the places of all threads to the report of a launch that was ended from outside.
    fn told(&mut self, fault: Fault, cx: &Context) -> Fault {
        match fault.kind {
            FaultKind::Timeout => self.tell_where(fault, cx),
            _ => fault,
        }
    }

    /// Adds the places of the block's threads to a report.
    fn tell_where(&mut self, mut fault: Fault, cx: &Context) -> Fault {
        let standings = self.waiting.iter_mut().flat_map(|warp| warp.standings(cx)).collect();
        for line in describe_standings(standings) {
            fault = fault.with_line(&line);
        }
        let (total, live) = (cx.config.threads(), self.threads);
        let rest = [(total - live, "exited"), (total - self.started, "not started")];
        let rest = rest.iter().filter(|(count, _)| *count > 0).map(|(count, did)| format!("{count} {did}"));
        let rest = rest.collect::<Vec<_>>().join(", ");
        if rest.is_empty() { fault } else { fault.with_line(&format!("of the block's {total} threads: {rest}")) }
    }
}

/// Returns the local memory of a thread in bytes: that of its functions, and a stack for recursion and indirect calls.
pub fn local_bytes(entry: &Entry, options: &RunOptions) -> u64 {
    let stack = if entry.needs_stack { options.limits.stack_bytes } else { 0 };
    (u64::from(entry.frame_bytes) + u64::from(stack.min(STACK_BYTES_MAX))).next_multiple_of(16)
}

/// Gives a warp its turn. `threads` is the number of the block's threads that have not exited.
fn step(warp: &mut Warp, threads: &mut u32, cx: &mut Context) -> Result<Pause, Fault> {
    let before = warp.live;
    let result = warp.run(cx);
    *threads -= (before & !warp.live).count_ones();
    result
}

/// Formats one line for each place where threads are, those with the most threads first.
pub fn describe_standings(standings: Vec<Standing>) -> Vec<String> {
    let mut places: Vec<Standing> = Vec::new();
    for standing in standings {
        match places.iter_mut().find(|known| known.place == standing.place && known.does == standing.does) {
            Some(known) => known.threads += standing.threads,
            None => places.push(standing),
        }
    }
    places.sort_by_key(|standing| u32::MAX - standing.threads);
    let rest = places.split_off(places.len().min(STANDINGS_MAX));
    let line = |Standing { place, does, threads }: &Standing| match threads {
        1 => format!("1 thread is {does} {place}"),
        _ => format!("{threads} threads are {does} {place}"),
    };
    let mut lines: Vec<String> = places.iter().map(line).collect();
    if !rest.is_empty() {
        lines.push(format!("{} threads are elsewhere", rest.iter().map(|standing| standing.threads).sum::<u32>()));
    }
    lines
}
