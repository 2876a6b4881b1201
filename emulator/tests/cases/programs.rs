//! Whole kernels, as the compiler makes them.

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
            // CUDA promises a few units in the last place; near a zero of the function the error is absolute.
            let got = f64::from(answers[0][index * 8 + part]);
            assert!((got - want).abs() <= 1e-6 * want.abs().max(0.1), "part {part} of {v}: {got}, not {want}");
        }
    }
    assert!(answers[0].iter().zip(&answers[1]).all(|(a, b)| a.to_bits() == b.to_bits()), "the builds disagree");
}
