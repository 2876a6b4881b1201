//! Shared memory, barriers, shuffles, atomics, locks.

use super::harness::{Arg, Device, kernel, words};

#[test]
fn a_tree_of_barriers_sums_each_block() {
    let device = Device::programs();
    let values: Vec<i32> = (0..1000).map(|i| i * 7 % 101 - 50).collect();
    let (input, out) = (device.upload(&values), device.upload(&[0i32; 4]));
    device.launch("block_sum", [4, 1, 1], [256, 1, 1], &[Arg::U64(input), Arg::U64(out), Arg::U32(1000)]).unwrap();
    let expected: Vec<i32> = values.chunks(256).map(|chunk| chunk.iter().sum()).collect();
    assert_eq!(device.download::<i32>(out, 4), expected);
}

#[test]
fn shuffles_sum_each_warp() {
    let device = Device::programs();
    let values: Vec<i32> = (0..128).map(|i| i * i).collect();
    let (input, out) = (device.upload(&values), device.upload(&[0i32; 4]));
    device.launch("warp_sum", [1; 3], [128, 1, 1], &[Arg::U64(input), Arg::U64(out)]).unwrap();
    let expected: Vec<i32> = values.chunks(32).map(|chunk| chunk.iter().sum()).collect();
    assert_eq!(device.download::<i32>(out, 4), expected);
}

