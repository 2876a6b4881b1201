//! Sums, scans, histograms, votes and atomics: results that threads compute together.

use super::builds::{study, study_since};
use super::device::args;

#[test]
fn a_block_adds_up_through_shared_memory() {
    study("reduce_shared.cu", include_str!("../../cases/study/reduce_shared.cu"), |device, _| {
        // Integers, so every order of summation gives one result.
        let values: Vec<f32> = (0..3000).map(|i| (i % 91) as f32 - 40.0).collect();
        let out = device.zeros::<f32>(4);
        device.run("reduce_shared", 4, 256, args![device.upload(&values), out, 3000i32]);
        let block = |b: usize| (0..3000).filter(|i| i / 256 % 4 == b).map(|i| values[i]).sum();
        assert_eq!(device.download(&out), (0..4).map(block).collect::<Vec<f32>>());

        for (values, flag) in [(vec![-1.0f32; 512], 3), (vec![1.0; 512], 0), (values, 1)] {
            let n = values.len();
            let (flags, count) = (device.zeros::<i32>(1), device.zeros::<i32>(1));
            let blocks = n.div_ceil(256) as u32;
            device.run("any_negative", blocks, 256, args![device.upload(&values), n as i32, flags, count]);
            assert_eq!(device.download(&flags), [flag]);
            assert_eq!(device.download(&count), [values.iter().filter(|v| **v < 0.0).count() as i32]);
        }
    });
}

#[test]
fn warps_shuffle_and_vote() {
    // `__reduce_add_sync` is from compute capability 8.0 on.
    study_since(8, "reduce_warp.cu", include_str!("../../cases/study/reduce_warp.cu"), |device, _| {
        let values: Vec<f32> = (0..3001).map(|i| (i % 91) as f32 - 40.0).collect();
        let out = device.upload(&[7.0f32]);
        device.run("reduce_warp", 4, 256, args![device.upload(&values), out, 3001i32]);
        assert_eq!(device.download(&out), [7.0 + values.iter().sum::<f32>()]);

        const N: usize = 77;
        let words: Vec<i32> = (0..N).map(|i| (i * 7 % 5) as i32 - 2).collect();
        let out = device.zeros::<u32>(N);
        device.run("warp_votes", 3, 32, args![device.upload(&words), out, N as i32]);
        assert_eq!(device.download(&out), (0..N).map(|i| votes(&words, i)).collect::<Vec<_>>());
    });
}

/// Computes what the kernel `warp_votes` computes for thread `i`.
fn votes(words: &[i32], i: usize) -> u32 {
    let warp = i / 32 * 32..i / 32 * 32 + 32;
    let seen = |i: usize| words[if i < words.len() { i } else { 0 }];
    let mask = |f: &dyn Fn(usize) -> bool| {
        warp.clone().filter(|lane| f(*lane)).fold(0u32, |mask, lane| mask | 1 << (lane % 32))
    };
    let ballot = mask(&|lane| lane < words.len() && words[lane] > 0);
    let equal = mask(&|lane| seen(lane) == seen(i));
    let (any, all) = (u32::from(ballot != 0), u32::from(ballot == u32::MAX));
    let up = if i % 16 >= 2 { i - 2 } else { i } as u32;
    let found = if ballot == 0 { 0 } else { ballot.trailing_zeros() + 1 };
    ballot
        ^ any << 1
        ^ all << 2
        ^ u32::MAX
        ^ equal
        ^ ballot.count_ones()
        ^ (i ^ 1) as u32
        ^ up
        ^ (warp.start + 3) as u32
        ^ ballot.count_ones()
        ^ ballot.leading_zeros()
        ^ found
        ^ ballot.reverse_bits()
}

#[test]
fn histograms_count_every_byte_and_atomics_of_every_kind_meet() {
    study("histogram.cu", include_str!("../../cases/study/histogram.cu"), |device, _| {
        let data: Vec<u8> = (0..10_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x7f).collect();
        let bins = device.upload(&[3u32; 256]);
        device.run("histogram256", 3, 128, args![device.upload(&data), bins, data.len() as u32]);
        let mut expected = vec![3u32; 256];
        data.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
        assert_eq!(device.download(&bins), expected);

        const THREADS: u32 = 96;
        let i = device.upload(&[-5i32, 50, -1, 0, 1000, 7]);
        let u = device.upload(&[u32::MAX, 0, 0, 990, 20]);
        let l = device.upload(&[u64::from(u32::MAX), 0, 40]);
        let (f, d) = (device.upload(&[0.5f32]), device.upload(&[0.25f64]));
        device.run("atomics_all", 1, THREADS, args![i, u, l, f, d]);
        let i = device.download(&i);
        assert_eq!([i[0], i[1], i[4], i[5]], [95, 0, 1000 - 96, 7]);
        assert!((0..96).contains(&i[2]), "the last of the exchanges is one of them: {}", i[2]);
        assert!((1..96).contains(&i[3]), "the first that is not zero stays: {}", i[3]);
        let threads = || 0..THREADS;
        let increment = threads().fold(990, |v, _| if v >= 1000 { 0 } else { v + 1 });
        let decrement = threads().fold(20, |v, _| if v == 0 || v > 1000 { 1000 } else { v - 1 });
        let bits = [threads().fold(u32::MAX, |v, t| v & !t), u32::MAX, threads().fold(0, |v, t| v ^ t)];
        assert_eq!(device.download(&u), [bits[0], bits[1], bits[2], increment, decrement]);
        let l = device.download(&l);
        assert_eq!([l[0], l[2]], [u64::from(u32::MAX) + 96, 95]);
        assert!((1..96).contains(&l[1]), "the first that is not zero stays: {}", l[1]);
        assert_eq!((device.download(&f), device.download(&d)), (vec![96.5], vec![48.25]));
    });
}

#[test]
fn scans_give_the_sum_of_what_came_before() {
    study("scan.cu", include_str!("../../cases/study/scan.cu"), |device, _| {
        const N: usize = 1900;
        const BLOCK: usize = 512;
        let values: Vec<u32> = (0..N as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let input = device.upload(&values);
        let (out, sums) = (device.zeros::<u32>(N), device.zeros::<u32>(4));
        let scan = args![input, out, sums, N as i32];
        device.try_run("scan_block", 4, BLOCK as u32 / 2, BLOCK as u32 * 4, scan).unwrap();
        let mut before = 0u32;
        let offsets: Vec<u32> = device.download(&sums).iter().map(|sum| replace_sum(&mut before, *sum)).collect();
        device.run("scan_add", 4, BLOCK as u32 / 2, args![out, device.upload(&offsets), N as i32]);
        let mut before = 0u32;
        let expected: Vec<u32> = values.iter().map(|value| replace_sum(&mut before, *value)).collect();
        assert_eq!(device.download(&out), expected);
    });
}

/// Adds `value` to the sum; returns the previous sum.
fn replace_sum(sum: &mut u32, value: u32) -> u32 {
    std::mem::replace(sum, sum.wrapping_add(value))
}
