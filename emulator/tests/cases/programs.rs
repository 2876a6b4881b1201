//! Whole kernels, as a compiler emits them.

use super::harness::{Arg, Device};

#[test]
fn a_launch_touches_only_the_elements_it_is_for() {
    for vector in [true, false] {
        let mut device = Device::programs();
        device.vector = vector;
        let x: Vec<f32> = (0..5000).map(|i| i as f32 * 0.37 - 100.0).collect();
        let y: Vec<f32> = (0..5000).map(|i| (i * i % 977) as f32).collect();
        let (input, out) = (device.upload(&x), device.upload(&y));
        let args = [Arg::F32(2.5), Arg::U64(input), Arg::U64(out), Arg::U32(4999)];
        device.launch("scale_add", [40, 1, 1], [128, 1, 1], &args).unwrap();
        let mut expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5f32.mul_add(*x, *y)).collect();
        expected[4999] = y[4999];
        assert_eq!(device.download::<f32>(out, 5000), expected);
    }
}

#[test]
fn the_math_library_is_close_to_that_of_rust() {
    let x: Vec<f32> = (-200..200).map(|i| i as f32 * 0.0437 + 0.003).collect();
    let mut answers = Vec::new();
    for vector in [true, false] {
        let mut device = Device::programs();
        device.vector = vector;
        let (input, out) = (device.upload(&x), device.upload(&vec![0f32; x.len() * 8]));
        let args = [Arg::U64(input), Arg::U64(out), Arg::I32(x.len() as i32)];
        device.launch("math", [4, 1, 1], [128, 1, 1], &args).unwrap();
        answers.push(device.download::<f32>(out, x.len() * 8));
    }
    for (index, v) in x.iter().map(|v| f64::from(*v)).enumerate() {
        let expected = [
            v.exp(),
            (v.abs() + 0.25).ln(),
            v.sin(),
            v.cos(),
            v.abs().powf(1.5),
            v.abs().sqrt() / (v * v + 1.0),
            libm::erf(v),
            v.tanh(),
        ];
        for (part, want) in expected.iter().enumerate() {
            // CUDA guarantees a few units in the last place; near a zero of the function the error is absolute.
            let got = f64::from(answers[0][index * 8 + part]);
            assert!((got - want).abs() <= 1e-6 * want.abs().max(0.1), "part {part} of {v}: {got}, not {want}");
        }
    }
    assert!(answers[0].iter().zip(&answers[1]).all(|(a, b)| a.to_bits() == b.to_bits()), "the builds disagree");
}

#[test]
fn a_tiled_product_is_the_product() {
    const N: usize = 64;
    let a: Vec<f32> = (0..N * N).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
    let b: Vec<f32> = (0..N * N).map(|i| (i * 5 % 19) as f32 - 9.0).collect();
    let device = Device::programs();
    let (left, right, out) = (device.upload(&a), device.upload(&b), device.upload(&vec![0f32; N * N]));
    let args = [Arg::U64(left), Arg::U64(right), Arg::U64(out), Arg::I32(N as i32)];
    device.launch("matmul", [4, 4, 1], [16, 16, 1], &args).unwrap();
    // Small integers, so every order of summation gives one result.
    let expected: Vec<f32> = (0..N * N).map(|i| (0..N).map(|k| a[i / N * N + k] * b[k * N + i % N]).sum()).collect();
    assert_eq!(device.download::<f32>(out, N * N), expected);
}

#[test]
fn lanes_that_escape_early_wait_for_the_others() {
    fn steps(px: u32, py: u32) -> u32 {
        let (cx, cy) = (3.0 * px as f32 / 100.0 - 2.0, 3.0 * py as f32 / 60.0 - 1.5);
        let (mut x, mut y, mut count) = (0f32, 0f32, 0);
        while count < 200 && x * x + y * y < 4.0 {
            (x, y) = (cx + (x * x - y * y), (x + x).mul_add(y, cy));
            count += 1;
        }
        count
    }
    let device = Device::programs();
    let out = device.upload(&vec![0u32; 6000]);
    let args = [Arg::U64(out), Arg::I32(100), Arg::I32(60), Arg::I32(200)];
    device.launch("mandelbrot", [7, 4, 1], [16, 16, 1], &args).unwrap();
    let expected: Vec<u32> = (0..6000).map(|i| steps(i % 100, i / 100)).collect();
    assert_eq!(device.download::<u32>(out, 6000), expected);
}
