//! Synchronisation of lanes and warps: which lanes an instruction waits for, when it continues, and that no lane waits
//! that could continue.

use super::harness::{Arg, Device, fault, kernel, words};

#[test]
fn lanes_at_one_instruction_may_belong_to_different_sets() {
    // Lanes 0 to 9 and the others are at one instruction, and each group names its own members.
    let sets = |op: &str| {
        let body = format!(
            "setp.lt.u32 %p1, %r0, 10;\nselp.b32 %r1, 0x3ff, 0xfffffc00, %p1;\nand.b32 %r3, %r0, 1;\n\
             setp.eq.u32 %p2, %r3, 1;\n{op}\nst.global.u32 [%d1], %r2;"
        );
        words(&body, 32)
    };
    let expect = |low: u32, high: u32| (0..32).map(|lane| if lane < 10 { low } else { high }).collect::<Vec<u32>>();
    assert_eq!(sets("vote.sync.ballot.b32 %r2, %p2, %r1;"), expect(0x2aa, 0xaaaa_a800));
    assert_eq!(sets("redux.sync.add.u32 %r2, %r0, %r1;"), expect(45, 496 - 45));
    assert_eq!(sets("match.any.sync.b32 %r2, 7, %r1;"), expect(0x3ff, 0xffff_fc00));
    assert_eq!(sets("vote.sync.all.pred %p3, %p1, %r1;\nselp.u32 %r2, 1, 0, %p3;"), expect(1, 0));
    assert_eq!(sets("bar.warp.sync %r1;\nshfl.sync.idx.b32 %r2, %r0, 31, 31, -1;"), expect(31, 31));
}

#[test]
fn a_set_of_one_lane_each_is_a_set_too() {
    let body = "shl.b32 %r1, 1, %r0;\nredux.sync.add.u32 %r2, %r0, %r1;\nst.global.u32 [%d1], %r2;";
    assert_eq!(words(body, 32), (0..32).collect::<Vec<_>>());
}

#[test]
fn a_guard_takes_lanes_out_of_a_split_instruction() {
    // Lanes 28 and above skip it; of the others, even and odd lanes form a set each.
    let body = "and.b32 %r3, %r0, 1;\nsetp.eq.u32 %p1, %r3, 0;\nselp.b32 %r1, 0x05555555, 0x0aaaaaaa, %p1;\n\
                setp.lt.u32 %p2, %r0, 28;\nmov.u32 %r2, 99;\n@%p2 redux.sync.max.u32 %r2, %r0, %r1;\n\
                st.global.u32 [%d1], %r2;";
    let expected: Vec<u32> = (0..32).map(|i| if i >= 28 { 99 } else { 26 + i % 2 }).collect();
    assert_eq!(words(body, 32), expected);
}

#[test]
fn a_lane_outside_its_own_mask_is_an_error() {
    for op in [
        "shfl.sync.idx.b32 %r1, %r0, 0, 31, 0x7fffffff;",
        "vote.sync.any.pred %p1, 1, 0x7fffffff;",
        "match.any.sync.b32 %r1, %r0, 0x7fffffff;",
        "redux.sync.add.u32 %r1, %r0, 0x7fffffff;",
        "bar.warp.sync 0x7fffffff;",
    ] {
        let fault = fault(op, 32);
        assert!(fault.report.contains("thread (31, 0, 0)"), "{op}: {}", fault.report);
        assert!(fault.report.contains("not in its own member mask 0x7fffffff"), "{op}: {}", fault.report);
    }
}

#[test]
fn masks_may_name_lanes_that_have_exited_or_never_were() {
    // 20 threads, of which the first four exit.
    let body = "setp.lt.u32 %p1, %r0, 4;\n@%p1 exit;\nredux.sync.add.u32 %r1, %r0, -1;\nvote.sync.ballot.b32 %r2, 1, -1;\n\
                match.all.sync.b32 %r3|%p2, 5, -1;\nbar.warp.sync -1;\nadd.u32 %r1, %r1, %r2;\n@%p2 add.u32 %r1, %r1, %r3;\n\
                st.global.u32 [%d1], %r1;";
    let members = 0x000f_fff0u32;
    let expected: Vec<u32> = (0..20).map(|i| if i < 4 { 0 } else { (4..20).sum::<u32>() + 2 * members }).collect();
    assert_eq!(words(body, 20), expected);
}

