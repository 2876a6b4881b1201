//! Integer and floating-point intrinsics, inline assembly, and the clocks.

use super::builds::study;
use super::device::args;
use super::directed::{Direction, directed, two_sum};

const INTRINSICS: &str = include_str!("../../cases/study/intrinsics.cu");

fn noise(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns edge values first, then pseudorandom ones.
fn words(seed: u64) -> Vec<u32> {
    let edges = [0, 1, 31, 32, 33, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x80ff_7f01];
    let rotated = (0..edges.len()).map(|i| edges[(i * (seed as usize + 1) + seed as usize) % edges.len()]);
    rotated.chain((0..200).map(|i| (noise(i + seed * 1000) >> 20) as u32)).collect()
}

#[test]
fn integer_intrinsics_are_what_they_say() {
    study("intrinsics.cu", INTRINSICS, |device, _| {
        let [a, b, c] = [words(0), words(1), words(2)];
        let out = device.zeros::<u32>(a.len() * 40);
        let args = args![device.upload(&a), device.upload(&b), device.upload(&c), out, a.len() as i32];
        device.run("integers", 2, 128, args);
        for (i, got) in device.download(&out).chunks(40).enumerate() {
            let expected = integers(a[i], b[i], c[i]);
            for (k, (got, want)) in got.iter().zip(expected).enumerate() {
                assert_eq!(*got, want, "value {k} of {:#x}, {:#x}, {:#x}: {got:#x}, not {want:#x}", a[i], b[i], c[i]);
            }
        }
    });
}

fn integers(x: u32, y: u32, z: u32) -> [u32; 40] {
    let (sx, sy) = (i64::from(x as i32), i64::from(y as i32));
    let (ux, uy) = (u64::from(x), u64::from(y));
    let w = ux << 32 | uy;
    let v = w ^ u64::from(z);
    let pair = uy << 32 | ux;
    let [bx, by] = [x, y].map(u32::to_le_bytes);
    let bytes = |f: &dyn Fn(u8, u8) -> u8| u32::from_le_bytes([0, 1, 2, 3].map(|i| f(bx[i], by[i])));
    let halves = |f: &dyn Fn(u16, u16) -> u16| {
        u32::from(f(x as u16, y as u16)) | u32::from(f((x >> 16) as u16, (y >> 16) as u16)) << 16
    };
    let low24 = |v: u32| i64::from((v << 8) as i32 >> 8);
    let all = [bx, by].concat();
    let permuted = (0..4).fold(0, |word, i| word | u32::from(all[(z >> (4 * i) & 7) as usize]) << (8 * i));
    let dot_signed = (0..4).map(|i| i32::from(bx[i] as i8) * i32::from(by[i] as i8)).sum::<i32>();
    let dot_unsigned = (0..4).map(|i| u32::from(bx[i]) * u32::from(by[i])).sum::<u32>();
    let two_signed =
        i32::from(x as i16) * i32::from(by[0] as i8) + i32::from((x >> 16) as i16) * i32::from(by[1] as i8);
    let two_unsigned = (x & 0xffff).wrapping_mul(by[2].into()).wrapping_add((x >> 16) * u32::from(by[3]));
    let found = if w == 0 { 0 } else { w.trailing_zeros() + 1 };
    [
        ((sx * sy) >> 32) as u32,
        ((ux * uy) >> 32) as u32,
        (low24(x) * low24(y)) as u32,
        (x & 0xff_ffff).wrapping_mul(y & 0xff_ffff),
        ((sx - sy).unsigned_abs() as u32).wrapping_add(z),
        x.abs_diff(y).wrapping_add(z),
        ((sx + sy) >> 1) as u32,
        ((sx + sy + 1) >> 1) as u32,
        ((ux + uy) >> 1) as u32,
        ((ux + uy + 1) >> 1) as u32,
        x.reverse_bits(),
        w.leading_zeros(),
        found,
        w.count_ones(),
        permuted,
        (pair << (z & 31) >> 32) as u32,
        (pair >> (z & 31)) as u32,
        (pair << (z & 63).min(32) >> 32) as u32,
        (pair >> (z & 63).min(32)) as u32,
        z.wrapping_add(dot_signed as u32),
        z.wrapping_add(dot_unsigned),
        z.wrapping_add(two_signed as u32),
        z.wrapping_add(two_unsigned),
        ((u128::from(w) * u128::from(v)) >> 64) as u32,
        (((i128::from(w as i64) * i128::from(v as i64)) >> 64) as i64 >> 7) as u32,
        (w.reverse_bits() >> 16) as u32,
        bytes(&u8::wrapping_add),
        halves(&u16::wrapping_sub),
        bytes(&u8::abs_diff),
        halves(&|a, b| (a as i16).max(b as i16) as u16),
        bytes(&u8::min),
        bytes(&|a, b| if a > b { 255 } else { 0 }),
        halves(&|a, b| (a == b).into()),
        bytes(&u8::saturating_add),
        (0..4).map(|i| u32::from(bx[i].abs_diff(by[i]))).sum(),
        bytes(&|a, b| ((u16::from(a) + u16::from(b) + 1) >> 1) as u8),
        halves(&|a, b| (a as i16).saturating_sub(b as i16) as u16),
        bytes(&|a, _| a.wrapping_neg()),
        bytes(&|a, _| (a as i8).saturating_abs() as u8),
        sx.max(sy).max(0) as u32,
    ]
}

#[test]
fn arithmetic_rounds_in_the_direction_asked_for() {
    study("intrinsics.cu", INTRINSICS, |device, _| {
        let single = |i: u64| (noise(i) as i32) as f32 * 3e-8;
        let x: Vec<f32> = (0..300).map(single).collect();
        let y: Vec<f32> = (300..600).map(single).collect();
        let out = device.zeros::<f32>(6000);
        device.run("rounded", 3, 128, args![device.upload(&x), device.upload(&y), out, 300i32]);
        for (i, got) in device.download(&out).chunks(20).enumerate() {
            let (a, b) = (f64::from(x[i]), f64::from(y[i]));
            let (fused, fused_error) = two_sum(a * b, a);
            let root = a.abs().sqrt();
            let exact = [
                (a + b, 0.0, x[i] + y[i]),
                (a * b, 0.0, x[i] * y[i]),
                (a / b, (-(a / b)).mul_add(b, a) * b.signum(), x[i] / y[i]),
                (fused, fused_error, x[i].mul_add(y[i], x[i])),
                (root, (-root).mul_add(root, a.abs()), x[i].abs().sqrt()),
            ];
            for (got, (value, error, nearest)) in got.chunks(4).zip(exact) {
                let toward = |direction| directed(value, error, direction);
                let expected = [nearest, toward(Direction::Zero), toward(Direction::Up), toward(Direction::Down)];
                assert_eq!(got, expected, "of {} and {}", x[i], y[i]);
            }
        }

        let x: Vec<f64> = (0..300).map(|i| noise(i) as i64 as f64 * 1e-17).collect();
        let y: Vec<f64> = (300..600).map(|i| noise(i) as i64 as f64 * 1e-15).collect();
        let out = device.zeros::<f64>(3600);
        device.run("rounded_f64", 3, 128, args![device.upload(&x), device.upload(&y), out, 300i32]);
        for (got, (x, y)) in device.download(&out).chunks(12).zip(x.into_iter().zip(y)) {
            let (sum, error) = two_sum(x, y);
            let down = if error < 0.0 { sum.next_down() } else { sum };
            let up = if error > 0.0 { sum.next_up() } else { sum };
            let expected = [
                sum,
                if sum > 0.0 { down } else { up },
                up,
                down,
                x * y,
                x / y,
                x.abs().sqrt(),
                x.mul_add(y, x),
                1.0 / y,
                x.min(y),
                x.max(y),
                x.copysign(y),
            ];
            assert_eq!(got, expected, "of {x} and {y}");
        }
    });
}

#[test]
fn conversions_round_and_saturate() {
    study("intrinsics.cu", INTRINSICS, |device, _| {
        let f: Vec<f32> = (0..300).map(|i| noise(i) as i64 as f32 * 10f32.powi((i % 12) as i32 - 20)).collect();
        let d: Vec<f64> = (0..300).map(|i| noise(i + 7) as i64 as f64 * 10f64.powi((i % 12) as i32 - 20)).collect();
        let l: Vec<i64> = (0..300).map(|i| noise(i + 99) as i64 >> (i % 60)).collect();
        let (out, p, q) = (device.zeros::<i64>(4200), device.zeros::<f32>(1800), device.zeros::<f64>(1800));
        let args = args![device.upload(&f), device.upload(&d), device.upload(&l), out, p, q, 300i32];
        device.run("converted", 3, 128, args);
        let (out, p, q) = (device.download(&out), device.download(&p), device.download(&q));
        for i in 0..300 {
            let (x, y, w) = (f[i], d[i], l[i]);
            let expected = [
                i64::from(x.round_ties_even() as i32),
                i64::from(x as i32),
                i64::from(x.ceil() as i32),
                i64::from(x.floor() as i32),
                i64::from(x.round_ties_even() as u32),
                x.floor() as i64,
                x.ceil() as u64 as i64,
                i64::from(y.round_ties_even() as i32),
                i64::from(y as u32),
                y.ceil() as i64,
                y.floor() as u64 as i64,
                x.round_ties_even() as i64,
                y.round() as i64,
                x.round() as i64,
            ];
            assert_eq!(out[i * 14..][..14], expected, "of {x} and {y}");
            // The error of the nearest double is exact, because both are integers of less than 65 bits.
            let single = |w: i128, direction| directed(w as f64, (w - w as f64 as i128) as f64, direction);
            let (signed, unsigned) = (i128::from(w), i128::from(w as u64));
            let expected = [
                w as f32,
                single(signed, Direction::Zero),
                single(unsigned, Direction::Up),
                single((w as i32).into(), Direction::Down),
                directed(y, 0.0, Direction::Zero),
                single((w as u32).into(), Direction::Up),
            ];
            assert_eq!(p[i * 6..][..6], expected, "of {w} and {y}");
            let near = w as f64;
            let zero = if near as i128 > signed && w > 0 { near.next_down() } else { near };
            let zero = if (near as i128) < signed && w < 0 { near.next_up() } else { zero };
            let up = w as u64 as f64;
            let up = if (up as i128) < unsigned { up.next_up() } else { up };
            assert_eq!(q[i * 6..][..6], [near, zero, up, f64::from(w as i32), y, f64::from(x)], "of {w}");
        }
    });
}

#[test]
fn inline_assembly_is_as_good_as_c() {
    study("intrinsics.cu", INTRINSICS, |device, _| {
        let values = &words(5)[..64];
        let out = device.zeros::<u32>(320);
        device.run("assembly", 1, 64, args![device.upload(values), out]);
        for (t, (got, x)) in device.download(&out).chunks(5).zip(values.iter().copied()).enumerate() {
            let sum = x.wrapping_add(5);
            let r = if sum > 1000 { sum - 1000 } else { sum };
            let high = ((u64::from(x) * u64::from(x)) >> 32) as u32;
            let bytes = (u64::from(x) << 24 | u64::from(r)).to_le_bytes();
            let permuted = u32::from_le_bytes([bytes[7], bytes[3], bytes[6], bytes[2]]);
            assert_eq!(got, [r, t as u32 % 32, high, x & r | x & high | r & high, permuted], "of {x:#x}");
        }
        let out = device.zeros::<u32>(32);
        device.run("clocks", 1, 32, args![out]);
        assert_eq!(device.download(&out), [7; 32], "clocks go on while a thread sleeps");
    });
}
