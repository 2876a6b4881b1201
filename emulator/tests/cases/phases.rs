//! Barrier objects in shared memory (`mbarrier`), the barrier of a cluster of one block, and `elect.sync`.

use super::harness::{fault, words};

#[test]
fn threads_wait_for_the_phase_that_all_arrive_in() {
    // Three phases over 96 threads; in each, every thread reads what its neighbour wrote in the previous phase.
    for wait in ["test_wait", "try_wait"] {
        let body = format!(
            ".shared .align 8 .b64 bar;\n.shared .u32 s[192];\nmov.u32 %r9, s;\nshl.b32 %r1, %r0, 2;\nadd.u32 %r9, %r9, %r1;\n\
             setp.ne.u32 %p1, %r0, 0;\n@!%p1 mbarrier.init.shared.b64 [bar], 96;\nbar.sync 0;\nmov.u32 %r2, 0;\n\
             st.shared.u32 [%r9], %r0;\nAGAIN:\nmbarrier.arrive.shared.b64 %d2, [bar];\n\
             SPIN:\nmbarrier.{wait}.shared.b64 %p2, [bar], %d2;\n@!%p2 bra SPIN;\n\
             add.u32 %r3, %r0, 1;\nrem.u32 %r3, %r3, 96;\nshl.b32 %r3, %r3, 2;\nmov.u32 %r4, s;\nadd.u32 %r3, %r3, %r4;\n\
             ld.shared.u32 %r5, [%r3];\nmbarrier.arrive.release.cta.shared::cta.b64 %d2, [bar];\n\
             SPIN2:\nmbarrier.{wait}.acquire.cta.shared::cta.b64 %p2, [bar], %d2;\n@!%p2 bra SPIN2;\n\
             add.u32 %r5, %r5, 1;\nst.shared.u32 [%r9], %r5;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 3;\n@%p3 bra AGAIN;\n\
             st.global.u32 [%d1], %r5;"
        );
        assert_eq!(words(&body, 96), (0..96).map(|i| (i + 3) % 96 + 3).collect::<Vec<u32>>(), "{wait}");
    }
}

#[test]
fn a_producer_and_its_consumers_share_two_buffers() {
    // Warp 0 fills, warps 1 to 3 add up: a full and an empty barrier for each of two buffers, whose phases parity
    // distinguishes.
    let body = ".shared .align 8 .b64 full[2];\n.shared .align 8 .b64 empty[2];\n.shared .u32 s[64];\n\
                setp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared.b64 [full], 32;\n@%p1 mbarrier.init.shared.b64 [full+8], 32;\n\
                @%p1 mbarrier.init.shared.b64 [empty], 96;\n@%p1 mbarrier.init.shared.b64 [empty+8], 96;\nbar.sync 0;\n\
                mov.u32 %r1, 0;\nmov.u32 %r8, 0;\nmov.u32 %r20, full;\nmov.u32 %r21, empty;\nmov.u32 %r22, s;\nmov.u32 %r10, %laneid;\n\
                setp.lt.u32 %p2, %r0, 32;\n\
                NEXT:\nand.b32 %r2, %r1, 1;\nshr.u32 %r3, %r1, 1;\nand.b32 %r3, %r3, 1;\nshl.b32 %r4, %r2, 3;\n\
                add.u32 %r5, %r20, %r4;\nadd.u32 %r6, %r21, %r4;\nshl.b32 %r7, %r2, 7;\nadd.u32 %r7, %r7, %r22;\n\
                shl.b32 %r11, %r10, 2;\nadd.u32 %r7, %r7, %r11;\n@!%p2 bra TAKE;\n\
                xor.b32 %r12, %r3, 1;\nFREE:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], %r12;\n@!%p3 bra FREE;\n\
                mad.lo.u32 %r13, %r1, 10, %r10;\nst.shared.u32 [%r7], %r13;\nmbarrier.arrive.shared.b64 _, [%r5];\nbra STEP;\n\
                TAKE:\nmbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], %r3;\n@!%p3 bra TAKE;\n\
                ld.shared.u32 %r13, [%r7];\nadd.u32 %r8, %r8, %r13;\nmbarrier.arrive.shared.b64 %d2, [%r6];\n\
                STEP:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p4, %r1, 21;\n@%p4 bra NEXT;\nst.global.u32 [%d1], %r8;";
    let sum = |lane: u32| (0..21).map(|turn| turn * 10 + lane).sum::<u32>();
    let expected: Vec<u32> = (0..128).map(|i| if i < 32 { 0 } else { sum(i % 32) }).collect();
    assert_eq!(words(body, 128), expected);
}

