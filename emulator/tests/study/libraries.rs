//! Kernels that use libraries of CUDA: libcu++ (`cuda::std`) and CUB.

use super::builds::{HEAVY, check};
use super::close::assert_close;
use super::device::args;

#[test]
fn the_standard_library_computes() {
    check("std.cu", include_str!("../../cases/study/std.cu"), &HEAVY, |device, _| {
        let values: Vec<i32> = (0..90).collect();
        let out = device.zeros::<f32>(90);
        device.run("containers", 3, 32, args![device.upload(&values), out, 90i32]);
        let contained = |v: i32| {
            let (optional, visited) = match v % 3 {
                0 => (v, 12),
                1 => (-5, 3 * v),
                _ => (-5, -1),
            };
            (v + 8 + optional + visited) as f32 + 0.5
        };
        assert_eq!(device.download(&out), values.iter().map(|v| contained(*v)).collect::<Vec<_>>());

        let words: Vec<u32> = (0..90u32).map(|i| i.wrapping_mul(i).wrapping_mul(40_503) >> (i % 20)).collect();
        let (out, floats) = (device.zeros::<u32>(540), device.zeros::<f32>(270));
        device.run("numbers", 3, 32, args![device.upload(&words), out, floats, 90i32]);
        let (out, floats) = (device.download(&out), device.download(&floats));
        for (i, v) in words.iter().copied().enumerate() {
            let bits = [v.count_ones(), v.leading_zeros(), v.trailing_zeros(), v.rotate_left(7), (v as f32).to_bits()];
            assert_eq!(out[i * 6..][..5], bits, "of {v}");
            assert_eq!(out[i * 6 + 5], (v >> 1).next_power_of_two(), "of {v}");
            let (re, im) = (f64::from(v % 7), f64::from(v % 5));
            // (a + bi)(1 + 2i)/(2 + 2i) = (a + bi)(3 + i)/4
            let expected = [(3.0 * re - im) / 4.0, (re + 3.0 * im) / 4.0, re.hypot(im)];
            assert_close(&floats[i * 3..][..3], &expected, 1e-6, 1e-6);
        }
    });
}

#[test]
fn lanes_wait_for_each_other_by_semaphores_atomics_and_barriers() {
    check("waits.cu", include_str!("../../cases/study/waits.cu"), &HEAVY, |device, _| {
        let out = device.zeros::<i32>(1);
        device.run("semaphores", 1, 64, args![out]);
        assert_eq!(device.download(&out), [64]);
        let out = device.zeros::<i32>(32);
        device.run("waits", 1, 32, args![out]);
        assert_eq!(device.download(&out), [7; 32]);
        let out = device.zeros::<i32>(1);
        device.run("pairs", 1, 32, args![out]);
        assert_eq!(device.download(&out), [5]);
    });
}

#[test]
fn the_collectives_of_cub_scan_sort_and_reduce() {
    check("cub.cu", include_str!("../../cases/study/cub.cu"), &HEAVY, |device, _| {
        let values: Vec<i32> = (0..256).map(|i| i * 7919 % 1013 - 500).collect();
        let out = device.zeros::<i32>(258);
        device.run("scan_and_reduce", 1, 128, args![device.upload(&values), out]);
        let mut expected: Vec<i32> = (0..256).map(|i| values[..i].iter().sum()).collect();
        expected.extend([values.iter().sum(), *values.iter().max().unwrap()]);
        assert_eq!(device.download(&out), expected);

        let keys: Vec<u32> = (0..512u32).map(|i| i.wrapping_mul(2_654_435_761) >> 3 & 0xffff_ff00).collect();
        let places: Vec<i32> = (0..512).collect();
        let (k, v) = (device.upload(&keys), device.upload(&places));
        device.run("sort", 1, 128, args![k, v]);
        let mut sorted: Vec<(u32, i32)> = keys.into_iter().zip(places).collect();
        sorted.sort_unstable();
        assert_eq!(device.download(&k), sorted.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        assert_eq!(device.download(&v), sorted.iter().map(|(_, place)| *place).collect::<Vec<_>>());

        let floats: Vec<f32> = (0..128).map(|i| (i * 29 % 64) as f32 - 30.0).collect();
        let out = device.zeros::<f32>(132);
        device.run("warp_sums", 1, 128, args![device.upload(&floats), out]);
        let before = |i: usize| floats[i / 32 * 32..=i].iter().sum();
        let mut expected: Vec<f32> = (0..128).map(before).collect();
        expected.extend(floats.chunks(32).map(|warp| warp.iter().sum::<f32>()));
        assert_eq!(device.download(&out), expected);
    });
}
