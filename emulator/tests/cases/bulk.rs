//! Bulk copies (`cp.async.bulk`), and the barriers that wait for their bytes.

use gpufleet_emulator::checks::Checks;

use super::harness::{Arg, Device, fault, kernel, words};

const BARRIER: &str = ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 s[512];\nsetp.eq.u32 %p1, %r0, 0;\n\
                       @%p1 mbarrier.init.shared.b64 [bar], 1;\nbar.sync 0;\nmov.u32 %r1, s;\n";
const COPY: &str = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";

/// Returns a kernel in which one thread copies what all threads have written, and each thread then reads its
/// counterpart's value.
fn mirrored() -> String {
    format!(
        "{BARRIER}add.u32 %r2, %r0, 100;\nst.global.u32 [%d1], %r2;\nfence.proxy.async;\nbar.sync 0;\n@!%p1 bra WAIT;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [bar], 384;\n{COPY} [%r1], [%d0], 384, [bar];\n\
         WAIT:\nmbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;\n@!%p2 bra WAIT;\n\
         sub.u32 %r2, 95, %r0;\nshl.b32 %r2, %r2, 2;\nadd.u32 %r1, %r1, %r2;\nld.shared.u32 %r3, [%r1];\n\
         st.global.u32 [%d1], %r3;"
    )
}

#[test]
fn a_thread_copies_for_its_block() {
    let expected: Vec<u32> = (0..96).map(|i| 195 - i).collect();
    assert_eq!(words(&mirrored(), 96), expected);
}

#[test]
fn checks_count_a_copy_among_the_accesses_of_its_thread() {
    let checked = |body: &str| {
        let checks = Checks { races: true, uninitialised: true };
        let device = Device::checked(&kernel(body), checks);
        let out = device.upload(&[0u32; 96]);
        device.launch("kernel", [1; 3], [96, 1, 1], &[Arg::U64(out)])
    };
    assert_eq!(checked(&mirrored()), Ok(()));
    let without_wait = mirrored().replace("mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;\n@!%p2 bra WAIT;\n", "");
    let fault = checked(&without_wait).unwrap_err();
    assert!(fault.report.contains("race in shared memory: read after write"), "{}", fault.report);
    let unwritten = format!("{BARRIER}@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 64;");
    let fault = checked(&unwritten).unwrap_err();
    assert!(fault.report.contains("read of 64 uninitialised bytes in shared memory"), "{}", fault.report);
}

#[test]
fn bytes_may_come_in_parts_and_before_they_are_expected() {
    let body = format!(
        "{BARRIER}mov.u32 %r5, 0;\nst.global.v4.u32 [%d0], {{1, 2, 3, 4}};\nst.global.v4.u32 [%d0+16], {{5, 6, 7, 8}};\n\
         mov.u32 %r6, 16;\n{COPY} [%r1], [%d0], %r6, [bar];\nmbarrier.expect_tx.shared.b64 [bar], 32;\n\
         mbarrier.arrive.shared.b64 %d2, [bar];\nmbarrier.test_wait.shared.b64 %p2, [bar], %d2;\n@%p2 add.u32 %r5, %r5, 1;\n\
         {COPY} [%r1+16], [%d0+16], 16, [bar];\nmbarrier.test_wait.shared.b64 %p2, [bar], %d2;\n@%p2 add.u32 %r5, %r5, 2;\n\
         st.global.u32 [%d0], %r5;\nld.shared.v4.u32 {{%r7, %r8, %r9, %r10}}, [%r1];\nst.global.u32 [%d0+4], %r10;\n\
         ld.shared.v4.u32 {{%r7, %r8, %r9, %r10}}, [%r1+16];\nst.global.u32 [%d0+8], %r7;"
    );
    let device = Device::new(&kernel(&body));
    let out = device.upload(&[0u32; 8]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 3), [2, 4, 5]);
}

#[test]
fn each_lane_copies_its_own_size() {
    // Lane n copies 16 times n bytes of ones to its 64 bytes of zeros; lane 0 copies nothing.
    let body = ".shared .align 16 .b8 s[64];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r3, %r1, %r2;\n\
                st.shared.v4.u32 [%r3], {1, 1, 1, 1};\nbar.sync 0;\nmul.wide.u32 %d2, %r0, 64;\nadd.u64 %d2, %d2, %d0;\n\
                cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r1], %r2;\ncp.async.bulk.commit_group;\n\
                cp.async.bulk.wait_group.read 0;\ncp.async.bulk.wait_group 0;\n";
    let device = Device::new(&kernel(body));
    let out = device.upload(&[0u32; 64]);
    device.launch("kernel", [1; 3], [4, 1, 1], &[Arg::U64(out)]).unwrap();
    let expected: Vec<u32> = (0..64).map(|word| u32::from(word % 16 < 4 * (word / 16))).collect();
    assert_eq!(device.download::<u32>(out, 64), expected);
}

#[test]
fn wrong_addresses_and_sizes_are_told_by_lane() {
    for (op, parts) in [
        (format!("{COPY} [%r1], [%d0+4], 16, [bar];"), ["misaligned access of 16 bytes", "in global memory"]),
        (format!("{COPY} [%r1+8], [%d0], 16, [bar];"), ["misaligned access of 16 bytes", "in shared memory"]),
        (format!("{COPY} [%r1], [%d0], 48, [bar];"), ["illegal access of 48 bytes", "with 16 bytes past its end"]),
        (format!("{COPY} [%r1+496], [%d0], 32, [bar];"), ["illegal access of 32 bytes", "in shared memory"]),
        (format!("mov.u32 %r2, 24;\n{COPY} [%r1], [%d0], %r2, [bar];"), ["no multiple of 16", "thread (0, 0, 0)"]),
        (format!("{COPY} [%r1], [%d0], 16, [s];"), ["not initialised", "thread (0, 0, 0)"]),
        (format!("{COPY} [%r1], [%d0], 16, [bar+4];"), ["misaligned access of 8 bytes", "in shared memory"]),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%d0+32], [%r1], 16;".to_owned(),
            ["illegal access of 16 bytes", "in global memory"],
        ),
    ] {
        let found = fault(&format!("{BARRIER}{op}"), 8);
        for part in parts {
            assert!(found.report.contains(part), "{op}: {}", found.report);
        }
    }
    let found = fault(&format!("{BARRIER}setp.eq.u32 %p3, %r0, 5;\n@%p3 {COPY} [%r1], [%d0], 64, [bar];"), 8);
    assert!(found.report.contains("thread (5, 0, 0)") && !found.report.contains("others"), "{}", found.report);
}

#[test]
fn other_forms_are_refused() {
    for op in [
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%d1], 16, [%r2], %h1",
        "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%d1], [%r1], 16, [%r2]",
        "cp.async.bulk.shared::cta.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], 16, [%r2]",
        "cp.async.bulk.shared::cluster.global.bulk_group [%r1], [%d1], 16",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%r2], 16, [%r2], %d1",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r1], 16, %h1",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d1, {%r2}], [%r1]",
        "cp.async.bulk.commit_group.read",
        "cp.async.bulk.prefetch.L2 [%d1], 16",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 24, [%r2]",
        "cp.async.bulk.wait_group %r1",
    ] {
        assert!(Device::try_new(&kernel(&format!("{op};"))).is_err(), "{op}");
    }
}
