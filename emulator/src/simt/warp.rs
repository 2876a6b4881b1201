//! One warp: groups of lanes that are at one instruction, run in turn.
//!
//! A divergent branch splits a group. The group in the deepest call with the lowest position in the code runs first, so
//! that the others wait where paths join, and are merged there. Nevertheless the [`schedule`] gives every lane its
//! turn, so that lanes that spin on a lock do not starve its holder.

mod calls;
mod check;
mod group;
mod meeting;
mod phases;
mod report;
mod schedule;
mod sprint;
mod step;
mod straight;
mod turns;

use std::time::Instant;

use self::group::{Group, Step, Wait};
use self::phases::Cluster;
pub use self::report::Standing;
use self::schedule::Schedule;
use self::turns::Turns;
use super::access::Local;
use super::context::Context;
use super::frames::{Caller, Frame};
use crate::fault::Fault;
use crate::ops::lanes::{FULL, LANES};

/// The reason why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    Finished,
    /// Every remaining lane waits at a barrier.
    Waiting,
    /// The warp could continue, but others should have a turn.
    Yielded,
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
    /// Bytes of the register files of calls.
    call_bytes: u64,
    schedule: Schedule,
    cluster: Cluster,
    /// Time until which a kernel has sent the warp to sleep.
    pub asleep: Option<Instant>,
}

/// Warps of a block. They change hands at every barrier and are large, so they are boxed.
pub type Warps = Vec<Box<Warp>>;

impl Warp {
    pub fn new(lane_bytes: u64) -> Warp {
        Warp {
            index: 0,
            block: [0; 3],
            live: 0,
            frames: Vec::new(),
            groups: Vec::new(),
            local: vec![0; LANES * (lane_bytes / 8) as usize],
            lane_bytes,
            call_bytes: 0,
            schedule: Schedule::default(),
            cluster: Cluster::default(),
            asleep: None,
        }
    }

    /// Starts the kernel in this warp, which is number `index` of its block and has `lanes` threads.
    pub fn start(&mut self, index: u32, lanes: u32, cx: &mut Context) {
        let before = (std::mem::replace(&mut self.block, cx.block), std::mem::replace(&mut self.index, index));
        self.live = if lanes >= LANES as u32 { FULL } else { (1 << lanes) - 1 };
        self.groups.clear();
        self.schedule = Schedule::default();
        self.cluster = Cluster::default();
        self.asleep = None;
        let live = self.live;
        self.groups.push(Group { frame: 0, depth: 0, pc: 0, mask: live, wait: Wait::None });
        let kernel = cx.entry.function;
        if self.frames.is_empty() {
            let registers = cx.registers(kernel, index, 0);
            let caller = Caller { frame: 0, return_pc: 0, lanes: 0 };
            let stack = cx.program.functions[kernel].frame_locals() as u32;
            let joined = Vec::new();
            let frame = Frame { function: kernel, registers, caller, joined, depth: 0, lanes: live, local: 0, stack };
            self.frames.push(Some(frame));
        } else {
            // The registers of the previous warp are reused; only the place differs.
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

    /// Runs until nothing can continue or the warp's turn is over.
    pub fn run(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        if let Some(pause) = self.sprint(cx)? {
            return Ok(pause);
        }
        let mut turns = Turns::new(cx.turns, self.schedule.left);
        let pause = self.run_groups(&mut turns, cx);
        self.schedule.left = turns.of_group();
        pause
    }

    fn run_groups(&mut self, turns: &mut Turns, cx: &mut Context) -> Result<Pause, Fault> {
        loop {
            // Checked before a group is chosen, because its turn would be lost.
            if turns.are_over() && !self.waits() {
                return Ok(Pause::Yielded);
            }
            let Some(index) = self.schedule.choose(&self.groups) else {
                return if self.groups.is_empty() { Ok(Pause::Finished) } else { self.check_waiting(cx) };
            };
            let group = self.groups.swap_remove(index);
            match self.run_group(group, turns, cx)? {
                Step::Kept(group) => {
                    let group = self.join_others(group, cx);
                    self.add(group);
                }
                Step::Tired(group) => {
                    self.schedule.pass(group.mask, &self.groups);
                    turns.renew();
                    self.add(group);
                }
                Step::Gone if self.groups.is_empty() => return Ok(Pause::Finished),
                Step::Gone => {}
            }
            // Immediately, because the other groups may spin until the waiting lanes continue.
            self.release_waiting(cx);
        }
    }

    /// Reports whether nothing in the warp can run until other warps reach a barrier.
    pub fn waits(&self) -> bool {
        self.groups.iter().all(|group| group.wait != Wait::None)
    }

    /// Adds a group, or merges it with a group at the same place.
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
