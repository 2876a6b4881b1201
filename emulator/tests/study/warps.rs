//! Operations that the lanes of a warp compute together.

use half::f16;

use super::builds::study_since;
use super::device::args;

const WARPS: &str = include_str!("../../cases/study/warps.cu");

#[test]
fn shuffles_move_words_of_every_width() {
    study_since(8, "warps.cu", WARPS, |device, _| {
        let d: Vec<f64> = (0..32).map(|i| f64::from(i) * 1.25 - 7.0).collect();
        let l: Vec<i64> = (0..32).map(|i| (i * 0x1234_5678_9abc) ^ (i << 60)).collect();
        let (od, ol) = (device.zeros::<f64>(32), device.zeros::<i64>(32));
        let (of, oh) = (device.zeros::<f32>(32), device.zeros::<f16>(64));
        device.run("shuffles", 1, 32, args![device.upload(&d), device.upload(&l), od, ol, of, oh]);
        for i in 0..32 {
            assert_eq!(device.download(&od)[i], d[i ^ 5] + d[(i & !7) + ((i * 7 + 3) & 7)]);
            let up = if i % 16 >= 3 { l[i - 3] } else { l[i] };
            let down = if i + 9 < 32 { l[i + 9] } else { l[i] };
            assert_eq!(device.download(&ol)[i], up ^ down);
            assert_eq!(device.download(&of)[i], d[if i == 0 { 31 } else { i }] as f32 - l[40 % 32] as f32);
            let pair = [f16::from_f32((i ^ 16) as f32), f16::from_f32(-((i ^ 16) as f32))];
            assert_eq!(device.download(&oh)[i * 2..][..2], pair);
        }
    });
}

#[test]
fn parts_of_a_warp_vote_apart() {
    study_since(8, "warps.cu", WARPS, |device, _| {
        let values: Vec<i32> = (0..32).map(|i| i * 13 % 97).collect();
        let out = device.zeros::<i32>(32);
        device.run("partial", 1, 32, args![device.upload(&values), out]);
        let odd: Vec<i32> = values.iter().copied().filter(|v| v & 1 == 1).collect();
        let even: Vec<i32> = values.iter().copied().filter(|v| v & 1 == 0).collect();
        let sum = odd.iter().sum::<i32>() + 1000 * odd.len() as i32;
        let votes = i32::from(even.iter().any(|v| *v > 90))
            | i32::from(even.iter().all(|v| *v >= 0)) << 1
            | (even.iter().filter(|v| **v > 50).count() as i32) << 2;
        let expected: Vec<i32> = values.iter().map(|v| if v & 1 == 1 { sum } else { votes }).collect();
        assert_eq!(device.download(&out), expected);
    });
}

#[test]
fn lanes_find_their_equals_and_reduce() {
    study_since(8, "warps.cu", WARPS, |device, _| {
        let a: Vec<i32> = (0..32).map(|i| i * 5 % 7 - 3).collect();
        let b: Vec<u64> = (0..32).map(|i| (i * 3 % 5) << 40).collect();
        let out = device.zeros::<u32>(160);
        device.run("matches", 1, 32, args![device.upload(&a), device.upload(&b), out]);
        let mask = |same: &dyn Fn(usize) -> bool| (0..32).filter(|j| same(*j)).fold(0u32, |mask, j| mask | 1 << j);
        for (i, got) in device.download(&out).chunks(5).enumerate() {
            assert_eq!(got, [mask(&|j| a[j] == a[i]), mask(&|j| b[j] == b[i]), u32::MAX, 0, 1], "lane {i}");
        }

        let out = device.zeros::<u32>(256);
        device.run("reductions", 1, 32, args![device.upload(&a), out]);
        for (i, got) in device.download(&out).chunks(8).enumerate() {
            let group = if i < 20 { &a[..20] } else { &a[20..] };
            let words = || group.iter().map(|v| *v as u32);
            let expected = [
                words().fold(0, u32::wrapping_add),
                words().min().unwrap(),
                words().max().unwrap(),
                words().fold(u32::MAX, |x, y| x & y),
                words().fold(0, |x, y| x | y),
                words().fold(0, |x, y| x ^ y),
                *group.iter().min().unwrap() as u32,
                *group.iter().max().unwrap() as u32,
            ];
            assert_eq!(got, expected, "lane {i}");
        }
    });
}

#[test]
fn lanes_of_a_warp_take_turns_at_a_lock() {
    study_since(8, "warps.cu", WARPS, |device, _| {
        let out = device.zeros::<i32>(64);
        device.run("relay", 1, 64, args![out]);
        let mut turns = device.download(&out);
        turns.sort_unstable();
        assert_eq!(turns, (0..64).collect::<Vec<_>>());
    });
}

#[test]
fn integers_of_128_bits_are_computed() {
    super::builds::check(
        "int128.cu",
        include_str!("../../cases/study/int128.cu"),
        &super::builds::WIDE,
        |device, _| {
            let noise = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let wide = |i: u64| i128::from(noise(i) as i64) << (i % 64) ^ i128::from(noise(i + 1000));
            let a: Vec<i128> = (1..200).map(wide).collect();
            let b: Vec<i128> = (1..200).map(|i| wide(i + 500) >> (i % 90) | 1).collect();
            assert!(b.iter().all(|b| *b != 0));
            let (out, compared) = (device.zeros::<i128>(a.len() * 8), device.zeros::<i32>(a.len()));
            let args = args![device.upload(&a), device.upload(&b), out, compared, a.len() as i32];
            device.run("wide_integers", 2, 128, args);
            let (out, compared) = (device.download(&out), device.download(&compared));
            for (i, (x, y)) in a.iter().copied().zip(b).enumerate() {
                let expected = [
                    x.wrapping_add(y),
                    x.wrapping_sub(y),
                    x.wrapping_mul(y),
                    x.wrapping_div(y),
                    (x as u128 % y as u128) as i128,
                    x << (i % 128),
                    x >> (i % 128),
                    (x as i64 as f64) as i128 ^ !y,
                ];
                assert_eq!(out[i * 8..][..8], expected, "element {i}");
                assert_eq!(compared[i], i32::from(x < y) | i32::from((x as u128) < y as u128) << 1);
            }
        },
    );
}
