//! One warp: groups of lanes that stand at the same instruction, run in turn.
//!
//! A branch that lanes disagree on splits their group. The group in the deepest call with the lowest place in the
//! code runs first, so that the others wait where paths join and are merged there. After a number of turns of a loop
//! another group gets a turn, so that lanes that spin on a lock let its holder on.

mod calls;
mod check;
mod meeting;
mod phases;
mod report;
mod sprint;
mod step;
mod straight;

use std::time::Instant;

use self::phases::Cluster;
pub use self::report::Standing;
use self::step::{Step, Turns};
use super::access::Local;
use super::block::Context;
use super::frames::Frame;
use crate::fault::Fault;
use crate::ops::lanes::{FULL, LANES};

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    Finished,
    /// Every lane that is left waits at a barrier.
    Waiting,
    /// It could go on; others should have a turn.
    Yielded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    None,
    /// For the lanes of a mask to come to the same instruction.
    Lanes(u32),
    /// For the lanes of a mask to come to any `bar.warp.sync`.
    WarpBarrier(u32),
    /// At the block's barrier of this number.
    Barrier(u32),
    /// At the cluster's barrier.
    Cluster,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    frame: usize,
    depth: u32,
    pc: u32,
    mask: u32,
    wait: Wait,
}

/// One warp of a block.
#[derive(Debug)]
pub struct Warp {
    pub index: u32,
    block: [u32; 3],
    /// Lanes that have not exited.
    pub live: u32,
    frames: Vec<Option<Frame>>,
    groups: Vec<Group>,
    local: Vec<u64>,
    lane_bytes: u64,
    /// Registers of the frames beyond the kernel's own.
    call_bytes: u64,
    /// The group with this lane runs next, out of order.
    favoured: Option<u32>,
    cluster: Cluster,
    /// When the warp goes on, where a kernel sent it to sleep.
    pub asleep: Option<Instant>,
}

/// Warps change hands at every barrier, and are large to copy: so they stay where they are.
pub type Warps = Vec<Box<Warp>>;

impl Warp {
    pub fn new(lane_bytes: u32) -> Warp {
        let lane_bytes = u64::from(lane_bytes).next_multiple_of(16);
        Warp {
            index: 0,
            block: [0; 3],
            live: 0,
            frames: Vec::new(),
            groups: Vec::new(),
            local: vec![0; LANES * (lane_bytes / 8) as usize],
            lane_bytes,
            call_bytes: 0,
            favoured: None,
            cluster: Cluster::default(),
            asleep: None,
        }
    }

    /// Puts the warp at the start of the kernel, as number `index` of its block with `lanes` threads.
    pub fn start(&mut self, index: u32, lanes: u32, cx: &mut Context) {
        let before = (std::mem::replace(&mut self.block, cx.block), std::mem::replace(&mut self.index, index));
        self.live = if lanes >= LANES as u32 { FULL } else { (1 << lanes) - 1 };
        self.groups.clear();
        self.favoured = None;
        self.cluster = Cluster::default();
        self.asleep = None;
        let live = self.live;
        self.groups.push(Group { frame: 0, depth: 0, pc: 0, mask: live, wait: Wait::None });
        let kernel = cx.entry.function;
        if self.frames.is_empty() {
            let registers = cx.registers(kernel, index, 0);
            let frame = Frame { function: kernel, registers, parent: 0, return_pc: 0, depth: 0, lanes: live, local: 0 };
            self.frames.push(Some(frame));
        } else {
            // The registers of a warp before: only the place is another.
            let frame = self.frames[0].as_mut().expect("the kernel's own frame stays");
            frame.lanes = live;
            cx.place(&mut frame.registers, &cx.program.functions[kernel], index, Some(before));
        }
    }

    pub fn local(&mut self) -> Local {
        Local { start: self.local.as_mut_ptr().cast(), lane_bytes: self.lane_bytes }
    }

    fn frame(&mut self, index: usize) -> &mut Frame {
        self.frames[index].as_mut().expect("a group's frame lives as long as the group")
    }

    /// Runs until nothing can go on or the warp had its turns.
    pub fn run(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        if let Some(pause) = self.sprint(cx)? {
            return Ok(pause);
        }
        let mut turns = Turns::new(cx.turns);
        loop {
            let Some(index) = self.choose() else {
                return if self.groups.is_empty() { Ok(Pause::Finished) } else { self.check_waiting(cx) };
            };
            if turns.are_over() {
                return Ok(Pause::Yielded);
            }
            let group = self.groups.swap_remove(index);
            match self.run_group(group, &mut turns, cx)? {
                Step::Kept(group) => self.add(group),
                Step::Tired(group) => {
                    self.favour_after(group.mask);
                    self.add(group);
                }
                Step::Gone if self.groups.is_empty() => return Ok(Pause::Finished),
                Step::Gone => {}
            }
            // At once: what else is ready may spin until those who wait go on.
            self.release_waiting(cx);
        }
    }

    /// Whether nothing in the warp can run before others come to where it waits.
    pub fn waits(&self) -> bool {
        self.groups.iter().all(|group| group.wait != Wait::None)
    }

    /// The group to run: the favoured one, or the deepest and lowest.
    fn choose(&mut self) -> Option<usize> {
        if let Some(lane) = self.favoured.take() {
            let found = self.groups.iter().position(|g| g.wait == Wait::None && g.mask >> lane & 1 != 0);
            if found.is_some() {
                return found;
            }
        }
        if let [group] = self.groups.as_slice() {
            return (group.wait == Wait::None).then_some(0);
        }
        let ready = self.groups.iter().enumerate().filter(|(_, group)| group.wait == Wait::None);
        ready.min_by_key(|(_, group)| (u32::MAX - group.depth, group.pc)).map(|(index, _)| index)
    }

    /// The next group with lanes behind those of `mask` has the next turn.
    fn favour_after(&mut self, mask: u32) {
        let first = mask.trailing_zeros();
        let ready = || self.groups.iter().filter(|group| group.wait == Wait::None).map(|g| g.mask.trailing_zeros());
        self.favoured = ready().filter(|lane| *lane > first).min().or_else(|| ready().min());
    }

    /// Adds a group, merged with one that stands at the same place.
    fn add(&mut self, group: Group) {
        let same = self.groups.iter_mut().find(|other| {
            other.frame == group.frame
                && other.pc == group.pc
                && other.wait == group.wait
                && !matches!(group.wait, Wait::Barrier(_))
        });
        match same {
            Some(other) => other.mask |= group.mask,
            None => self.groups.push(group),
        }
    }
}
