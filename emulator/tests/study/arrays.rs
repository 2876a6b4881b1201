//! Kernels that process or move single elements.

use super::builds::{study, study_since};
use super::close::assert_either;
use super::device::args;

#[test]
fn saxpy_scales_and_adds() {
    study("saxpy.cu", include_str!("../../cases/study/saxpy.cu"), |device, _| {
        const N: usize = 1000;
        let a = 2.7f32;
        let x: Vec<f32> = (0..N).map(|i| i as f32 * 0.37 - 100.0).collect();
        let y: Vec<f32> = (0..N).map(|i| (i * i % 977) as f32 * 0.01).collect();
        let fused: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y)).collect();
        let apart: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a * x + y).collect();
        let (input, out) = (device.upload(&x), device.upload(&y));
        device.run("saxpy", 8, 128, args![a, input, out, N as i32]);
        assert_either(&device.download(&out), &[&fused, &apart]);
        let out = device.upload(&y);
        device.run("saxpy4", 2, 64, args![a, input, out, N as i32 / 4]);
        assert_eq!(device.download(&out), fused);
    });
}

#[test]
fn additions_of_every_width_wrap_or_saturate_as_in_c() {
    study("vecadd.cu", include_str!("../../cases/study/vecadd.cu"), |device, _| {
        const N: usize = 777;
        let noise = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let a: Vec<u64> = (0..N).map(noise).collect();
        let b: Vec<u64> = (N..2 * N).map(noise).collect();
        macro_rules! binary {
            ($name:literal, $left:ty, $right:ty, $out:ty, $f:expr) => {{
                let left: Vec<$left> = a.iter().map(|v| *v as $left).collect();
                let right: Vec<$right> = b.iter().map(|v| *v as $right).collect();
                let out = device.zeros::<$out>(N);
                device.run($name, 7, 128, args![device.upload(&left), device.upload(&right), out, N as u32]);
                let expected: Vec<$out> = left.iter().zip(&right).map(|(a, b)| $f(*a, *b)).collect();
                assert_eq!(device.download(&out), expected, $name);
            }};
        }
        binary!("add_i32", i32, i32, i32, i32::wrapping_add);
        binary!("add_u8_sat", u8, u8, u8, u8::saturating_add);
        binary!("add_i16", i16, i16, i16, i16::wrapping_sub);
        binary!("mix_i64", i64, u64, i64, |a: i64, b: u64| {
            a.wrapping_mul(31).wrapping_add((b >> 7) as i64) ^ (a % 97) ^ (b / 13) as i64
        });
    });
}

#[test]
fn transposing_moves_every_element() {
    study("transpose.cu", include_str!("../../cases/study/transpose.cu"), |device, _| {
        const W: usize = 75;
        const H: usize = 41;
        let values: Vec<f32> = (0..W * H).map(|i| i as f32).collect();
        let expected: Vec<f32> = (0..W * H).map(|i| values[i % H * W + i / H]).collect();
        let input = device.upload(&values);
        let out = device.zeros::<f32>(W * H);
        device.run("transpose", [3, 2], [32, 8], args![input, out, W as i32, H as i32]);
        assert_eq!(device.download(&out), expected);
        let out = device.zeros::<f32>(W * H);
        device.run("transpose_naive", [5, 6], [16, 8], args![input, out, W as i32, H as i32]);
        assert_eq!(device.download(&out), expected);
    });
}

#[test]
fn stencils_see_their_neighbours() {
    study("stencil.cu", include_str!("../../cases/study/stencil.cu"), |device, _| {
        const W: usize = 37;
        const H: usize = 21;
        // Small integers and powers of two, so that nothing is rounded, whether operations are fused or not.
        let values: Vec<f32> = (0..W * H).map(|i| (i * 31 % 64) as f32).collect();
        let at = |x: usize, y: usize| values[y * W + x];
        let heat = |i: usize| {
            let (x, y) = (i % W, i / W);
            if x < 1 || y < 1 || x >= W - 1 || y >= H - 1 {
                return -1.0;
            }
            at(x, y) + 0.25 * (at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1) - 4.0 * at(x, y))
        };
        let out = device.upload(&vec![-1.0f32; W * H]);
        device.run("heat5", [3, 3], [16, 8], args![device.upload(&values), out, W as i32, H as i32, 0.25f32]);
        assert_eq!(device.download(&out), (0..W * H).map(heat).collect::<Vec<f32>>());

        let filter = [0.5f32, -1.0, 0.25, 2.0, 1.0, -0.5, 0.125, -2.0, 1.5];
        device.set("filt", &filter);
        let pixels: Vec<u8> = (0..W * H).map(|i| (i * 97 % 251) as u8).collect();
        let clamped = |x: isize, y: isize| {
            let (x, y) = (x.clamp(0, W as isize - 1), y.clamp(0, H as isize - 1));
            f32::from(pixels[y as usize * W + x as usize])
        };
        let convolved = |i: usize| {
            let (x, y) = ((i % W) as isize, (i / W) as isize);
            let taps = (0..9).map(|t| filter[t as usize] * clamped(x + t % 3 - 1, y + t / 3 - 1));
            taps.sum::<f32>().clamp(0.0, 255.0) as u8
        };
        let out = device.zeros::<u8>(W * H);
        device.run("conv3x3", [3, 3], [16, 8], args![device.upload(&pixels), out, W as i32, H as i32]);
        assert_eq!(device.download(&out), (0..W * H).map(convolved).collect::<Vec<u8>>());
    });
}

#[test]
fn asynchronous_copies_have_arrived_after_the_wait() {
    study_since(8, "async_copy.cu", include_str!("../../cases/study/async_copy.cu"), |device, _| {
        let values: Vec<f32> = (0..2 * 128 * 4).map(|i| i as f32).collect();
        let out = device.zeros::<f32>(256);
        device.run("cp_async_sum", 2, 128, args![device.upload(&values), out]);
        let sum = |i: usize| values[(i / 128 * 128 + 127 - i % 128) * 4..][..4].iter().sum();
        assert_eq!(device.download(&out), (0..256).map(sum).collect::<Vec<f32>>());
    });
}

#[test]
fn templates_are_instantiated_by_type() {
    study("templates.cu", include_str!("../../cases/study/templates.cu"), |device, _| {
        let whole: Vec<i32> = (0..100).map(|i| i * 3 - 50).collect();
        let sum = |t: usize| whole.iter().skip(t).step_by(32).map(|v| v * 2).sum::<i32>();
        let out = device.zeros::<i32>(32);
        device.run("_Z4tsumIiEvPKT_PS0_i", 1, 32, args![device.upload(&whole), out, 100i32]);
        assert_eq!(device.download(&out), (0..32).map(sum).collect::<Vec<_>>());
        let floats: Vec<f32> = whole.iter().map(|v| *v as f32).collect();
        let out = device.zeros::<f32>(32);
        device.run("_Z4tsumIfEvPKT_PS0_i", 1, 32, args![device.upload(&floats), out, 100i32]);
        assert_eq!(device.download(&out), (0..32).map(|t| sum(t) as f32).collect::<Vec<_>>());
    });
}
