//! Blocks that are in progress together on one thread and take turns. So blocks can wait for each other in device
//! memory on any number of threads.
//!
//! In a cooperative launch these are all blocks. In other launches a thread runs one block after the other, as long as
//! each ends soon. A block that takes long or sleeps may wait for a later one, so the thread starts others beside it.
//! It doubles their number each time that none has ended for a while, up to as many as the device would run at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use super::block::BlockRun;
use super::context::Context;
use super::launch::Run;
use super::warp::Warps;
use crate::fault::Fault;

/// Instructions per block after which a thread doubles the number of its blocks, if none has ended.
const MORE_PATIENCE: u64 = 1 << 20;

/// A block that stays on its thread until it ends.
pub struct Resident<'a> {
    index: u64,
    cx: Context<'a>,
    run: BlockRun,
    spare: Warps,
    is_started: bool,
}

impl<'a> Resident<'a> {
    /// Makes a block that has had turns already.
    pub fn started(index: u64, cx: Context<'a>, run: BlockRun, spare: Warps) -> Resident<'a> {
        Resident { index, cx, run, spare, is_started: true }
    }

    fn new(index: u64, block: [u32; 3], mut cx: Context<'a>, spare: Warps) -> Resident<'a> {
        let run = BlockRun::new(block, &mut cx);
        Resident { index, cx, run, spare, is_started: false }
    }

    /// Runs one turn; returns the number of instructions.
    fn turn(&mut self) -> Result<u64, Fault> {
        let result = if self.is_started {
            self.run.turn(&mut self.cx, &mut self.spare)
        } else {
            self.run.start(&mut self.cx, &mut self.spare)
        };
        self.is_started = true;
        let spent = self.cx.spent;
        // Other blocks run in between, and all share one instruction budget.
        self.cx.account();
        result.map(|()| spent)
    }
}

/// The blocks that one thread will run: it takes portions of those that no thread has taken.
pub struct Portions {
    taken: Range<u64>,
    blocks: u64,
    portion: u64,
}

impl Portions {
    pub fn new(blocks: u64, portion: u64) -> Portions {
        Portions { taken: 0..0, blocks, portion }
    }

    /// Returns the next block for this thread.
    pub fn next(&mut self, run: &Run) -> Option<u64> {
        if self.taken.is_empty() {
            let first = run.next.fetch_add(self.portion, Ordering::Relaxed).min(self.blocks);
            self.taken = first..self.blocks.min(first + self.portion);
        }
        self.taken.next()
    }
}

impl<'a> Run<'a> {
    /// Runs these blocks in turn until all have ended or one has failed.
    pub(super) fn together(&'a self, indices: impl Iterator<Item = u64>) {
        let new = |index| Resident::new(index, self.config.block_at(index), self.context(), Warps::new());
        let mut residents: Vec<Resident> = indices.map(new).collect();
        while !residents.is_empty() {
            if self.turns(&mut residents).is_none() {
                return;
            }
            residents.retain(|resident| !resident.run.is_finished());
            pause(&residents);
        }
    }

    /// Continues a block that does not end soon, together with blocks of `portions`, until all have ended or one has
    /// failed.
    pub(super) fn beside(&'a self, first: Resident<'a>, portions: &mut Portions) {
        let (mut residents, mut idle) = (vec![first], Vec::new());
        let mut spent = 0;
        while !residents.is_empty() {
            let Some(more) = self.turns(&mut residents) else { return };
            spent += more;
            let ended: Vec<Resident> = residents.extract_if(.., |resident| resident.run.is_finished()).collect();
            let wanted = match residents.len() {
                _ if !ended.is_empty() => ended.len(),
                left if spent > MORE_PATIENCE * left as u64 => left,
                _ if wakes(&residents).is_some() => 1,
                _ => 0,
            };
            // A thread may always have one block, regardless of the limit.
            let places = if residents.is_empty() { ended.len() - 1 } else { ended.len() };
            self.resident.fetch_sub(places as u64, Ordering::Relaxed);
            idle.extend(ended.into_iter().map(|resident| (resident.cx, resident.spare)));
            if wanted > 0 {
                spent = 0;
                self.start_more(wanted, &mut residents, &mut idle, portions);
            }
            pause(&residents);
        }
    }

    /// Starts up to `wanted` more blocks, if there are any and the limit allows it.
    fn start_more(
        &'a self,
        wanted: usize,
        residents: &mut Vec<Resident<'a>>,
        idle: &mut Vec<(Context<'a>, Warps)>,
        portions: &mut Portions,
    ) {
        for _ in 0..wanted {
            let is_first = residents.is_empty();
            if !is_first && !self.take_place() {
                break;
            }
            let Some(index) = portions.next(self) else {
                self.resident.fetch_sub(u64::from(!is_first), Ordering::Relaxed);
                break;
            };
            let (cx, spare) = idle.pop().unwrap_or_else(|| (self.context(), Warps::new()));
            residents.push(Resident::new(index, self.config.block_at(index), cx, spare));
        }
        if residents.len() > 1 {
            residents.iter_mut().for_each(|resident| resident.cx.share_thread());
        }
    }

    /// Takes a place for another block, if the device has one.
    fn take_place(&self) -> bool {
        let one_more = |taken: u64| (taken < self.places).then_some(taken + 1);
        self.resident.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives each block a turn; returns the number of instructions, or `None` if the launch ends.
    fn turns(&self, residents: &mut [Resident]) -> Option<u64> {
        let mut spent = 0;
        for resident in residents {
            if self.signals.stop.load(Ordering::Relaxed) {
                return None;
            }
            match resident.turn() {
                Ok(more) => spent += more,
                Err(fault) => {
                    self.fail(resident.index, fault);
                    return None;
                }
            }
        }
        Some(spent)
    }
}

/// If all blocks sleep, returns when the first one wakes.
fn wakes(residents: &[Resident]) -> Option<Instant> {
    let wakes = residents.iter().map(|resident| resident.run.asleep_until()).collect::<Option<Vec<_>>>();
    wakes?.into_iter().min()
}

/// Lets the thread sleep if all its blocks sleep, and otherwise yields, because the blocks may wait for a block on a
/// thread that has no core.
fn pause(residents: &[Resident]) {
    match wakes(residents) {
        Some(first) => thread::sleep(first.saturating_duration_since(Instant::now())),
        None if residents.len() > 1 => thread::yield_now(),
        None => {}
    }
}
