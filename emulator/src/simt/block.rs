//! One block: its warps in turn, its barriers, and what all its instructions share.

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

/// Barriers of a block, as on every device.
const BARRIERS: usize = 16;

/// The number of the cluster's barrier among them, for checks.
const CLUSTER: u32 = BARRIERS as u32;

/// Turns of loops after which another warp gets its turn.
const TURNS_OF_WARP: u32 = 4096;

/// The same where blocks take turns too: who spins at a barrier of the grid should soon let the others come to it.
const TURNS_OF_WARP_IN_TURN: u32 = 128;

/// Stack of a thread at most, whatever the limit says: the local memory that a device has for one.
const STACK_BYTES_MAX: u32 = 512 << 10;

/// Places that are named where threads of a block stand; the others are only counted.
const STANDINGS_MAX: usize = 3;

/// Work of a block, in instructions of its warps, after which the thread looks at other blocks too: the block may wait for
/// a later one.
const PATIENCE: u64 = 1 << 22;

/// Signals between the threads of a launch.
#[derive(Debug, Default)]
pub struct Signals {
    /// A block has failed: the others may stop.
    pub stop: AtomicBool,
    /// Instructions that all threads have run, counted at branches back and calls.
    pub spent: AtomicU64,
    /// Where the blocks of a cooperative launch meet; 0 in other launches.
    pub workspace: u64,
}

/// Lanes of one warp that come to a barrier.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    pub lanes: u32,
    /// Lanes of the warp that have exited and were not told of before.
    pub exited: u32,
    pub votes: u32,
}

/// What has come to one barrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// Threads that have come or count as if they had.
    threads: u32,
    /// Threads that take part, in whole warps, where the instruction says so.
    expected: Option<u32>,
    voters: u32,
    pub votes: u32,
}

impl Arrivals {
    /// Threads exit whose warp waits at the barrier: where it counts warps, they count as come.
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

/// What the instructions of a block share.
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
    /// There where the memory has checks.
    pub checks: Option<Box<BlockChecks>>,
    /// The numbers of the barriers that threads have reached, as bits.
    come: u32,
    /// Threads of the block have come to the cluster's barrier, maybe for an earlier phase.
    pub at_cluster: bool,
    pub spent: u64,
    /// Bytes of a thread's stack: what is known beforehand of its functions' local memory, and what recursion may take.
    pub stack_bytes: u32,
    /// Turns of loops that a warp has before the next one.
    pub turns: u32,
    /// What the view's shared memory lies in.
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
        // Two words more: the start is rounded up to the 16 bytes that the widest access needs.
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

    /// Why the launch has to end now, if it has to.
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

    /// Lanes of a warp have come together.
    pub fn met(&mut self, warp: u32, lanes: u32) {
        if let Some(checks) = &mut self.checks {
            checks.clocks.meet(warp, lanes);
        }
    }

    /// Names a place in the block's shared memory.
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

    /// Takes `bytes` of the device's heap, unless it is used up.
    pub fn take_heap(&self, bytes: u64) -> Option<u64> {
        let address = self.view.memory.take_heap(bytes, self.options.limits.heap_bytes)?;
        if let Some(confinement) = self.options.limits.confinement {
            confinement.take_heap(address);
        }
        Some(address)
    }

    /// Gives memory back to the heap; false where the address is not one that the heap gave.
    pub fn give_heap(&mut self, address: u64) -> bool {
        let is_own = self.options.limits.confinement.is_none_or(|confinement| confinement.give_heap(address));
        if !is_own || !self.view.memory.give_heap(address) {
            return false;
        }
        // What this launch has found about the memory is no longer true.
        self.view.caches.fill(Cache::default());
        self.view.textures = Bound::default();
        true
    }

    /// Threads come to a barrier.
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

    /// Runs one block to its end, unless it takes long or sleeps: it may wait for another, and is answered as it is then.
    /// `warps` are those of blocks before, to be used again.
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

    /// Lets other blocks have a turn soon: those that they wait for may be among them.
    pub fn share_thread(&mut self) {
        self.turns = TURNS_OF_WARP_IN_TURN;
    }

    /// Adds what was spent here to what the launch has spent, where anybody asks.
    pub fn account(&mut self) {
        if self.options.instructions_max.is_some() {
            self.signals.spent.fetch_add(self.spent, Ordering::Relaxed);
        }
        self.spent = 0;
    }
}

/// A block under way.
#[derive(Debug)]
pub struct BlockRun {
    /// Threads that have not exited.
    threads: u32,
    /// Threads of the warps that have started.
    started: u32,
    /// Warps that have started and not ended.
    waiting: Warps,
}

impl BlockRun {
    /// Makes `cx` that of `block`, before its first turn.
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

    /// Once started: has every warp ended?
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives every warp its first turn.
    pub fn start(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<(), Fault> {
        let total = cx.config.threads();
        // Each warp runs as far as it gets before the next one starts, so that a kernel without barriers keeps to
        // one register file.
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

    /// Gives every warp that can go on a turn.
    pub fn turn(&mut self, cx: &mut Context, spare: &mut Warps) -> Result<(), Fault> {
        let advanced = self.round(cx, spare)?;
        let released = self.release(cx);
        if advanced || released || self.is_finished() { Ok(()) } else { Err(self.deadlock(cx)) }
    }

    /// Gives every warp a turn; whether one of them came further.
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
            // Before another warp comes to the same barrier, which would be for its next phase.
            advanced |= self.release(cx);
        }
        Ok(advanced)
    }

    /// Where all warps sleep or wait at barriers, the time when the first of them wakes.
    pub fn asleep_until(&self) -> Option<Instant> {
        let awake = |warp: &Warp| warp.asleep.is_none() && !warp.waits();
        let first = self.waiting.iter().filter_map(|warp| warp.asleep).min()?;
        (!self.waiting.iter().any(|warp| awake(warp))).then_some(first)
    }

    /// Whether enough threads have come to a barrier. Threads that have exited are not waited for.
    fn complete(&self, arrivals: Arrivals) -> bool {
        arrivals.threads > 0 && arrivals.threads >= arrivals.expected.unwrap_or(self.threads)
    }

    #[inline(always)]
    fn release(&mut self, cx: &mut Context) -> bool {
        // No barrier can open before a thread has come to it.
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

    /// What came before barrier `id`, which opens, comes before what its threads do now. So does what threads did
    /// that have exited.
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

    /// A launch that was ended from outside tells where all of the block's threads were.
    fn told(&mut self, fault: Fault, cx: &Context) -> Fault {
        match fault.kind {
            FaultKind::Timeout => self.tell_where(fault, cx),
            _ => fault,
        }
    }

    /// Adds to a report where the threads of the block are.
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

/// Local memory of a thread: what is known of its functions, and a stack for those of which it is not.
pub fn local_bytes(entry: &Entry, options: &RunOptions) -> u64 {
    let stack = if entry.needs_stack { options.limits.stack_bytes } else { 0 };
    (u64::from(entry.frame_bytes) + u64::from(stack.min(STACK_BYTES_MAX))).next_multiple_of(16)
}

/// Gives a warp its turn. `threads` are those of the block that have not exited.
fn step(warp: &mut Warp, threads: &mut u32, cx: &mut Context) -> Result<Pause, Fault> {
    let before = warp.live;
    let result = warp.run(cx);
    *threads -= (before & !warp.live).count_ones();
    result
}

/// One line for each place where threads stand, those with the most first.
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
