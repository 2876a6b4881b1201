//! `mma.m8n8k4` on f16, which computes four products at once, with the layouts of its section in the PTX ISA.

use super::mma::body;
use super::{F16, F32, Format, Numbers, product, run};

/// First lane of each product: its other lanes are the next three, and the four lanes 16 further on.
const FIRST: [usize; 4] = [0, 4, 8, 12];

fn lanes(product: usize) -> impl Iterator<Item = usize> {
    let first = FIRST[product];
    (first..first + 4).chain(first + 16..first + 20)
}

/// Returns row and column of element `i` of A in a lane.
fn a_place(major: &str, lane: usize, i: usize) -> (usize, usize) {
    let upper = if lane < 16 { 0 } else { 4 };
    if major == "row" { (lane % 4 + upper, i) } else { (i % 4 + upper, lane % 4) }
}

fn b_place(major: &str, lane: usize, i: usize) -> (usize, usize) {
    let upper = if lane < 16 { 0 } else { 4 };
    if major == "row" { (lane % 4, i + upper) } else { (i, lane % 4 + upper) }
}

fn c_place(format: Format, lane: usize, i: usize) -> (usize, usize) {
    let upper = if lane < 16 { 0 } else { 4 };
    if format.bits == 16 {
        return (lane % 4 + upper, i);
    }
    ((lane & 0b1) + (i & 0b10) + upper, (i & 0b100) + (lane & 0b10) + (i & 0b1))
}

#[test]
fn four_small_products_in_every_layout() {
    let mut numbers = Numbers(11);
    for (d, c) in [(F16, F16), (F32, F16), (F32, F32)] {
        for (a_major, b_major) in [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")] {
            let mut matrix = |count: usize| -> Vec<f64> { (0..count).map(|_| numbers.whole(9)).collect() };
            let matrices: Vec<[Vec<f64>; 3]> = (0..4).map(|_| [matrix(32), matrix(32), matrix(64)]).collect();
            let c_words = if c.bits == 16 { 4 } else { 8 };
            let mut words = vec![0u32; (2 + 2 + c_words) * 32];
            for (number, [x, y, z]) in matrices.iter().enumerate() {
                for lane in lanes(number) {
                    let mut put = |register: usize, bits: u32, i: usize, value: u64| {
                        let bit = i * bits as usize;
                        words[(register + bit / 32) * 32 + lane] |= (value as u32) << (bit % 32);
                    };
                    for i in 0..4 {
                        let (row, column) = a_place(a_major, lane, i);
                        put(0, 16, i, (F16.encode)(x[row * 4 + column]));
                        let (row, column) = b_place(b_major, lane, i);
                        put(2, 16, i, (F16.encode)(y[row * 8 + column]));
                    }
                    for i in 0..8 {
                        let (row, column) = c_place(c, lane, i);
                        put(4, c.bits, i, (c.encode)(z[row * 8 + column]));
                    }
                }
            }
            let opcode = format!("mma.sync.aligned.m8n8k4.{a_major}.{b_major}.{}.f16.f16.{}", d.name, c.name);
            let d_words = if d.bits == 16 { 4 } else { 8 };
            let mut out = vec![0; d_words * 32];
            run(&body(&opcode, [d_words, 2, 2, c_words], false), &words, &mut out).unwrap();
            for (number, [x, y, z]) in matrices.iter().enumerate() {
                let want = product((8, 8, 4), x, y, z);
                for lane in lanes(number) {
                    for i in 0..8 {
                        let (row, column) = c_place(d, lane, i);
                        let bit = i * d.bits as usize;
                        let mask = if d.bits == 16 { 0xffff } else { u64::MAX };
                        let got = u64::from(out[bit / 32 * 32 + lane] >> (bit % 32)) & mask;
                        assert_eq!((d.decode)(got), want[row * 8 + column].0, "{opcode} lane {lane} element {i}");
                    }
                }
            }
        }
    }
}
