//! Warp-level operations: shuffles (`shfl`), votes (`vote`), matches (`match`), reductions (`redux`) and elections
//! (`elect`).

pub mod shuffle;

use super::atomic::combine;
use super::frames::Registers;
use crate::ops::lanes::{FULL, LANES, NO_SLOT, put_lanes};
use crate::program::Op;
use crate::program::warp::{Elect, Match, Reduce, Vote, VoteMode};

/// Returns the slot of an operation's membermask.
pub fn member_slot(op: &Op) -> u32 {
    match op {
        Op::Shuffle(shuffle) => shuffle.mask,
        Op::Vote(vote) => vote.mask,
        Op::Match(matching) => matching.mask,
        Op::Reduce(reduce) => reduce.mask,
        Op::Elect(elect) => elect.mask,
        _ => unreachable!("only operations of several lanes come here"),
    }
}

/// Runs the operation for the lanes of `mask`, over all members.
pub fn run(op: &Op, registers: &mut Registers, mask: u32, members: u32, vector: bool) {
    match op {
        Op::Shuffle(shuffle) => {
            let run = if vector { shuffle::run::<true> } else { shuffle::run::<false> };
            // SAFETY: the slots are planes of the frame; a warp runs with vectors only where the machine has them.
            unsafe { run(shuffle, registers.start(), mask) }
        }
        Op::Vote(vote) => run_vote(vote, registers, mask, members),
        Op::Match(matching) => run_match(matching, registers, mask, members),
        Op::Reduce(reduce) => run_reduce(reduce, registers, mask, members),
        Op::Elect(elect) => run_elect(elect, registers, mask, members),
        _ => unreachable!("only operations of several lanes come here"),
    }
}

fn put_mask(registers: &mut Registers, slot: u32, bits: u32, mask: u32) {
    let old = registers.mask(slot);
    registers.put_mask(slot, old & !mask | bits & mask);
}

fn run_vote(vote: &Vote, registers: &mut Registers, mask: u32, members: u32) {
    let bits = (registers.mask(vote.a) ^ if vote.invert { FULL } else { 0 }) & members;
    let answer = |yes: bool| if yes { FULL } else { 0 };
    match vote.mode {
        VoteMode::All => put_mask(registers, vote.d, answer(bits == members), mask),
        VoteMode::Any => put_mask(registers, vote.d, answer(bits != 0), mask),
        VoteMode::Uniform => put_mask(registers, vote.d, answer(bits == members || bits == 0), mask),
        VoteMode::Ballot => put_lanes(registers.words(vote.d), bits, mask),
    }
}

fn run_match(matching: &Match, registers: &mut Registers, mask: u32, members: u32) {
    let values: [u64; LANES] =
        if matching.wide { *registers.doubles(matching.a) } else { registers.words(matching.a).map(u64::from) };
    let same = |lane: usize| {
        (0..LANES).filter(|other| values[*other] == values[lane]).fold(0u32, |found, other| found | 1 << other)
            & members
    };
    if matching.all {
        let all = members != 0 && same(members.trailing_zeros() as usize) == members;
        put_lanes(registers.words(matching.d), if all { members } else { 0 }, mask);
        if matching.p != NO_SLOT {
            put_mask(registers, matching.p, if all { FULL } else { 0 }, mask);
        }
        return;
    }
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        registers.words(matching.d)[lane] = same(lane);
    }
}

fn run_reduce(reduce: &Reduce, registers: &mut Registers, mask: u32, members: u32) {
    let values = *registers.words(reduce.a);
    let mut lanes = (0..LANES).filter(|lane| members >> lane & 1 != 0).map(|lane| u64::from(values[lane]));
    let first = lanes.next().unwrap_or_default();
    let result = lanes.fold(first, |sum, value| combine(reduce.function, reduce.ty, sum, value, 0));
    put_lanes(registers.words(reduce.d), result as u32, mask);
}

/// Elects the lowest member.
fn run_elect(elect: &Elect, registers: &mut Registers, mask: u32, members: u32) {
    let leader = members.trailing_zeros();
    if elect.d != NO_SLOT {
        put_lanes(registers.words(elect.d), leader, mask);
    }
    put_mask(registers, elect.p, 1 << leader, mask);
}
