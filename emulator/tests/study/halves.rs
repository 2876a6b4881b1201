//! Half-precision numbers: f16 and bf16.

use half::{bf16, f16};

use super::builds::{study, study_since};
use super::device::{Device, Element, args};

#[test]
fn halves_are_added_scaled_and_converted() {
    study("half2.cu", include_str!("../../cases/study/half2.cu"), |device, _| {
        const N: usize = 600;
        let half = |i: usize| f16::from_f32(((i * 37) % 401) as f32 * 0.043 - 8.0);
        let x: Vec<f16> = (0..N).map(half).collect();
        let y: Vec<f16> = (N..2 * N).map(half).collect();
        let a = [f16::from_f32(1.375), f16::from_f32(-0.7)];
        let out = device.upload(&y);
        let pair = u32::from(a[0].to_bits()) | u32::from(a[1].to_bits()) << 16;
        device.run("haxpy2", 3, 128, args![pair, device.upload(&x), out, N as i32 / 2]);
        // Exact in double precision, so rounded once.
        let fused = |i: usize| f16::from_f64(a[i % 2].to_f64() * x[i].to_f64() + y[i].to_f64());
        assert_eq!(device.download(&out), (0..N).map(fused).collect::<Vec<_>>());

        let (floats, mixed) = (device.zeros::<f32>(N), device.zeros::<f16>(N));
        device.run("half_mix", 5, 128, args![device.upload(&x), floats, mixed, N as i32]);
        let doubled: Vec<f32> = x.iter().map(|x| x.to_f32() * 2.0).collect();
        assert_eq!(device.download(&floats), doubled);
        for ((got, x), doubled) in device.download(&mixed).iter().zip(&x).zip(&doubled) {
            let square = f16::from_f32(x.to_f32() * x.to_f32());
            let sum = f16::from_f32(f16::from_f32(doubled + 1.0).to_f32() + square.to_f32());
            if *x <= sum {
                assert_eq!(*got, sum, "of {x}");
            } else {
                // The root comes from an approximation with more bits than a half.
                let root = f16::from_f64(x.to_f64().sqrt());
                assert!(got.to_bits().abs_diff(root.to_bits()) <= 1, "root of {x}: {got}");
            }
        }

        let x: Vec<bf16> = (0..N).map(|i| bf16::from_f32(i as f32 * 0.37 - 100.0)).collect();
        let out = device.zeros::<bf16>(N);
        device.run("bf16_mix", 5, 128, args![device.upload(&x), out, N as i32]);
        let expected: Vec<bf16> = x.iter().map(|x| bf16::from_f32(x.to_f32() + 1.0)).collect();
        assert_eq!(device.download(&out), expected);
    });
}

const MATH: &str = include_str!("../../cases/study/half_math.cu");

/// Common properties of both kinds of half, for generic checks.
trait Half: Element + PartialEq + std::fmt::Debug {
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Returns the position among all values: neighbours differ by one.
    fn rank(self) -> i32;
}

macro_rules! half {
    ($t:ty) => {
        impl Half for $t {
            fn from_f64(value: f64) -> Self {
                <$t>::from_f64(value)
            }

            fn to_f64(self) -> f64 {
                <$t>::to_f64(self)
            }

            fn rank(self) -> i32 {
                let magnitude = i32::from(self.to_bits() & 0x7fff);
                if self.is_sign_negative() { -magnitude } else { magnitude }
            }
        }
    };
}

half!(f16);
half!(bf16);

#[track_caller]
fn assert_half<T: Half>(got: T, want: T, steps: u32, what: &str) {
    let both_nan = got.to_f64().is_nan() && want.to_f64().is_nan();
    let near = !got.to_f64().is_nan() && !want.to_f64().is_nan() && got.rank().abs_diff(want.rank()) <= steps;
    assert!(both_nan || near, "{what} is {got:?}, not {want:?}");
}

/// Returns values whose products and sums are exact in a double, followed by special values.
fn operands<T: Half>(seed: usize) -> Vec<T> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.5];
    let plain = (0..300).map(|i| ((i * 7919 + seed * 131) % 4001) as f64 * 0.0043 - 8.0);
    plain.chain((0..49).map(|i| special[if seed.is_multiple_of(2) { i % 7 } else { i / 7 }])).map(T::from_f64).collect()
}

fn arithmetic<T: Half>(device: &Device, name: &str) {
    let [a, b, c] = [0, 1, 2].map(operands::<T>);
    let out = device.zeros::<T>(a.len() * 16);
    device.run(name, 3, 128, args![device.upload(&a), device.upload(&b), device.upload(&c), out, a.len() as i32]);
    for (i, got) in device.download(&out).chunks(16).enumerate() {
        let [x, y, z] = [a[i], b[i], c[i]].map(T::to_f64);
        let saturated = |v: f64| if v.is_nan() { 0.0 } else { v.clamp(0.0, 1.0) };
        let fused = x.mul_add(y, z);
        let relu = if fused.is_nan() { fused } else { fused.max(0.0) };
        let either_nan = if x.is_nan() || y.is_nan() { f64::NAN } else { 0.0 };
        let expected = [
            x + y,
            x - y,
            x * y,
            x / y,
            fused,
            saturated(x + y),
            saturated(x - y),
            saturated(x * y),
            saturated(fused),
            relu,
            -x,
            x.abs(),
            x.min(y),
            x.max(y),
            x.min(y) + either_nan,
            x.max(y) + either_nan,
        ];
        for (k, (got, want)) in got.iter().zip(expected).enumerate() {
            // A quotient comes from an approximation in single precision.
            let steps = u32::from(k == 3);
            assert_half(*got, T::from_f64(want), steps, &format!("value {k} of {x}, {y}, {z}"));
        }
    }
}

