//! Barrier objects (`cuda::barrier`), and pipelines that use them.

use super::builds::{EVERY, check};
use super::device::args;

const BARRIERS: &str = include_str!("../../cases/study/barriers.cu");

#[test]
fn barriers_are_objects_that_copies_arrive_at() {
    // From compute capability 9.0 on, copies that a barrier waits for are `cp.async.bulk`, which is refused by name.
    check("barriers.cu", BARRIERS, &[EVERY[0], EVERY[2], EVERY[4]], |device, _| {
        let mut values: Vec<i32> = (0..256).map(|i| i * 7 - 300).collect();
        let out = device.zeros::<i32>(256);
        device.run("split_barrier", 2, 128, args![device.upload(&values), out, 5i32]);
        for _ in 0..5 {
            let next = |i: usize| values[i].wrapping_mul(3).wrapping_add(values[i / 128 * 128 + (i + 1) % 128]);
            values = (0..256).map(next).collect();
        }
        assert_eq!(device.download(&out), values);

        let floats: Vec<f32> = (0..6 * 64).map(|i| (i * 5 % 64) as f32).collect();
        let out = device.zeros::<f32>(64);
        device.run("staged_sum", 1, 64, args![device.upload(&floats), out, 6i32]);
        let sum = |t: usize| (0..6).map(|batch| floats[batch * 64 + 63 - t]).sum();
        assert_eq!(device.download(&out), (0..64).map(sum).collect::<Vec<f32>>());

        let out = device.zeros::<i32>(256);
        device.run("group_copy", 1, 96, args![device.upload(&values), out]);
        assert!(device.download(&out).iter().eq(values.iter().rev()));
        let out = device.zeros::<i32>(256);
        device.run("barrier_copy", 1, 64, args![device.upload(&values), out]);
        let reversed: Vec<i32> = values.chunks(4).rev().flatten().copied().collect();
        assert_eq!(device.download(&out), reversed);
    });
}