#[test]
fn an_object_counts_arrivals_drops_and_bytes() {
    // One thread; the results are collected as bits of one word.
    let body = ".shared .align 8 .b64 bar;\nmov.u32 %r1, 0;\nmbarrier.init.shared::cta.b64 [bar], 3;\n\
                mbarrier.arrive.noComplete.shared.b64 %d2, [bar], 2;\nmbarrier.pending_count.b64 %r2, %d2;\nmov.u32 %r1, %r2;\n\
                mbarrier.arrive_drop.shared.b64 %d3, [bar];\nmbarrier.pending_count.b64 %r2, %d3;\nshl.b32 %r2, %r2, 4;\n\
                add.u32 %r1, %r1, %r2;\nmbarrier.test_wait.shared.b64 %p1, [bar], %d2;\n@%p1 add.u32 %r1, %r1, 0x100;\n\
                mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1;\n@%p1 add.u32 %r1, %r1, 0x200;\n\
                mov.u64 %d4, bar;\ncvta.shared.u64 %d4, %d4;\n\
                mbarrier.arrive.expect_tx.b64 %d5, [%d4], 100;\nmbarrier.pending_count.b64 %r2, %d5;\nshl.b32 %r2, %r2, 12;\n\
                add.u32 %r1, %r1, %r2;\nmbarrier.arrive.relaxed.cta.b64 _, [%d4], 1;\n\
                mbarrier.test_wait.b64 %p1, [%d4], %d5;\n@%p1 add.u32 %r1, %r1, 0x10000;\n\
                mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 28;\nmbarrier.complete_tx.b64 [%d4], 28;\n\
                mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [bar], 100;\n\
                mbarrier.try_wait.b64 %p1, [%d4], %d5, 1000;\n@%p1 add.u32 %r1, %r1, 0x20000;\n\
                mbarrier.arrive.shared::cluster.b64 _, [bar], 2;\ncp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n\
                mbarrier.inval.shared.b64 [bar];\nst.global.u32 [%d1], %r1;";
    let body = body.replace("cp.async.mbarrier.arrive.noinc", "cp.async.mbarrier.arrive");
    // Three were pending, then one; the phase is complete; two of the three remain, so two are pending then.
    assert_eq!(words(&body, 1), [3 | 1 << 4 | 0x100 | 2 << 12 | 0x20000]);
}

#[test]
fn copies_arrive_when_they_are_done() {
    let body = ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 s[256];\nsetp.eq.u32 %p1, %r0, 0;\n\
                @%p1 mbarrier.init.shared.b64 [bar], 128;\nbar.sync 0;\nst.global.u32 [%d1], %r0;\nmov.u32 %r1, s;\n\
                shl.b32 %r2, %r0, 2;\nadd.u32 %r1, %r1, %r2;\ncp.async.ca.shared.global [%r1], [%d1], 4;\n\
                cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\ncp.async.mbarrier.arrive.shared.b64 [bar];\n\
                mbarrier.arrive.shared.b64 %d2, [bar];\nW:\nmbarrier.test_wait.shared.b64 %p2, [bar], %d2;\n@!%p2 bra W;\n\
                xor.b32 %r2, %r2, 252;\nmov.u32 %r1, s;\nadd.u32 %r1, %r1, %r2;\nld.shared.u32 %r3, [%r1];\n\
                st.global.u32 [%d1], %r3;";
    assert_eq!(words(body, 64), (0..64).map(|i| 63 - i).collect::<Vec<u32>>());
}

#[test]
fn misused_objects_are_errors() {
    let start = ".shared .align 8 .b64 bar[2];\n.local .align 8 .b64 here;\n";
    for (op, part) in [
        ("mbarrier.arrive.shared.b64 %d2, [bar];", "not initialised"),
        (
            "mbarrier.init.shared.b64 [bar], 1;\nmbarrier.inval.shared.b64 [bar];\nmbarrier.arrive.shared.b64 _, [bar];",
            "not initialised",
        ),
        ("mbarrier.init.shared.b64 [bar], 0;", "arrival count of 0"),
        ("mbarrier.init.shared.b64 [bar], 1048576;", "above the maximum"),
        ("mbarrier.init.shared.b64 [bar], 2;\nmbarrier.arrive.shared.b64 _, [bar], 3;", "more arrivals"),
        (
            "mbarrier.init.shared.b64 [bar], 2;\nmbarrier.arrive.noComplete.shared.b64 _, [bar], 2;",
            "completes the phase",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1048575;\ncp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n\
             cp.async.mbarrier.arrive.shared.b64 [bar];\nmbarrier.init.shared.b64 [bar+8], 1048575;\n\
             cp.async.mbarrier.arrive.shared.b64 [bar+8];",
            "than it can count",
        ),
        ("mbarrier.init.shared.b64 [bar], 2;\nmbarrier.expect_tx.shared.b64 [bar], 2000000;", "more transactions"),
        ("mov.u64 %d2, here;\ncvta.local.u64 %d2, %d2;\nmbarrier.init.b64 [%d2], 1;", "outside shared memory"),
        ("mbarrier.init.shared.b64 [bar+4], 1;", "misaligned"),
        ("mbarrier.init.shared.b64 [bar+16], 1;", "illegal access"),
    ] {
        let fault = fault(&format!("{start}{op}"), 1);
        assert!(fault.report.contains(part), "{op}: {}", fault.report);
    }
    for op in ["mbarrier.arrive.shared.b64 _, [bar+4096];", "mbarrier.arrive.shared.b64 _, [bar];"] {
        let fault = fault(&format!("{start}setp.eq.u32 %p1, %r0, 5;\n@%p1 {op}"), 8);
        assert!(fault.report.contains(", thread (5, 0, 0)"), "{op}: {}", fault.report);
    }
}