#[test]
fn every_kind_of_shuffle_and_vote_answers_as_cuda_does() {
    let device = Device::programs();
    let out = device.upload(&[0i32; 256]);
    device.launch("shuffles", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap();
    let got = device.download::<i32>(out, 256);
    for lane in 0..32i32 {
        let at = |part: usize| got[part * 32 + lane as usize];
        assert_eq!(at(0), if lane < 3 { lane } else { lane - 3 });
        assert_eq!(at(1), lane ^ 5);
        assert_eq!(at(2), lane / 8 * 8 + 2);
        assert_eq!(at(3), if lane % 4 == 3 { lane } else { lane + 1 });
        assert_eq!(at(4) as u32, (0..32).filter(|l| l % 3 == 0).fold(0u32, |mask, l| mask | 1 << l));
        assert_eq!(at(5), 1);
        assert_eq!(at(6) as u32, (0..32).filter(|l| l / 5 == lane / 5).fold(0u32, |mask, l| mask | 1 << l));
        assert_eq!(at(7), if lane < 10 { 0x3ff } else { 0 });
    }
}

#[test]
fn barriers_count_votes() {
    let device = Device::programs();
    let values: Vec<i32> = (0..96).map(|i| i % 8).collect();
    let (input, out) = (device.upload(&values), device.upload(&[9i32; 3]));
    device.launch("votes", [1; 3], [96, 1, 1], &[Arg::U64(input), Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<i32>(out, 3), [48, 1, 0]);
}

#[test]
fn atomics_from_many_blocks_lose_nothing() {
    let mut device = Device::programs();
    device.threads = 4;
    let data: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (input, bins) = (device.upload(&data), device.upload(&[0u32; 256]));
    let args = [Arg::U64(input), Arg::U64(bins), Arg::U32(data.len() as u32)];
    device.launch("histogram", [24, 1, 1], [128, 1, 1], &args).unwrap();
    let mut expected = [0u32; 256];
    data.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
    assert_eq!(device.download::<u32>(bins, 256), expected);
}

#[test]
fn lanes_and_blocks_that_spin_on_a_lock_all_get_it() {
    let mut device = Device::programs();
    device.threads = 3;
    let (lock, counter) = (device.upload(&[0i32]), device.upload(&[0i32]));
    let args = [Arg::U64(lock), Arg::U64(counter), Arg::I32(2)];
    device.launch("locked", [40, 1, 1], [128, 1, 1], &args).unwrap();
    assert_eq!(device.download::<i32>(counter, 1), [40 * 128 * 2]);
}

#[test]
fn dynamic_shared_memory_is_as_large_as_the_launch_says() {
    let device = Device::programs();
    let data = device.upload(&(0..200).collect::<Vec<i32>>());
    let params = device.params("reverse", &[Arg::U64(data)]);
    device.launch_bytes("reverse", [1; 3], [200, 1, 1], 800, &params).unwrap();
    assert_eq!(device.download::<i32>(data, 200), (0..200).rev().collect::<Vec<_>>());
    let fault = device.launch_bytes("reverse", [1; 3], [200, 1, 1], 400, &params).unwrap_err();
    assert_eq!(fault.kind.code(), 700);
    assert!(fault.report.contains("shared memory"), "{}", fault.report);
}

#[test]
fn every_atomic_answers_the_value_before() {
    let atomic = |op: &str, start: u32, operands: &str| {
        let body = format!(
            "mov.u32 %r1, {start};\nst.global.u32 [%d1], %r1;\natom.global.{op} %r2, [%d1], {operands};\n\
             ld.global.u32 %r3, [%d1];\nmad.lo.u32 %r3, %r2, 1000, %r3;\nst.global.u32 [%d1], %r3;"
        );
        words(&body, 1)[0]
    };
    assert_eq!(atomic("add.u32", 5, "7"), 5012);
    assert_eq!(atomic("and.b32", 6, "3"), 6002);
    assert_eq!(atomic("exch.b32", 6, "3"), 6003);
    assert_eq!(atomic("cas.b32", 6, "6, 9"), 6009);
    assert_eq!(atomic("cas.b32", 6, "5, 9"), 6006);
    assert_eq!(atomic("inc.u32", 6, "6"), 6000);
    assert_eq!(atomic("dec.u32", 0, "6"), 6);
    assert_eq!(atomic("max.s32", 4, "-1"), 4004);
    assert_eq!(atomic("min.u32", 4, "-1"), 4004);
}

#[test]
fn lanes_that_split_wait_for_each_other_at_a_warp_barrier() {
    let body = ".shared .u32 s[32];\nmul.wide.u32 %d2, %r0, 4;\nmov.u64 %d3, s;\nadd.u64 %d3, %d3, %d2;\n\
                setp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nst.shared.u32 [%d3], 7;\nbar.warp.sync -1;\nbra B;\n\
                A:\nst.shared.u32 [%d3], 9;\nbar.warp.sync -1;\nB:\nxor.b32 %r1, %r0, 31;\nmul.wide.u32 %d2, %r1, 4;\n\
                mov.u64 %d3, s;\nadd.u64 %d3, %d3, %d2;\nld.shared.u32 %r2, [%d3];\nst.global.u32 [%d1], %r2;";
    let expected: Vec<u32> = (0..32).map(|i| if i < 16 { 7 } else { 9 }).collect();
    assert_eq!(words(body, 32), expected);
}

#[test]
fn barriers_do_not_wait_for_threads_that_have_left() {
    let body = "setp.ge.u32 %p1, %r0, 40;\n@%p1 exit;\nst.global.u32 [%d1], %r0;\nbar.sync 0;\nxor.b32 %r1, %r0, 1;\n\
                mad.wide.u32 %d2, %r1, 4, %d0;\nld.global.u32 %r2, [%d2];\nbar.sync 0;\nst.global.u32 [%d1], %r2;";
    let expected: Vec<u32> = (0..96).map(|i| if i < 40 { i ^ 1 } else { 0 }).collect();
    assert_eq!(words(body, 96), expected);
}

#[test]
fn members_reduce_and_compare_their_values() {
    // Lanes 0 to 9 and the rest, in separate groups.
    let grouped = |op: &str| {
        let body = format!(
            "setp.lt.u32 %p1, %r0, 10;\nselp.b32 %r1, 0x3ff, 0xfffffc00, %p1;\n@%p1 bra A;\n{op}\nbra B;\nA:\n{op}\nB:\n\
             st.global.u32 [%d1], %r2;"
        );
        words(&body, 32)
    };
    let expect = |low: u32, high: u32| (0..32).map(|lane| if lane < 10 { low } else { high }).collect::<Vec<u32>>();
    assert_eq!(grouped("redux.sync.add.u32 %r2, %r0, %r1;"), expect(45, 496 - 45));
    assert_eq!(grouped("redux.sync.max.u32 %r2, %r0, %r1;"), expect(9, 31));
    assert_eq!(grouped("sub.u32 %r3, %r0, 10;\nredux.sync.min.s32 %r2, %r3, %r1;"), expect(-10i32 as u32, 0));
    assert_eq!(grouped("redux.sync.xor.b32 %r2, %r0, %r1;"), expect(1, 1));
    assert_eq!(grouped("redux.sync.and.b32 %r2, %r1, %r1;"), expect(0x3ff, 0xffff_fc00));
    // All ten agree; among the others lane 31 does not.
    let agree = "shr.u32 %r3, %r0, 1;\nsetp.lt.u32 %p2, %r0, 31;\nselp.b32 %r3, 7, 8, %p2;\n\
                 match.all.sync.b32 %r2|%p3, %r3, %r1;\n@%p3 add.u32 %r2, %r2, 1;";
    assert_eq!(grouped(agree), expect(0x400, 0));
}

#[test]
fn asynchronous_copies_are_there_after_the_wait() {
    let body = ".shared .align 16 .b8 s[1024];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r1, %r1, %r2;\n\
                and.b32 %r4, %r0, 1;\nshl.b32 %r4, %r4, 2;\n\
                cp.async.ca.shared.global [%r1], [%d1], 4;\ncp.async.ca.shared.global.L2::128B [%r1+4], [%d1], 4, %r4;\n\
                cp.async.commit_group;\ncp.async.wait_group 0;\ncp.async.wait_all;\nbar.sync 0;\n\
                ld.shared.v2.u32 {%r2, %r3}, [%r1];\nmad.lo.u32 %r2, %r3, 1000, %r2;\nst.global.u32 [%d1], %r2;";
    let device = Device::new(&kernel(body));
    let out = device.upload(&(1..=64).collect::<Vec<u32>>());
    device.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(out)]).unwrap();
    // In the second copy every other lane reads no byte, so zeros are written.
    let expected: Vec<u32> = (1..=64).map(|i| if i % 2 == 0 { i * 1001 } else { i }).collect();
    assert_eq!(device.download::<u32>(out, 64), expected);
}

