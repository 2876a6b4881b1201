//! One block: runs its warps in turn, with its barriers.

use std::time::Instant;

use super::checks::BlockChecks;
use super::context::{Arrivals, BARRIERS, Context, local_bytes};
use super::warp::{Pause, Standing, Warp, Warps};
use crate::fault::{Fault, FaultKind};
use crate::ops::lanes::{FULL, LANES};

/// Number of the cluster's barrier, for the race check.
const CLUSTER: u32 = BARRIERS as u32;

/// Maximum number of places that a report names for the threads of a block; further places are only counted.
const STANDINGS_MAX: usize = 3;

/// Instructions of a block's warps after which the thread also runs other blocks, because the block may wait for a
/// later one.
const PATIENCE: u64 = 1 << 22;

impl Context<'_> {
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