#[test]
fn a_phase_that_never_completes_ends_by_the_budget() {
    let mut device = super::harness::Device::new(&super::harness::kernel(
        ".shared .align 8 .b64 bar;\nmbarrier.init.shared.b64 [bar], 2;\nW:\nmbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;\n\
         @!%p1 bra W;",
    ));
    device.instructions_max = Some(100_000);
    let out = device.upload(&[0u32]);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[super::harness::Arg::U64(out)]).unwrap_err();
    assert!(fault.report.contains("exceeded its instruction limit"), "{}", fault.report);
}

#[test]
fn the_barrier_of_the_cluster_is_come_to_and_waited_at_apart() {
    // Between arriving and waiting each thread does something else; some threads exit after they have arrived, some
    // before.
    let body = ".shared .u32 s[128];\nmov.u32 %r9, s;\nshl.b32 %r1, %r0, 2;\nadd.u32 %r9, %r9, %r1;\n\
                setp.ge.u32 %p1, %r0, 120;\n@%p1 exit;\nmov.u32 %r2, 0;\nst.shared.u32 [%r9], %r0;\n\
                AGAIN:\nbarrier.cluster.arrive.release.aligned;\nadd.u32 %r2, %r2, 1;\nsetp.ge.u32 %p2, %r0, 100;\n\
                setp.eq.and.u32 %p2, %r2, 4, %p2;\n@%p2 exit;\nbarrier.cluster.wait.acquire.aligned;\n\
                xor.b32 %r3, %r1, 124;\nand.b32 %r4, %r0, 96;\nmov.u32 %r5, s;\nadd.u32 %r3, %r3, %r5;\nld.shared.u32 %r6, [%r3];\n\
                barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\nadd.u32 %r6, %r6, 1;\nst.shared.u32 [%r9], %r6;\n\
                setp.lt.u32 %p3, %r2, 5;\n@%p3 bra AGAIN;\nst.global.u32 [%d1], %r6;";
    let got = words(body, 128);
    // Each iteration adds one and mirrors within the warp; threads from 100 on exit in the fourth.
    for (lane, word) in got.iter().enumerate().take(96) {
        assert_eq!(*word as usize, (lane ^ 31) + 5, "{lane}");
    }
    assert_eq!(got[100..], [0; 28]);
}

#[test]
fn misuse_of_the_barrier_of_the_cluster_is_an_error() {
    for (op, part) in [
        ("barrier.cluster.wait;", "without having arrived"),
        ("barrier.cluster.arrive;\nbarrier.cluster.arrive;", "twice without waiting"),
        (
            "setp.lt.u32 %p1, %r0, 40;\n@%p1 barrier.cluster.arrive;\n@%p1 barrier.cluster.wait;\nbar.sync 0;",
            "deadlock",
        ),
    ] {
        let fault = fault(op, 64);
        assert!(fault.report.contains(part), "{op}: {}", fault.report);
    }
}

#[test]
fn one_lane_of_each_set_is_elected() {
    let body = "setp.ge.u32 %p1, %r0, 3;\nmov.u32 %r2, 0;\n@!%p1 bra DONE;\nsetp.lt.u32 %p2, %r0, 10;\n\
                selp.b32 %r1, 0x3f8, 0xfffffc00, %p2;\nelect.sync %r2|%p3, %r1;\n@%p3 add.u32 %r2, %r2, 100;\n\
                @%p2 elect.sync _|%p3, 0x3f8;\n@!%p2 mov.pred %p3, 0;\n@%p3 add.u32 %r2, %r2, 1000;\nDONE:\nst.global.u32 [%d1], %r2;";
    let body = body.replace("mov.pred %p3, 0", "setp.ne.u32 %p3, 0, 0");
    let expected: Vec<u32> = (0..32)
        .map(|i| match i {
            0..3 => 0,
            3 => 3 + 100 + 1000,
            4..10 => 3,
            10 => 10 + 100,
            _ => 10,
        })
        .collect();
    assert_eq!(words(&body, 32), expected);
}