#[test]
fn lanes_that_met_go_on_though_others_spin() {
    // Lanes 0 to 15 reach a shuffle on two paths and then set the flag for which lanes 16 to 31 spin.
    let body = ".shared .u32 s;\nst.volatile.shared.u32 [s], 0;\nbar.warp.sync -1;\nsetp.ge.u32 %p1, %r0, 16;\n\
                @%p1 bra SPIN;\nsetp.lt.u32 %p2, %r0, 8;\n@%p2 bra MEET;\nmov.u32 %r4, 3;\nmul.lo.u32 %r4, %r4, %r4;\n\
                MEET:\nshfl.sync.bfly.b32 %r1, %r0, 15, 31, 0xffff;\nst.volatile.shared.u32 [s], 1;\nbra DONE;\n\
                SPIN:\nld.volatile.shared.u32 %r1, [s];\nsetp.eq.u32 %p3, %r1, 0;\n@%p3 bra SPIN;\n\
                DONE:\nst.global.u32 [%d1], %r1;";
    let expected: Vec<u32> = (0..32).map(|i| if i < 16 { i ^ 15 } else { 1 }).collect();
    assert_eq!(words(body, 32), expected);
}

#[test]
fn lanes_that_wait_for_others_go_on_when_those_exit() {
    // Lanes 0 to 7 wait for 8 to 15, which exit; lanes 16 to 31 spin until the first have continued.
    let body = ".shared .u32 s;\nst.volatile.shared.u32 [s], 0;\nbar.warp.sync -1;\nsetp.ge.u32 %p1, %r0, 16;\n\
                @%p1 bra SPIN;\nsetp.ge.u32 %p2, %r0, 8;\n@%p2 bra LEAVE;\nredux.sync.add.u32 %r1, %r0, 0xffff;\n\
                st.volatile.shared.u32 [s], 1;\nbra DONE;\nSPIN:\nld.volatile.shared.u32 %r1, [s];\n\
                setp.eq.u32 %p3, %r1, 0;\n@%p3 bra SPIN;\nbra DONE;\nLEAVE:\nmov.u32 %r5, 1;\nexit;\n\
                DONE:\nst.global.u32 [%d1], %r1;";
    let expected: Vec<u32> = (0..32).map(|i| [28, 0, 1, 1][i / 8]).collect();
    assert_eq!(words(body, 32), expected);
}

/// Every thread takes a lock, adds one and releases the lock; `spin` jumps back to `TRY` where `%p1` is false.
fn locked(spin: &str, function: &str) {
    let body = format!(
        ".reg .pred %q<4>;\nTRY:\n{spin}\nld.volatile.global.u32 %r4, [%d0+4];\nadd.u32 %r4, %r4, 1;\n\
         st.volatile.global.u32 [%d0+4], %r4;\nmembar.gl;\natom.global.exch.b32 %r5, [%d0], 0;"
    );
    let text = kernel(&body).replace(".visible .entry", &format!("{function}.visible .entry"));
    let device = Device::new(&text);
    let out = device.upload(&[0u32; 2]);
    device.launch("kernel", [6, 1, 1], [64, 1, 1], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 2), [0, 6 * 64]);
}

#[test]
fn lanes_that_spin_by_calling_a_function_let_the_holder_on() {
    let function = ".func (.param .b32 r) try_lock(.param .b64 a) {\n.reg .b64 %d<2>;\n.reg .b32 %r<2>;\n\
                    ld.param.u64 %d0, [a];\natom.global.cas.b32 %r0, [%d0], 0, 1;\nst.param.b32 [r], %r0;\nret;\n}\n";
    let spin = "{\n.param .b64 a;\n.param .b32 r;\nst.param.b64 [a], %d0;\ncall.uni (r), try_lock, (a);\n\
                ld.param.b32 %r3, [r];\n}\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra TRY;";
    locked(spin, function);
}