#[test]
fn the_timer_never_runs_backwards_and_sleep_takes_its_time() {
    let body = "mov.u64 %d2, %globaltimer;\nnanosleep.u32 200000;\nmov.u64 %d3, %globaltimer;\n\
                mov.u64 %d4, %globaltimer;\nsub.u64 %d5, %d3, %d2;\nsetp.ge.u64 %p1, %d4, %d3;\n\
                cvt.u32.u64 %r1, %d5;\n@!%p1 mov.u32 %r1, 0;\nst.global.u32 [%d1], %r1;";
    assert!(words(body, 96).iter().all(|nanoseconds| *nanoseconds >= 200_000));
}

#[test]
fn threads_that_sleep_let_others_work() {
    // The first warp waits for what the last one writes, and sleeps between polls.
    let body = ".shared .u32 s;\nst.volatile.shared.u32 [s], 0;\nbar.sync 0;\nsetp.ge.u32 %p1, %r0, 96;\n@%p1 bra B;\n\
                A:\nnanosleep.u32 1000;\nld.volatile.shared.u32 %r1, [s];\nsetp.eq.u32 %p2, %r1, 0;\n@%p2 bra A;\nbra C;\n\
                B:\nst.volatile.shared.u32 [s], 5;\nC:\nbar.sync 0;\nld.volatile.shared.u32 %r1, [s];\n\
                st.global.u32 [%d1], %r1;";
    assert_eq!(words(body, 128), [5; 128]);
}
