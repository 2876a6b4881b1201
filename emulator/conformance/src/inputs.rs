//! Inputs of cases: edge values of every kind, and random values between them.

use crate::{
    kind::Kind::{self, *},
    recipe::Rows,
};

/// A SplitMix64 generator. Its numbers must never change, because the checksums depend on them.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Makes a generator seeded with a text.
    pub fn named(name: &str) -> Random {
        // FNV-1a.
        Random(
            name.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns a value of a kind; half of the time an edge value.
    pub fn value(&mut self, kind: Kind) -> u64 {
        if self.below(2) == 0 {
            return *self.pick(&edges(kind));
        }
        match kind.element() {
            // Close to each other, so that sums do not just return the larger operand.
            Some(F32 | Tf32) => (0x3e00_0000 + self.draw() % 0x0300_0000) | self.draw() & 0x8000_0000,
            Some(F64) => (0x3fc0_0000_0000_0000 + (self.draw() >> 2) % 0x0060_0000_0000_0000) | self.draw() & 1 << 63,
            Some(element) => {
                let part = |random: &mut Random| match element {
                    F16 => (0x3000 + random.draw() % 0x1800) | random.draw() & 0x8000,
                    _ => (0x3e00 + random.draw() % 0x0300) | random.draw() & 0x8000,
                };
                let low = part(self);
                if kind.lanes() == 2 { low | part(self) << 16 } else { low }
            }
            None => self.draw() & kind.mask() >> self.below(kind.bits() as usize),
        }
    }
}

/// Returns the edge values of a kind.
pub fn edges(kind: Kind) -> Vec<u64> {
    let bits = kind.bits();
    match kind {
        Pred => vec![0, 1],
        F32 | Tf32 => SINGLES.to_vec(),
        F64 => DOUBLES.to_vec(),
        F16 => HALVES.to_vec(),
        Bf16 => BRAINS.to_vec(),
        F16x2 | Bf16x2 => {
            let one = edges(if kind == F16x2 { F16 } else { Bf16 });
            one.iter().zip(one.iter().cycle().skip(7)).map(|(low, high)| low | high << 16).collect()
        }
        U16x2 | S16x2 => {
            let one = edges(U16);
            one.iter().zip(one.iter().cycle().skip(5)).map(|(low, high)| low | high << 16).collect()
        }
        _ => {
            let top = 1u64 << (bits - 1);
            let mask = kind.mask();
            let mut edges = vec![0, 1, 2, mask, mask - 1, top, top - 1, top + 1, bits.into(), 31, 33, 63, 100];
            edges.extend(
                [0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0x0123_4567_89ab_cdef].map(|value| value & mask),
            );
            edges
        }
    }
}

/// Edge values of f32: ±0, subnormals, the smallest and largest, ones, halfway points, infinities, quiet and signalling
/// NaN, and the limits of exact integers.
const SINGLES: [u64; 26] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f80_0001,
    0x3f00_0000,
    0x3fc0_0000,
    0xc020_0000,
    0x3eaa_aaab,
    0x4f00_0000,
    0x4f80_0000,
    0xcf00_0000,
    0x5f00_0000,
    0x4b80_0001,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xff80_0001,
];

const DOUBLES: [u64; 26] = [
    0,
    0x8000_0000_0000_0000,
    1,
    0x8000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x800f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x3690_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x3ff0_0000_0000_0001,
    0x3fe0_0000_0000_0000,
    0x3ff8_0000_0000_0000,
    0xc004_0000_0000_0000,
    0x3fd5_5555_5555_5555,
    0x3ff0_0000_1000_0000,
    0x41e0_0000_0000_0000,
    0x41ef_ffff_ffe0_0000,
    0xc3e0_0000_0000_0000,
    0x47ef_ffff_f000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    0xfff0_0000_0000_0001,
];

const HALVES: [u64; 20] = [
    0, 0x8000, 1, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x3800, 0x3e00, 0xc100, 0x3555, 0x7bff,
    0xfbff, 0x7c00, 0xfc00, 0x7e01, 0xfc01,
];

const BRAINS: [u64; 20] = [
    0, 0x8000, 1, 0x8001, 0x007f, 0x807f, 0x0080, 0x3f80, 0xbf80, 0x3f81, 0x3f00, 0x3fc0, 0xc020, 0x3eab, 0x7f7f,
    0xff7f, 0x7f80, 0xff80, 0x7fc1, 0xff81,
];

/// Returns the rows of a case: each edge value of each input at least once if there is room, combined with edge values
/// of the others.
pub fn rows(inputs: &[Kind], rows: &Rows, name: &str) -> Vec<Vec<u64>> {
    let (count, and) = match rows {
        Rows::Given(rows) => return rows.clone(),
        Rows::Edges { count, and } => (*count, and),
    };
    let edges: Vec<Vec<u64>> = inputs.iter().map(|kind| edges(*kind)).collect();
    let mut random = Random::named(name);
    let mut made = and.clone();
    for index in made.len()..count {
        let row = inputs.iter().zip(&edges).enumerate().map(|(column, (kind, edges))| match column {
            // The first column uses its edge values in order, so that none is missed.
            0 if index < edges.len() + and.len() => edges[index - and.len()],
            _ => random.value(*kind),
        });
        made.push(row.collect());
    }
    made
}
