//! What the lanes of a warp compute together: shuffles, votes, matches, reductions.

use super::atomic::combine;
use super::frames::Registers;
use crate::lower::code::{Elect, Match, NO_SLOT, Op, Reduce, Shuffle, ShuffleMode, Vote, VoteMode};
use crate::ops::lanes::{FULL, LANES, put_lanes};

/// The slot of the mask of lanes that take part.
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

/// Runs the operation in the lanes of `mask`, among the members.
pub fn run(op: &Op, registers: &mut Registers, mask: u32, members: u32) {
    match op {
        Op::Shuffle(shuffle) => run_shuffle(shuffle, registers, mask),
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

fn run_shuffle(shuffle: &Shuffle, registers: &mut Registers, mask: u32) {
    let a = *registers.words(shuffle.a);
    let b = *registers.words(shuffle.b);
    let c = *registers.words(shuffle.c);
    let (mut result, mut valid) = ([0; LANES], 0);
    for lane in 0..LANES {
        let (from, inside) = source(shuffle.mode, lane as u32, b[lane], c[lane]);
        result[lane] = a[from as usize & 31];
        valid |= u32::from(inside) << lane;
    }
    let target = registers.words(shuffle.d);
    for lane in 0..LANES {
        target[lane] = if mask >> lane & 1 != 0 { result[lane] } else { target[lane] };
    }
    put_mask(registers, shuffle.valid, valid, mask);
}

/// The lane that `lane` reads from, and whether that is inside its segment.
fn source(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segments) = (b & 31, c & 31, c >> 8 & 31);
    let least = lane & segments;
    let most = least | clamp & !segments;
    let (from, inside) = match mode {
        ShuffleMode::Up => (lane.wrapping_sub(b), lane as i32 - b as i32 >= most as i32),
        ShuffleMode::Down => (lane + b, lane + b <= most),
        ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= most),
        ShuffleMode::Index => {
            let from = least | b & !segments;
            (from, from <= most)
        }
    };
    if inside { (from, true) } else { (lane, false) }
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

/// The lowest of the members is elected.
fn run_elect(elect: &Elect, registers: &mut Registers, mask: u32, members: u32) {
    let leader = members.trailing_zeros();
    if elect.d != NO_SLOT {
        put_lanes(registers.words(elect.d), leader, mask);
    }
    put_mask(registers, elect.p, 1 << leader, mask);
}
