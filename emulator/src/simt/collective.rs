//! What the lanes of a warp compute together: shuffles, votes, matches, reductions.

use super::atomic::combine;
use super::frames::Registers;
use crate::ops::lanes::{FULL, LANES, NO_SLOT, Word, mask_of, put_lanes};
use crate::program::Op;
use crate::program::warp::{Elect, Match, Reduce, Shuffle, ShuffleMode, Vote, VoteMode};

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
pub fn run(op: &Op, registers: &mut Registers, mask: u32, members: u32, vector: bool) {
    match op {
        Op::Shuffle(shuffle) => run_shuffle(shuffle, registers, mask, vector),
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

fn run_shuffle(shuffle: &Shuffle, registers: &mut Registers, mask: u32, vector: bool) {
    let (a, b, c) = (*registers.words(shuffle.a), *registers.words(shuffle.b), *registers.words(shuffle.c));
    #[cfg(target_arch = "x86_64")]
    if vector {
        // SAFETY: a warp runs so only where the machine has these vectors; the slot is a plane of the frame.
        let valid = unsafe {
            let (values, valid) = in_vectors::shuffle(shuffle.mode, &a, &b, &c);
            u32::merge::<true>(registers.words(shuffle.d), &values, mask);
            valid
        };
        return put_mask(registers, shuffle.valid, valid, mask);
    }
    let (from, inside) = sources(shuffle.mode, &b, &c);
    let target = registers.words(shuffle.d);
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        target[lane] = a[from[lane] as usize & 31];
    }
    put_mask(registers, shuffle.valid, mask_of(&inside), mask);
}

/// The same with the machine's vectors.
#[cfg(target_arch = "x86_64")]
mod in_vectors {
    use std::arch::x86_64::{
        __m256i, _mm256_blendv_epi8, _mm256_loadu_si256, _mm256_permutevar8x32_epi32, _mm256_slli_epi32,
        _mm256_storeu_si256,
    };

    use super::sources;
    use crate::ops::lanes::{LANES, mask_of};
    use crate::program::warp::ShuffleMode;

    /// Lanes in a vector.
    const WIDTH: usize = 8;

    type Words = [u32; LANES];

    /// The values that the lanes read, and the lanes whose source is inside.
    #[target_feature(enable = "avx2")]
    pub(super) fn shuffle(mode: ShuffleMode, a: &Words, b: &Words, c: &Words) -> (Words, u32) {
        let (from, inside) = sources(mode, b, c);
        let mut values = [0; LANES];
        for lane in (0..LANES).step_by(WIDTH) {
            // SAFETY: the arrays hold a vector from each of these lanes on.
            unsafe {
                let part = |first: usize| _mm256_loadu_si256(a.as_ptr().add(first).cast());
                let from = _mm256_loadu_si256(from.as_ptr().add(lane).cast());
                // Each part in the order that the lower three bits ask for; the next two choose among the parts, from
                // where they are the signs.
                let of = |first: usize| _mm256_permutevar8x32_epi32(part(first), from);
                let (third, fourth) = (signs(_mm256_slli_epi32::<28>(from)), signs(_mm256_slli_epi32::<27>(from)));
                let low = _mm256_blendv_epi8(of(0), of(8), third);
                let high = _mm256_blendv_epi8(of(16), of(24), third);
                let value = _mm256_blendv_epi8(low, high, fourth);
                _mm256_storeu_si256(values.as_mut_ptr().add(lane).cast(), value);
            }
        }
        (values, mask_of(&inside))
    }

    /// All ones where the sign is set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn signs(vector: __m256i) -> __m256i {
        std::arch::x86_64::_mm256_srai_epi32::<31>(vector)
    }
}

/// The lanes that the lanes read from, and flags of those that are inside their segments; the others read themselves.
#[inline(always)]
fn sources(mode: ShuffleMode, b: &[u32; LANES], c: &[u32; LANES]) -> ([u32; LANES], [u32; LANES]) {
    /// `find` gives the lane to read from and whether it is inside, for a lane, its operand, and the first and the last
    /// lane of its segment. It is a loop for each mode, which the compiler makes vectors of.
    #[inline(always)]
    fn all(
        b: &[u32; LANES],
        c: &[u32; LANES],
        find: impl Fn(u32, u32, u32, u32) -> (u32, bool),
    ) -> ([u32; LANES], [u32; LANES]) {
        let (mut from, mut inside) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let (clamp, segments) = (c[lane] & 31, c[lane] >> 8 & 31);
            let least = lane as u32 & segments;
            let (source, is_inside) = find(lane as u32, b[lane] & 31, least, least | clamp & !segments);
            inside[lane] = if is_inside { u32::MAX } else { 0 };
            from[lane] = if is_inside { source } else { lane as u32 };
        }
        (from, inside)
    }
    match mode {
        ShuffleMode::Up => all(b, c, |lane, b, _, most| (lane.wrapping_sub(b), lane as i32 - b as i32 >= most as i32)),
        ShuffleMode::Down => all(b, c, |lane, b, _, most| (lane + b, lane + b <= most)),
        ShuffleMode::Butterfly => all(b, c, |lane, b, _, most| (lane ^ b, lane ^ b <= most)),
        ShuffleMode::Index => {
            let mut segments = [0; LANES];
            for lane in 0..LANES {
                segments[lane] = b[lane] & 31 & !(c[lane] >> 8 & 31);
            }
            all(&segments, c, |_, b, least, most| (least | b, least | b <= most))
        }
    }
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
