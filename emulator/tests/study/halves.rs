//! Half-precision numbers of both kinds.

use half::{bf16, f16};

use super::builds::study;
use super::device::args;

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
                // The root comes from an approximation that is good to more bits than a half has.
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
