//! Cooperative groups.

use super::builds::{HEAVY, check};
use super::device::{Device, args};

const GROUPS: &str = include_str!("../../cases/study/groups.cu");

#[test]
fn blocks_of_a_grid_wait_for_each_other() {
    check("grid_sync.cu", include_str!("../../cases/study/grid_sync.cu"), &HEAVY, |device, _| {
        const N: usize = 700;
        let mut values: Vec<u32> = (0..N as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let buffers = [device.upload(&values), device.zeros::<u32>(N)];
        device.run_cooperative("rounds", 5, 64, args![buffers[0], buffers[1], N as i32, 7i32]);
        for _ in 0..7 {
            let next = |i: usize| values[(i + N - 1) % N].wrapping_add(values[i]).wrapping_add(values[(i + 1) % N]);
            values = (0..N).map(next).collect();
        }
        assert_eq!(device.download(&buffers[1]), values);
    });
}

#[test]
fn groups_of_threads_reduce_vote_and_scan() {
    check("groups.cu", GROUPS, &HEAVY, |device, _| {
        let values: Vec<i32> = (0..64).map(|i| i * 37 % 101).collect();
        tiles(device, &values);
        coalesced(device, &values);
        labels(device, &values);
        scans(device, &values);
    });
}

fn tiles(device: &Device, values: &[i32]) {
    let out = device.zeros::<i32>(256);
    device.run("tiles", 1, 64, args![device.upload(values), out]);
    for (i, got) in device.download(&out).chunks(4).enumerate() {
        let tile = &values[i / 8 * 8..][..8];
        let mask = |f: &dyn Fn(i32) -> bool| (0..8).filter(|j| f(tile[*j])).fold(0, |mask, j| mask | 1 << j);
        let sum: i32 = tile.iter().sum();
        let up = tile[(i % 8).saturating_sub(1)];
        let any = i32::from(tile.iter().any(|v| *v > 95)) << 8;
        let all = i32::from(tile.iter().all(|v| *v > 5)) << 9;
        let votes = mask(&|v| v & 1 == 1) | any | all | mask(&|v| v & 3 == values[i] & 3) << 16;
        let most = tile.iter().max().unwrap();
        assert_eq!(got, [sum, tile[0] + up + (i / 8) as i32 * 1000, votes, most + 1000 * sum], "thread {i}");
    }
}

fn coalesced(device: &Device, values: &[i32]) {
    let (out, count) = (device.zeros::<i32>(64), device.zeros::<i32>(1));
    device.run("coalesced", 1, 64, args![device.upload(values), out, count]);
    let out = device.download(&out);
    let (mut taken, skipped): (Vec<_>, Vec<_>) = out.iter().zip(values).partition(|(_, v)| **v % 3 == 0);
    assert!(skipped.iter().all(|(got, _)| **got == -1));
    taken.sort_unstable();
    assert!(taken.iter().map(|(got, _)| **got).eq(0..device.download(&count)[0]));
}

fn labels(device: &Device, values: &[i32]) {
    let out = device.zeros::<i32>(192);
    device.run("labels", 1, 64, args![device.upload(values), out]);
    for (i, got) in device.download(&out).chunks(3).enumerate() {
        let warp = i / 32 * 32..i / 32 * 32 + 32;
        let place = |same: &dyn Fn(i32) -> bool| {
            let members: Vec<usize> = warp.clone().filter(|j| same(values[*j])).collect();
            (members.len() * 100 + members.iter().position(|j| *j == i).unwrap()) as i32
        };
        let sum: i32 = values[warp.clone()].iter().filter(|v| *v % 4 == values[i] % 4).sum();
        let expected = [sum, place(&|v| v % 4 == values[i] % 4), place(&|v| (v > 50) == (values[i] > 50))];
        assert_eq!(got, expected, "thread {i}");
    }
}

fn scans(device: &Device, values: &[i32]) {
    let out = device.zeros::<i32>(192);
    device.run("scans", 1, 64, args![device.upload(values), out]);
    for (i, got) in device.download(&out).chunks(3).enumerate() {
        let before = &values[i / 32 * 32..=i];
        let sum: i32 = before.iter().sum();
        assert_eq!(got, [sum, sum - values[i], *before.iter().min().unwrap()], "thread {i}");
    }
}

#[test]
fn tiles_may_span_warps() {
    check("groups.cu", GROUPS, &HEAVY, |device, _| {
        let values: Vec<i32> = (0..128).map(|i| i * 37 % 101).collect();
        let out = device.zeros::<i32>(128);
        device.run("block_of_blocks", 1, 128, args![device.upload(&values), out]);
        let sum = |i: usize| values[i / 64 * 64..][..64].iter().sum::<i32>() + (i / 64) as i32;
        assert_eq!(device.download(&out), (0..128).map(sum).collect::<Vec<_>>());
    });
}