#[test]
fn lanes_that_spin_over_a_branch_table_let_the_holder_on() {
    let spin = "ways: .branchtargets GOT, TRY;\natom.global.cas.b32 %r3, [%d0], 0, 1;\nbrx.idx %r3, ways;\nGOT:";
    locked(spin, "");
}

#[test]
fn lanes_that_spin_with_a_vote_in_the_loop_let_the_holder_on() {
    let spin = "atom.global.cas.b32 %r3, [%d0], 0, 1;\nmov.u32 %r7, %lanemask_eq;\n\
                vote.sync.any.pred %p2, 1, %r7;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra TRY;";
    locked(spin, "");
}

#[test]
fn a_barrier_for_some_warps_completes_before_the_next_phase_begins() {
    // Four warps come to one barrier for two warps. Each pair writes before it, and reads after it, what its phase
    // number determines; a counter that the barrier protects tells the phases apart.
    let body = ".shared .u32 count;\nst.volatile.shared.u32 [count], 0;\nbar.sync 0;\n\
                setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r1, %laneid;\nsetp.eq.u32 %p1, %r1, 0;\n\
                @%p1 atom.shared.add.u32 %r2, [count], 1;\nbarrier.sync.aligned 1, 64;\n\
                ld.volatile.shared.u32 %r3, [count];\nst.global.u32 [%d1], %r3;";
    // The first two warps continue when two have arrived, whatever the others do. So two is the smallest value, and the
    // last two warps see all four.
    let got = words(body, 128);
    for warp in 0..4 {
        assert!(got[warp * 32..][..32].iter().all(|seen| (2..=4).contains(seen)), "{got:?}");
    }
    assert!(got[96..].iter().all(|seen| *seen == 4), "{got:?}");
}

#[test]
fn a_third_warp_is_not_let_through_by_the_two_before_it() {
    // Warps 0 and 1 complete the barrier, and warp 2 arrives alone. It waits until warp 3 arrives, which first waits
    // for the flag that warps 0 and 1 set after the barrier.
    let body = ".shared .u32 s[2];\nst.volatile.shared.u32 [s], 0;\nst.volatile.shared.u32 [s+4], 0;\nbar.sync 0;\n\
                setp.lt.u32 %p1, %r0, 96;\n@%p1 bra COME;\nWAIT:\nld.volatile.shared.u32 %r1, [s];\n\
                setp.eq.u32 %p2, %r1, 0;\n@%p2 bra WAIT;\nst.volatile.shared.u32 [s+4], 7;\nCOME:\nbar.sync 1, 64;\n\
                ld.volatile.shared.u32 %r2, [s+4];\nst.volatile.shared.u32 [s], 1;\nst.global.u32 [%d1], %r2;";
    let got = words(body, 128);
    assert_eq!(got[96..], [7; 32]);
    assert_eq!(got[64..96], [7; 32], "the third warp waits for the fourth");
}

#[test]
fn a_barrier_that_counts_threads_counts_whole_warps() {
    // 40 threads are two warps; the last lanes of the second never existed.
    let body = "setp.eq.u32 %p2, %r0, 39;\nst.global.u32 [%d1], %r0;\nbar.sync 1, 64;\nxor.b32 %r1, %r0, 1;\n\
                mad.wide.u32 %d2, %r1, 4, %d0;\nld.global.u32 %r2, [%d2];\nbar.red.popc.u32 %r3, 2, 64, %p2;\n\
                setp.lt.u32 %p3, %r0, 40;\nbar.red.and.pred %p4, 3, 64, %p3;\n@%p4 add.u32 %r3, %r3, 1000;\n\
                bar.red.or.pred %p4, 3, 64, !%p3;\n@%p4 add.u32 %r3, %r3, 5000;\nadd.u32 %r2, %r2, %r3;\n\
                st.global.u32 [%d1], %r2;";
    assert_eq!(words(body, 40), (0..40).map(|i| (i ^ 1) + 1001).collect::<Vec<u32>>());
}

