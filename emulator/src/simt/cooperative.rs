//! Cooperative launches: all blocks are under way at once, and those of one thread take turns, so that blocks may wait
//! for each other in device memory on however few threads.
//!
//! The device code of `cooperative_groups` makes the barrier of a grid itself: it adds to a word of a workspace that
//! the driver provides, and spins until the top bit of the word changes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::time::Instant;

use std::{ptr::NonNull, sync::atomic::Ordering, thread};

use super::block::{BlockRun, Context};
use super::launch::Run;
use super::warp::Warps;
use crate::fault::Fault;
use crate::memory::Memory;

/// The workspace as device code declares it: its own size, then the barrier.
const WORKSPACE: Layout = Layout::new::<[u32; 2]>();

/// The words through which the blocks of one launch meet, mapped into device memory for as long as it lasts.
#[derive(Debug)]
pub struct Workspace<'a> {
    memory: &'a Memory,
    words: NonNull<u8>,
}

impl Workspace<'_> {
    pub fn new(memory: &Memory) -> Workspace<'_> {
        // SAFETY: the layout has a size.
        let words = NonNull::new(unsafe { alloc_zeroed(WORKSPACE) }).unwrap_or_else(|| handle_alloc_error(WORKSPACE));
        // SAFETY: the words were just allocated, and no other reference to them exists yet.
        unsafe { words.cast::<u32>().write(WORKSPACE.size() as u32) };
        let mapped = memory.map_host(words.as_ptr(), WORKSPACE.size() as u64);
        assert!(mapped, "memory that was just allocated overlaps nothing that is mapped");
        Workspace { memory, words }
    }

    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        self.memory.unmap_host(self.words.as_ptr());
        // SAFETY: allocated in `new` with this layout, and no kernel can reach it any more.
        unsafe { dealloc(self.words.as_ptr(), WORKSPACE) };
    }
}

/// A block that stays on its thread until it ends.
struct Resident<'a> {
    index: u64,
    cx: Context<'a>,
    run: BlockRun,
    spare: Warps,
}

impl Resident<'_> {
    fn turn(&mut self, is_first: bool) -> Result<(), Fault> {
        let result = if is_first {
            self.run.start(&mut self.cx, &mut self.spare)
        } else {
            self.run.turn(&mut self.cx, &mut self.spare)
        };
        // Other blocks go on in between: the budget is one for all.
        self.cx.account();
        result
    }
}

impl Run<'_> {
    /// Runs these blocks in turn until all have ended or one has failed.
    pub(super) fn together(&self, indices: impl Iterator<Item = u64>) {
        let residents = indices.map(|index| {
            let mut cx = self.context();
            let run = BlockRun::new(self.config.block_at(index), &mut cx);
            Resident { index, cx, run, spare: Vec::new() }
        });
        let mut residents = residents.collect::<Vec<_>>();
        let mut is_first = true;
        while !residents.is_empty() {
            for resident in &mut residents {
                if self.signals.stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(fault) = resident.turn(is_first) {
                    return self.fail(resident.index, fault);
                }
            }
            is_first = false;
            residents.retain(|resident| !resident.run.is_finished());
            pause(&residents);
        }
    }
}

/// Lets the thread rest where all its blocks sleep, and otherwise lets others on: what these blocks wait for may be a
/// block on a thread that has no core.
fn pause(residents: &[Resident]) {
    let wakes = residents.iter().map(|resident| resident.run.asleep_until()).collect::<Option<Vec<_>>>();
    match wakes.and_then(|wakes| wakes.into_iter().min()) {
        Some(first) => thread::sleep(first.saturating_duration_since(Instant::now())),
        None => thread::yield_now(),
    }
}
