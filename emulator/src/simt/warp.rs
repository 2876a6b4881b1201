//! One warp: groups of lanes that stand at the same instruction, run in turn.
//!
//! A branch that lanes disagree on splits their group. The group in the deepest call with the lowest place in the
//! code runs first, so that the others wait where paths join and are merged there. After a number of turns of a loop
//! another group gets a turn, so that lanes that spin on a lock let its holder on.

use std::sync::atomic::{Ordering, fence};

use super::access::{Local, Refused};
use super::block::Context;
use super::frames::Frame;
use super::{atomic, builtin, collective};
use crate::fault::{Fault, FaultKind, Place, describe_address};
use crate::lower::code::{
    BarrierKind, Call, Callee, FUNCTION_STRIDE, FUNCTION_WINDOW, Function, Instruction, Logic, Op,
};
use crate::lower::frame_locals;
use crate::ops::lanes::{FULL, LANES, load_mask, store_mask};

/// Turns of a loop after which another group of the same warp gets its turn.
const TURNS_OF_GROUP: u32 = 256;

/// Turns of loops after which another warp gets its turn.
const TURNS_OF_WARP: u32 = 4096;

/// Calls inside one another; a device's stack ends sooner.
const DEPTH_MAX: u32 = 1024;

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
    /// Lanes that have not exited.
    pub live: u32,
    frames: Vec<Option<Frame>>,
    groups: Vec<Group>,
    local: Vec<u64>,
    lane_bytes: u64,
    /// The group with this lane runs next, out of order.
    favoured: Option<u32>,
}

/// What became of the group that ran.
enum Step {
    /// It goes back among the others.
    Kept(Group),
    /// Its lanes are elsewhere now.
    Gone,
    /// It had its turns.
    Tired(Group),
}

impl Warp {
    pub fn new(lane_bytes: u32) -> Warp {
        let lane_bytes = u64::from(lane_bytes).next_multiple_of(16);
        Warp {
            index: 0,
            live: 0,
            frames: Vec::new(),
            groups: Vec::new(),
            local: vec![0; LANES * (lane_bytes / 8) as usize],
            lane_bytes,
            favoured: None,
        }
    }

    /// Puts the warp at the start of the kernel, as number `index` of its block with `lanes` threads.
    pub fn start(&mut self, index: u32, lanes: u32, cx: &mut Context) {
        self.index = index;
        self.live = if lanes >= LANES as u32 { FULL } else { (1 << lanes) - 1 };
        self.groups.clear();
        self.favoured = None;
        let live = self.live;
        if self.frames.is_empty() {
            let kernel = cx.entry.function;
            let registers = cx.spare.take(kernel, &cx.program.functions[kernel]);
            let frame = Frame { function: kernel, registers, parent: 0, return_pc: 0, depth: 0, lanes: live, local: 0 };
            self.frames.push(Some(frame));
        }
        let frame = self.frames[0].as_mut().expect("the kernel's own frame stays");
        frame.lanes = live;
        cx.fill(&mut frame.registers, &cx.program.functions[frame.function], index, 0);
        self.groups.push(Group { frame: 0, depth: 0, pc: 0, mask: live, wait: Wait::None });
    }

    pub fn local(&mut self) -> Local {
        Local { start: self.local.as_mut_ptr().cast(), lane_bytes: self.lane_bytes }
    }

    fn frame(&mut self, index: usize) -> &mut Frame {
        self.frames[index].as_mut().expect("a group's frame lives as long as the group")
    }

    /// Runs until nothing can go on or the warp had its turns.
    pub fn run(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        let mut turns = TURNS_OF_WARP;
        loop {
            let Some(index) = self.choose() else {
                if self.release_waiting() {
                    continue;
                }
                return if self.groups.is_empty() { Ok(Pause::Finished) } else { self.check_waiting(cx) };
            };
            if turns == 0 {
                return Ok(Pause::Yielded);
            }
            let group = self.groups.swap_remove(index);
            match self.run_group(group, &mut turns, cx)? {
                Step::Kept(group) => self.add(group),
                Step::Tired(group) => {
                    self.favour_after(group.mask);
                    self.add(group);
                }
                Step::Gone => {}
            }
        }
    }