fn functions<T: Half>(device: &Device, name: &str) {
    let x: Vec<T> = (1..200).map(|i| T::from_f64(f64::from(i) * 0.021)).collect();
    let out = device.zeros::<T>(x.len() * 16);
    device.run(name, 2, 128, args![device.upload(&x), out, x.len() as i32]);
    for (got, x) in device.download(&out).chunks(16).zip(x) {
        let v = x.to_f64();
        let expected = [
            v.exp(),
            v.exp2(),
            libm::exp10(v),
            v.ln(),
            v.log2(),
            v.log10(),
            v.sin(),
            v.cos(),
            v.sqrt(),
            1.0 / v.sqrt(),
            1.0 / v,
            v.floor(),
            v.ceil(),
            v.trunc(),
            v.round_ties_even(),
            v.tanh(),
        ];
        for (k, (got, want)) in got.iter().zip(expected).enumerate() {
            // Near a zero of a function, its error is that of the last bit of its argument.
            let near_zero = (got.to_f64() - want).abs() < 1e-4;
            if !near_zero {
                assert_half(*got, T::from_f64(want), 2, &format!("function {k} of {v}"));
            }
        }
    }
}

#[test]
fn halves_of_both_kinds_compute_saturate_and_keep_nans() {
    study_since(8, "half_math.cu", MATH, |device, _| {
        arithmetic::<f16>(device, "half_arithmetic");
        arithmetic::<bf16>(device, "bfloat_arithmetic");
        functions::<f16>(device, "half_functions");
        functions::<bf16>(device, "bfloat_functions");
    });
}

fn comparisons(x: f64, y: f64) -> u32 {
    let ordered = [x == y, x != y, x < y, x <= y, x > y, x >= y];
    let unordered = x.is_nan() || y.is_nan();
    let bits = ordered.iter().enumerate().fold(0, |bits, (i, holds)| {
        let (both, either) = (*holds && !unordered, *holds || unordered);
        bits | u32::from(both) << i | u32::from(either) << (i + 6)
    });
    bits | u32::from(x.is_nan()) << 12 | u32::from(x.is_infinite()) << 13
}

#[test]
fn halves_compare_also_with_nans() {
    study_since(8, "half_math.cu", MATH, |device, _| {
        let (a, b) = (operands::<f16>(0), operands::<f16>(1));
        let (c, d) = (operands::<bf16>(0), operands::<bf16>(1));
        let out = device.zeros::<u32>(a.len() * 2);
        let [x, y] = [&a, &b].map(|values| device.upload(values));
        device.run("compared", 3, 128, args![x, y, device.upload(&c), device.upload(&d), out, a.len() as i32]);
        for (i, got) in device.download(&out).chunks(2).enumerate() {
            let expected = [comparisons(a[i].into(), b[i].into()), comparisons(c[i].into(), d[i].into())];
            assert_eq!(got, expected, "of {} and {}", a[i], b[i]);
        }
        pairs(device, &a[..348], &b[..348]);
    });
}

fn pairs(device: &Device, a: &[f16], b: &[f16]) {
    let n = a.len() / 2;
    let (out, masks) = (device.zeros::<f16>(n * 16), device.zeros::<u32>(n * 4));
    device.run("pairs", 2, 128, args![device.upload(a), device.upload(b), out, masks, n as i32]);
    let (out, masks) = (device.download(&out), device.download(&masks));
    for i in 0..n {
        let (x, y) = ([a[2 * i], a[2 * i + 1]].map(f64::from), [b[2 * i], b[2 * i + 1]].map(f64::from));
        for lane in 0..2 {
            let (v, w) = (x[lane], y[lane]);
            let swapped = [x[1 - lane], if lane == 0 { x[0] } else { y[0] }, if lane == 0 { x[1] } else { y[1] }];
            let values = [v + w, v * w, v / w, v.min(w), v.max(w), swapped[0], swapped[1], swapped[2]];
            for (k, want) in values.into_iter().enumerate() {
                let what = format!("value {k} of {v} and {w}");
                assert_half(out[i * 16 + k * 2 + lane], f16::from_f64(want), u32::from(k == 2), &what);
            }
        }
        let mask = |f: &dyn Fn(f64, f64) -> bool| {
            (0..2).filter(|l| f(x[*l], y[*l])).fold(0, |mask, l| mask | 0xffff << (16 * l))
        };
        let both = |f: &dyn Fn(f64, f64) -> bool| u32::from(f(x[0], y[0]) && f(x[1], y[1]));
        // Rust's `!=` is true of a NaN, as the unordered comparison is.
        let expected = [mask(&|x, y| x == y), mask(&|x, y| x < y), both(&|x, y| x >= y), both(&|x, y| x != y)];
        assert_eq!(masks[i * 4..][..4], expected, "of {x:?} and {y:?}");
    }
}
