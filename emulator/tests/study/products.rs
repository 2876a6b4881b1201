//! Matrix products: plain, tiled, and with tensor core instructions.

use half::f16;

use super::builds::{EVERY, check, study};
use super::device::args;

#[test]
fn tiled_and_naive_products_are_the_product() {
    study("matmul_tiled.cu", include_str!("../../cases/study/matmul_tiled.cu"), |device, _| {
        const M: usize = 35;
        const N: usize = 50;
        const K: usize = 29;
        // Small integers, so every order of summation gives one result.
        let a: Vec<f32> = (0..M * K).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
        let b: Vec<f32> = (0..K * N).map(|i| (i * 5 % 19) as f32 - 9.0).collect();
        let expected: Vec<f32> =
            (0..M * N).map(|i| (0..K).map(|k| a[i / N * K + k] * b[k * N + i % N]).sum()).collect();
        for name in ["matmul_tiled", "matmul_naive"] {
            let out = device.zeros::<f32>(M * N);
            let args = args![device.upload(&a), device.upload(&b), out, M as i32, N as i32, K as i32];
            device.run(name, [4, 3], [16, 16], args);
            assert_eq!(device.download(&out), expected, "{name}");
        }
    });
}

#[test]
fn a_warp_multiplies_tiles() {
    check("wmma.cu", include_str!("../../cases/study/wmma.cu"), &EVERY, |device, _| {
        const LD: usize = 24;
        let a: Vec<f16> = (0..16 * LD).map(|i| f16::from_f32((i * 7 % 23) as f32 - 11.0)).collect();
        let b: Vec<f16> = (0..16 * LD).map(|i| f16::from_f32((i * 5 % 19) as f32 * 0.5)).collect();
        let out = device.zeros::<f32>(16 * LD);
        device.run("wmma16", 1, 32, args![device.upload(&a), device.upload(&b), out, LD as i32]);
        let got = device.download(&out);
        for (row, column) in (0..256).map(|i| (i / 16, i % 16)) {
            // Products of few bits, so the sum is exact in every order.
            let products = (0..16).map(|k| a[row * LD + k].to_f32() * b[column * LD + k].to_f32());
            assert_eq!(got[row * LD + column], products.sum::<f32>(), "row {row}, column {column}");
        }
    });
}