    /// The group to run: the favoured one, or the deepest and lowest.
    fn choose(&mut self) -> Option<usize> {
        if let Some(lane) = self.favoured.take() {
            let found = self.groups.iter().position(|g| g.wait == Wait::None && g.mask >> lane & 1 != 0);
            if found.is_some() {
                return found;
            }
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

    /// Lets groups on whose awaited lanes have come, or have exited.
    fn release_waiting(&mut self) -> bool {
        let live = self.live;
        let at_barrier: u32 =
            self.groups.iter().filter(|g| matches!(g.wait, Wait::WarpBarrier(_))).map(|g| g.mask).sum();
        let mut released = false;
        for group in &mut self.groups {
            let come = match group.wait {
                Wait::Lanes(needed) => needed & live & !group.mask == 0,
                Wait::WarpBarrier(needed) => needed & live & !at_barrier == 0,
                Wait::None | Wait::Barrier(_) => false,
            };
            if come {
                if matches!(group.wait, Wait::WarpBarrier(_)) {
                    group.pc += 1;
                }
                group.wait = Wait::None;
                released = true;
            }
        }
        released
    }

    /// Nothing can run: waiting at the block's barrier is fine where all lanes wait at the same one.
    fn check_waiting(&mut self, cx: &mut Context) -> Result<Pause, Fault> {
        let stuck = self.groups.iter().find(|group| matches!(group.wait, Wait::Lanes(_) | Wait::WarpBarrier(_)));
        if let Some(group) = stuck.copied() {
            let what = "an instruction for several lanes waits for lanes that do not come to it";
            return Err(self.fault(FaultKind::LaunchFailed, what, &group, cx));
        }
        let first = self.groups[0];
        let elsewhere = self.groups.iter().find(|group| (group.frame, group.pc) != (first.frame, first.pc)).copied();
        if let Some(group) = elsewhere
            && self.barrier_is_aligned(&first, cx)
            && self.barrier_is_aligned(&group, cx)
        {
            let what = "divergent barrier: the lanes of a warp wait at different barrier instructions";
            return Err(self.fault(FaultKind::LaunchFailed, what, &group, cx));
        }
        Ok(Pause::Waiting)
    }

    fn barrier_is_aligned(&mut self, group: &Group, cx: &Context) -> bool {
        let function = self.frame(group.frame).function;
        let op = &cx.program.functions[function].code[group.pc as usize].op;
        matches!(op, Op::Barrier(barrier) if barrier.aligned)
    }

    /// The place of the first group that waits at barrier `id`, for reports.
    pub fn waiting_fault(&mut self, what: &str, cx: &Context) -> Option<Fault> {
        let group = self.groups.iter().find(|group| matches!(group.wait, Wait::Barrier(_))).copied()?;
        Some(self.fault(FaultKind::LaunchFailed, what, &group, cx))
    }

    /// Lets the lanes on that wait at barrier `id`, with the barrier's result.
    pub fn release(&mut self, id: u32, count: u32, cx: &Context) {
        for index in 0..self.groups.len() {
            let group = self.groups[index];
            if group.wait != Wait::Barrier(id) {
                continue;
            }
            let frame = self.frame(group.frame);
            if let Op::Barrier(barrier) = &cx.program.functions[frame.function].code[group.pc as usize].op {
                let outcome = cx.barriers[id as usize];
                let registers = frame.registers.start();
                match barrier.kind {
                    // SAFETY: the slots of an instruction lie inside the frame of its function.
                    BarrierKind::And => unsafe {
                        store_mask(registers, barrier.d, outcome.all_mask(count), group.mask)
                    },
                    // SAFETY: as above.
                    BarrierKind::Or => unsafe { store_mask(registers, barrier.d, outcome.any_mask(), group.mask) },
                    BarrierKind::Count => put_lanes(frame.registers.words(barrier.d), outcome.votes, group.mask),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.groups[index].wait = Wait::None;
            self.groups[index].pc += 1;
        }
        // Groups that came to the barrier one after the other leave it together.
        for group in std::mem::take(&mut self.groups) {
            self.add(group);
        }
    }

    #[cold]
    fn fault(&mut self, kind: FaultKind, what: &str, group: &Group, cx: &Context) -> Fault {
        self.fault_in(kind, what, group, group.mask.trailing_zeros(), cx)
    }

    #[cold]
    fn fault_in(&mut self, kind: FaultKind, what: &str, group: &Group, lane: u32, cx: &Context) -> Fault {
        let function = &cx.program.functions[self.frame(group.frame).function];
        let instruction = &function.code[group.pc as usize];
        let place = Place {
            kernel: &cx.entry.name,
            function: &function.name,
            line: instruction.line,
            opcode: &function.texts[instruction.text as usize],
            block: cx.block,
            thread: cx.thread(self.index, lane),
        };
        Fault::at(kind, what, &place)
    }

    #[cold]
    fn refusal(&mut self, refused: &Refused, group: &Group, cx: &Context) -> Fault {
        let Refused { lane, address, bytes, space, kind } = *refused;
        let mut what = match kind {
            FaultKind::MisalignedAddress => {
                format!("misaligned access of {bytes} bytes at {address:#x} in {space} memory")
            }
            _ => format!("illegal access of {bytes} bytes at {address:#x} in {space} memory"),
        };
        match space {
            "global" => what = format!("{what} ({})", describe_address(cx.view.memory, address)),
            "shared" => what = format!("{what} (the block has {} bytes)", cx.view.shared_bytes),
            "local" => what = format!("{what} (the thread has {} bytes)", self.lane_bytes),
            _ => {}
        }
        self.fault_in(kind, &what, group, lane as u32, cx)
    }

    /// Runs one group until it ends, waits, splits off what comes first, or had its turns.
    fn run_group(&mut self, mut group: Group, turns: &mut u32, cx: &mut Context) -> Result<Step, Fault> {
        let program = cx.program;
        let local = self.local();
        let (function, registers): (&Function, *mut u8) = {
            let frame = self.frame(group.frame);
            (&program.functions[frame.function], frame.registers.start())
        };
        let code: &[Instruction] = &function.code;
        let mut group_turns = TURNS_OF_GROUP;
        let mut stop = self.next_stop(&group);
        loop {
            if group.pc >= stop {
                return Ok(Step::Kept(group));
            }
            let instruction = &code[group.pc as usize];
            // SAFETY: here and below, the slots of an instruction lie inside the frame of its function, with planes
            // of the width that it uses: lowering hands them out and checks the widths.
            let guard = unsafe { load_mask(registers, instruction.guard) } ^ instruction.invert;
            let mask = group.mask & guard;
            match &instruction.op {
                Op::Lanes { run, slots } => {
                    if mask != 0 {
                        // SAFETY: see above; the vector build runs only where the machine has what it needs.
                        unsafe {
                            if cx.vector {
                                (run.vector)(registers, slots, mask)
                            } else {
                                (run.portable)(registers, slots, mask)
                            }
                        };
                    }
                    group.pc += 1;
                }
                Op::Jump(target) => {
                    let target = *target;
                    if mask == 0 {
                        group.pc += 1;
                        continue;
                    }
                    let backward = target <= group.pc;
                    let length = u64::from(group.pc.wrapping_sub(target)) + 1;
                    if mask == group.mask {
                        group.pc = target;
                    } else {
                        let (taken, passed) = (mask, group.mask & !mask);
                        let (first, second) = if backward {
                            ((target, taken), (group.pc + 1, passed))
                        } else {
                            ((group.pc + 1, passed), (target, taken))
                        };
                        self.add(Group { pc: second.0, mask: second.1, ..group });
                        (group.pc, group.mask) = first;
                        stop = stop.min(second.0);
                    }
                    if backward {
                        stop = self.next_stop(&group);
                        self.count(length, &group, cx)?;
                        *turns = turns.saturating_sub(1);
                        group_turns -= 1;
                        if *turns == 0 {
                            return Ok(Step::Kept(group));
                        }
                        if group_turns == 0 {
                            group_turns = TURNS_OF_GROUP;
                            if self.groups.iter().any(|other| other.wait == Wait::None) {
                                return Ok(Step::Tired(group));
                            }
                        }
                    }
                }
                Op::Predicate { function, d, a, b, invert_b } => {
                    // SAFETY: see above.
                    unsafe {
                        let a = load_mask(registers, *a);
                        let b = load_mask(registers, *b) ^ if *invert_b { FULL } else { 0 };
                        store_mask(registers, *d, logic(*function, a, b), mask);
                    }
                    group.pc += 1;
                }
                Op::Load(access) | Op::Store(access) => {
                    if mask != 0 {
                        let run = if cx.vector { access.run.vector } else { access.run.portable };
                        // SAFETY: see above; the view and the local memory are those of this block and warp.
                        unsafe { run(access, registers, mask, &mut cx.view, local) }
                            .map_err(|refused| self.refusal(&refused, &group, cx))?;
                    }
                    group.pc += 1;
                }
                Op::Parameter { d, offset, bytes, signed, wide } => {
                    let value = cx.parameter(*offset, *bytes, *signed);
                    let registers = &mut self.frame(group.frame).registers;
                    if *wide {
                        put_lanes(registers.doubles(*d), value, mask);
                    } else {
                        put_lanes(registers.words(*d), value as u32, mask);
                    }
                    group.pc += 1;
                }
                Op::Atomic(atomic) => {
                    if mask != 0 {
                        // SAFETY: see above.
                        unsafe { atomic::run(atomic, registers, mask, &mut cx.view, local) }
                            .map_err(|refused| self.refusal(&refused, &group, cx))?;
                    }
                    group.pc += 1;
                }
                Op::CopyAsync(copy) => {
                    if mask != 0 {
                        // SAFETY: see above.
                        unsafe { atomic::copy_async(copy, registers, mask, &mut cx.view, local) }
                            .map_err(|refused| self.refusal(&refused, &group, cx))?;
                    }
                    group.pc += 1;
                }
                Op::JumpTable { index, targets } => return self.jump_table(group, mask, *index, targets, cx),
                Op::Exit | Op::Return if mask == 0 => group.pc += 1,
                Op::Exit => {
                    self.exit(group.frame, mask, cx);
                    return Ok(self.rest(group, mask));
                }
                Op::Return => {
                    if group.frame == 0 {
                        self.exit(0, mask, cx);
                    } else {
                        self.return_lanes(group.frame, mask, cx);
                    }
                    return Ok(self.rest(group, mask));
                }
                Op::Call(call) => {
                    if mask == 0 {
                        group.pc += 1;
                        continue;
                    }
                    if mask != group.mask {
                        self.add(Group { pc: group.pc + 1, mask: group.mask & !mask, ..group });
                        group.mask = mask;
                    }
                    self.count(1, &group, cx)?;
                    return self.call(call, group, cx);
                }
                Op::Trap if mask != 0 => {
                    return Err(self.fault(FaultKind::LaunchFailed, "trap", &Group { mask, ..group }, cx));
                }
                Op::Breakpoint if mask != 0 => {
                    return Err(self.fault(FaultKind::LaunchFailed, "breakpoint", &Group { mask, ..group }, cx));
                }
                Op::Trap | Op::Breakpoint => group.pc += 1,
                Op::Fence => {
                    fence(Ordering::SeqCst);
                    group.pc += 1;
                }
                Op::Clock { d, wide, shift } => {
                    let now = cx.clock() >> shift;
                    let registers = &mut self.frame(group.frame).registers;
                    if *wide {
                        put_lanes(registers.doubles(*d), now, mask);
                    } else {
                        put_lanes(registers.words(*d), now as u32, mask);
                    }
                    group.pc += 1;
                }
                Op::ActiveMask { d } => {
                    put_lanes(self.frame(group.frame).registers.words(*d), mask, mask);
                    group.pc += 1;
                }
                Op::WarpBarrier { mask: slot } => {
                    if mask != 0 {
                        let needed = self.lane_word(group.frame, *slot, mask);
                        if needed & self.live & !mask != 0 {
                            if mask != group.mask {
                                self.add(Group { pc: group.pc + 1, mask: group.mask & !mask, ..group });
                            }
                            return Ok(Step::Kept(Group { mask, wait: Wait::WarpBarrier(needed), ..group }));
                        }
                    }
                    group.pc += 1;
                }
                Op::Shuffle(_) | Op::Vote(_) | Op::Match(_) | Op::Reduce(_) => {
                    if mask != 0 {
                        let slot = collective::member_slot(&instruction.op);
                        let needed = self.lane_word(group.frame, slot, mask);
                        if needed & self.live & !mask != 0 {
                            if mask != group.mask {
                                self.add(Group { pc: group.pc + 1, mask: group.mask & !mask, ..group });
                            }
                            return Ok(Step::Kept(Group { mask, wait: Wait::Lanes(needed), ..group }));
                        }
                        let live = self.live;
                        collective::run(&instruction.op, &mut self.frame(group.frame).registers, mask, needed & live);
                    }
                    group.pc += 1;
                }
                Op::Barrier(barrier) => {
                    if mask == 0 {
                        group.pc += 1;
                        continue;
                    }
                    if mask != group.mask {
                        self.add(Group { pc: group.pc + 1, mask: group.mask & !mask, ..group });
                        group.mask = mask;
                    }
                    let id = self.lane_word(group.frame, barrier.id, mask);
                    let threads = (barrier.threads != crate::lower::code::NO_SLOT)
                        .then(|| self.lane_word(group.frame, barrier.threads, mask));
                    let votes = if matches!(barrier.kind, BarrierKind::Sync | BarrierKind::Arrive) {
                        0
                    } else {
                        (self.frame(group.frame).registers.mask(barrier.p) ^ if barrier.invert { FULL } else { 0 })
                            & mask
                    };
                    if let Err(what) = cx.arrive(id, threads, mask.count_ones(), votes.count_ones()) {
                        return Err(self.fault(FaultKind::LaunchFailed, what, &group, cx));
                    }
                    if barrier.kind == BarrierKind::Arrive {
                        group.pc += 1;
                        // The barrier may be complete now: those who wait at it should hear of it.
                        *turns = 0;
                        return Ok(Step::Kept(group));
                    }
                    return Ok(Step::Kept(Group { wait: Wait::Barrier(id), ..group }));
                }
            }
        }
    }

    /// The place where another group of the same frame waits to be joined.
    fn next_stop(&self, group: &Group) -> u32 {
        let others = self.groups.iter().filter(|other| other.frame == group.frame && other.wait == Wait::None);
        others.map(|other| other.pc).filter(|pc| *pc > group.pc).min().unwrap_or(u32::MAX)
    }

    fn lane_word(&mut self, frame: usize, slot: u32, mask: u32) -> u32 {
        self.frame(frame).registers.words(slot)[mask.trailing_zeros() as usize]
    }

    /// What is left of a group whose lanes in `mask` went elsewhere.
    fn rest(&self, group: Group, mask: u32) -> Step {
        let rest = group.mask & !mask;
        if rest == 0 { Step::Gone } else { Step::Kept(Group { pc: group.pc + 1, mask: rest, ..group }) }
    }

    /// Counts work against the budget and looks whether someone wants the launch to end.
    #[inline(always)]
    fn count(&mut self, instructions: u64, group: &Group, cx: &mut Context) -> Result<(), Fault> {
        cx.spent += instructions;
        match cx.must_stop() {
            None => Ok(()),
            Some(what) => Err(self.fault(FaultKind::Timeout, what, group, cx)),
        }
    }

    fn jump_table(
        &mut self,
        group: Group,
        mask: u32,
        index: u32,
        targets: &[u32],
        cx: &mut Context,
    ) -> Result<Step, Fault> {
        let indices = *self.frame(group.frame).registers.words(index);
        self.count(1, &group, cx)?;
        for (lane, index) in indices.iter().enumerate().filter(|(lane, _)| mask >> lane & 1 != 0) {
            match targets.get(*index as usize) {
                Some(target) => self.add(Group { pc: *target, mask: 1 << lane, ..group }),
                None => {
                    let what = format!("branch index {index} outside a table of {} targets", targets.len());
                    return Err(self.fault_in(FaultKind::IllegalInstruction, &what, &group, lane as u32, cx));
                }
            }
        }
        Ok(self.rest(group, mask))
    }

    fn exit(&mut self, frame: usize, mask: u32, cx: &mut Context) {
        self.live &= !mask;
        let mut index = frame;
        while index != 0 {
            let parent = self.frame(index).parent;
            self.leave(index, mask, cx);
            index = parent;
        }
    }

    /// Lanes leave a frame; the last ones take it away.
    fn leave(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let frame = self.frame(index);
        frame.lanes &= !mask;
        if frame.lanes == 0 {
            let frame = self.frames[index].take().expect("looked at just now");
            cx.spare.give(frame.function, frame.registers);
        }
    }

    fn return_lanes(&mut self, index: usize, mask: u32, cx: &mut Context) {
        let program = cx.program;
        let (parent, return_pc, function) = {
            let frame = self.frame(index);
            (frame.parent, frame.return_pc, frame.function)
        };
        let caller = self.frame(parent).function;
        if let Op::Call(call) = &program.functions[caller].code[return_pc as usize - 1].op {
            for (from, to) in program.functions[function].results.iter().zip(&call.results) {
                let values = *self.frame(index).registers.words(*from);
                let target = self.frame(parent).registers.words(*to);
                for lane in 0..LANES {
                    target[lane] = if mask >> lane & 1 != 0 { values[lane] } else { target[lane] };
                }
            }
        }
        let depth = self.frame(parent).depth;
        self.leave(index, mask, cx);
        self.add(Group { frame: parent, depth, pc: return_pc, mask, wait: Wait::None });
    }

    fn call(&mut self, call: &Call, group: Group, cx: &mut Context) -> Result<Step, Fault> {
        match call.callee {
            Callee::Function(index) => self.enter(call, index, group, cx),
            Callee::Register(slot) => {
                let addresses = *self.frame(group.frame).registers.doubles(slot);
                let first = group.mask.trailing_zeros() as usize;
                let address = addresses[first];
                let same = (0..LANES).filter(|lane| addresses[*lane] == address).fold(0, |mask, lane| mask | 1 << lane);
                let mask = group.mask & same;
                if mask != group.mask {
                    self.add(Group { mask: group.mask & !mask, ..group });
                }
                let group = Group { mask, ..group };
                match called(address, call, cx) {
                    Some(index) => self.enter(call, index, group, cx),
                    None => {
                        let what = format!("call to {address:#x}, where no function with such arguments is");
                        Err(self.fault(FaultKind::LaunchFailed, &what, &group, cx))
                    }
                }
            }
            _ => {
                let local = self.local();
                let registers = &mut self.frame(group.frame).registers;
                match builtin::run(call, registers, group.mask, cx, local) {
                    Ok(()) => Ok(Step::Kept(Group { pc: group.pc + 1, ..group })),
                    Err(builtin::Failed::Access(refused)) => Err(self.refusal(&refused, &group, cx)),
                    Err(builtin::Failed::Assertion(lane, text)) => {
                        Err(self.fault_in(FaultKind::Assert, &text, &group, lane, cx))
                    }
                }
            }
        }
    }

    /// Enters a function with the lanes of the group.
    fn enter(&mut self, call: &Call, index: usize, group: Group, cx: &mut Context) -> Result<Step, Fault> {
        let program = cx.program;
        let callee = &program.functions[index];
        let (depth, local) = {
            let caller = self.frame(group.frame);
            let local = u64::from(caller.local) + frame_locals(&program.functions[caller.function]);
            (caller.depth + 1, local)
        };
        if depth > DEPTH_MAX || local + u64::from(callee.local_bytes) > self.lane_bytes {
            let what = format!("stack overflow at a depth of {depth} calls");
            return Err(self.fault(FaultKind::IllegalAddress, &what, &group, cx));
        }
        let mut registers = cx.spare.take(index, callee);
        cx.fill(&mut registers, callee, self.index, local as u32);
        for (from, to) in call.arguments.iter().zip(&callee.params) {
            *registers.words(*to) = *self.frame(group.frame).registers.words(*from);
        }
        let frame = Frame {
            function: index,
            registers,
            parent: group.frame,
            return_pc: group.pc + 1,
            depth,
            lanes: group.mask,
            local: local as u32,
        };
        let place = match self.frames.iter().position(Option::is_none) {
            Some(place) => {
                self.frames[place] = Some(frame);
                place
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        Ok(Step::Kept(Group { frame: place, depth, pc: 0, mask: group.mask, wait: Wait::None }))
    }
}

/// The function at an address, where its arguments are those of the call.
fn called(address: u64, call: &Call, cx: &Context) -> Option<usize> {
    let offset = address.checked_sub(FUNCTION_WINDOW)?;
    let index = (offset / FUNCTION_STRIDE) as usize;
    let function = cx.program.functions.get(index)?;
    let fits = function.params.len() == call.arguments.len() && function.results.len() == call.results.len();
    (offset % FUNCTION_STRIDE == 0 && fits).then_some(index)
}

fn logic(function: Logic, a: u32, b: u32) -> u32 {
    match function {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::Copy => a,
        Logic::Not => !a,
    }
}

/// Sets the lanes of `mask` to one value.
pub fn put_lanes<T: Copy>(plane: &mut [T; LANES], value: T, mask: u32) {
    if mask == FULL {
        plane.fill(value);
        return;
    }
    for (lane, one) in plane.iter_mut().enumerate() {
        if mask >> lane & 1 != 0 {
            *one = value;
        }
    }
}