#[test]
fn lanes_that_exit_count_with_their_warp() {
    // The upper lanes of each warp exit: in the first warp before, in the second one after the others have arrived.
    let body = "mov.u32 %r1, %laneid;\nsetp.lt.u32 %p1, %r1, 20;\n@%p1 bra COME;\nsetp.lt.u32 %p2, %r0, 32;\n@%p2 exit;\n\
                mov.u32 %r2, 0;\nLOOP:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 2000;\n@%p3 bra LOOP;\nexit;\n\
                COME:\nst.global.u32 [%d1], 5;\nbarrier.sync 4, 64;\nxor.b32 %r3, %r0, 32;\nmad.wide.u32 %d2, %r3, 4, %d0;\n\
                ld.global.u32 %r4, [%d2];\nadd.u32 %r4, %r4, 1;\nbar.sync 0;\nst.global.u32 [%d1], %r4;";
    assert_eq!(words(body, 64), (0..64).map(|i| if i % 32 < 20 { 6 } else { 0 }).collect::<Vec<u32>>());
}

#[test]
fn producers_and_consumers_pass_a_buffer_to_and_fro() {
    // Warp 0 fills a buffer of 32 words and warp 1 adds it up, 50 times: barrier 1 means full, barrier 2 empty.
    let body = ".shared .u32 s[32];\nmov.u32 %r9, s;\nmov.u32 %r1, %laneid;\nshl.b32 %r8, %r1, 2;\nadd.u32 %r9, %r9, %r8;\n\
                mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nsetp.lt.u32 %p1, %r0, 32;\n@!%p1 bra TAKE;\n\
                FILL:\nsetp.eq.u32 %p2, %r2, 0;\n@!%p2 bar.sync 2, 64;\nmad.lo.u32 %r4, %r2, 100, %r1;\n\
                st.shared.u32 [%r9], %r4;\nbar.arrive 1, 64;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 50;\n\
                @%p2 bra FILL;\nbar.sync 2, 64;\nbra DONE;\n\
                TAKE:\nbar.sync 1, 64;\nld.shared.u32 %r4, [%r9];\nadd.u32 %r3, %r3, %r4;\nbar.arrive 2, 64;\n\
                add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 50;\n@%p2 bra TAKE;\nDONE:\nst.global.u32 [%d1], %r3;";
    let sum = |lane: u32| (0..50).map(|turn| turn * 100 + lane).sum::<u32>();
    assert_eq!(words(body, 64), (0..64).map(|i| if i < 32 { 0 } else { sum(i - 32) }).collect::<Vec<u32>>());
}

#[test]
fn barriers_that_no_device_could_run_are_errors() {
    for (op, part) in [
        ("bar.sync 16;", "above 15"),
        ("bar.sync 1, %r0;", "not a multiple of the warp size"),
        ("mov.u32 %r1, 0;\nbar.sync 1, %r1;", "not a multiple of the warp size"),
        ("setp.lt.u32 %p1, %r0, 16;\n@%p1 bar.arrive 1, 64;\nbar.sync 0;", "waits for lanes"),
    ] {
        let fault = fault(op, 32);
        assert!(fault.report.contains(part), "{op}: {}", fault.report);
    }
    let fault = fault("setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 1, 96;\n@!%p1 bar.sync 1, 64;", 96);
    assert!(fault.report.contains("different thread counts"), "{}", fault.report);
}

#[test]
fn lanes_may_wait_at_one_barrier_in_different_places() {
    let body = "setp.lt.u32 %p1, %r0, 10;\nst.global.u32 [%d1], %r0;\n@%p1 bra A;\nbarrier.sync 0;\nmov.u32 %r2, 1;\nbra B;\n\
                A:\nbarrier.sync 0;\nmov.u32 %r2, 2;\nB:\nxor.b32 %r1, %r0, 63;\nmad.wide.u32 %d2, %r1, 4, %d0;\n\
                ld.global.u32 %r3, [%d2];\nmad.lo.u32 %r3, %r2, 100, %r3;\nbarrier.sync 0;\nst.global.u32 [%d1], %r3;";
    let expected: Vec<u32> = (0..64).map(|i| if i < 10 { 200 } else { 100 } + (i ^ 63)).collect();
    assert_eq!(words(body, 64), expected);
}
