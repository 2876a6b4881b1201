//! The optional checks: what they find, what they do not report, and their reports.

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::{Fault, FaultKind};

use super::harness::{Arg, Device, kernel};

const RACES: Checks = Checks { races: true, uninitialised: false };
const UNINITIALISED: Checks = Checks { races: false, uninitialised: true };
const TILE: &str = ".shared .align 16 .b8 _ZZ6kernelPjE4tile[1024];\nmov.u32 %r10, _ZZ6kernelPjE4tile;\n\
                    mad.lo.u32 %r11, %r0, 4, %r10;\n";

fn run(checks: Checks, body: &str, threads: u32) -> Result<(), Fault> {
    let device = Device::checked(&kernel(body), checks);
    let out = device.upload(&vec![0u32; threads as usize]);
    device.launch("kernel", [2, 1, 1], [threads, 1, 1], &[Arg::U64(out)])
}

/// Runs a kernel over `tile`, in which `%r11` is the address of the thread's own word.
fn races(body: &str, threads: u32) -> Result<(), Fault> {
    run(RACES, &format!("{TILE}{body}"), threads)
}

fn assert_race(body: &str, threads: u32, what: &str) {
    let fault = races(body, threads).unwrap_err();
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    let wanted = format!("race in shared memory: {what} without synchronization,");
    assert!(fault.report.starts_with(&wanted), "{wanted} is missing in: {}", fault.report);
}

fn assert_no_race(body: &str, threads: u32) {
    if let Err(fault) = races(body, threads) {
        panic!("{body}\n{fault}");
    }
}

/// PTX that writes the thread's own word, and that reads the word of another thread of this warp or of another warp.
const WRITE: &str = "st.shared.u32 [%r11], %r0;\n";
const READ_NEAR: &str = "xor.b32 %r12, %r0, 1;\nmad.lo.u32 %r12, %r12, 4, %r10;\nld.shared.u32 %r13, [%r12];\n";
const READ_FAR: &str = "xor.b32 %r12, %r0, 32;\nmad.lo.u32 %r12, %r12, 4, %r10;\nld.shared.u32 %r13, [%r12];\n";

#[test]
fn a_race_names_both_accesses() {
    // The second warp writes after the first has read; on a device the order is arbitrary.
    let fault = races(&format!("{WRITE}{READ_FAR}"), 64).unwrap_err();
    assert_eq!(
        fault.report,
        "race in shared memory: write after read without synchronization, in kernel `kernel`\n  \
         at PTX line 16, `st.shared.u32`\n  \
         block (0, 0, 0), thread (32, 0, 0)\n  \
         writes 4 bytes at offset 128 of shared memory, 128 bytes into `tile`\n  \
         thread (0, 0, 0) read it at PTX line 19, `ld.shared.u32`"
    );
}

#[test]
fn a_barrier_of_the_block_orders_all_threads() {
    assert_race(&format!("{WRITE}{READ_FAR}"), 64, "write after read");
    assert_no_race(&format!("{WRITE}bar.sync 0;\n{READ_FAR}bar.sync 0;\n{WRITE}bar.sync 0;\n{READ_NEAR}"), 64);
    assert_race(&format!("{WRITE}bar.sync 0;\n{READ_FAR}{WRITE}"), 64, "read after write");
    assert_no_race(&format!("{WRITE}bar.sync 0;\n{READ_FAR}barrier.sync 1, 64;\n{WRITE}"), 64);
}

#[test]
fn a_barrier_of_some_warps_orders_those_alone() {
    // Warps 0 and 1 meet, as do 2 and 3; then the first of each pair reads what the first pair wrote.
    let body = |xor: u32| {
        format!(
            "{WRITE}setp.lt.u32 %p1, %r0, 64;\n@%p1 bar.sync 1, 64;\n@!%p1 bar.sync 2, 64;\nxor.b32 %r12, %r0, {xor};\n\
             mad.lo.u32 %r12, %r12, 4, %r10;\nld.shared.u32 %r13, [%r12];\n"
        )
    };
    assert_no_race(&body(32), 128);
    assert_race(&body(64), 128, "read after write");
}

#[test]
fn who_only_arrives_at_a_barrier_is_heard_and_hears_nothing() {
    let body = |producer: &str, consumer: &str| {
        format!("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\n{consumer}bra B;\nA:\n{producer}B:\n")
    };
    assert_no_race(&body(&format!("{WRITE}bar.arrive 1, 64;\n"), &format!("bar.sync 1, 64;\n{READ_FAR}")), 64);
    assert_race(
        &body(&format!("bar.arrive 1, 64;\n{WRITE}"), &format!("bar.sync 1, 64;\n{READ_FAR}")),
        64,
        "read after write",
    );
}

#[test]
fn threads_that_have_exited_came_before_the_barrier() {
    let body = format!(
        "{WRITE}setp.lt.u32 %p1, %r0, 32;\n@%p1 exit;\nsetp.eq.u32 %p1, %r0, 40;\n@%p1 exit;\nbar.sync 0;\n{READ_FAR}\
         {READ_NEAR}"
    );
    assert_no_race(&body, 64);
}

#[test]
fn lanes_of_a_warp_need_something_that_orders_them_too() {
    assert_race(&format!("{WRITE}{READ_NEAR}"), 32, "read after write");
    for between in
        ["bar.warp.sync -1;\n", "shfl.sync.bfly.b32 %r14, %r0, 1, 31, -1;\n", "vote.sync.any.pred %p1, %p0, -1;\n"]
    {
        assert_no_race(&format!("{WRITE}{between}{READ_NEAR}"), 64);
        assert_race(&format!("{WRITE}{between}{READ_FAR}"), 64, "write after read");
    }
    // Lanes 0 and 1 meet, and lanes 2 and 3, separately.
    let pairs = "and.b32 %r15, %r0, 30;\nmov.u32 %r16, 3;\nshl.b32 %r16, %r16, %r15;\nbar.warp.sync %r16;\n";
    assert_no_race(&format!("{WRITE}{pairs}{READ_NEAR}"), 32);
    let next = READ_NEAR.replace("%r0, 1", "%r0, 2");
    assert_race(&format!("{WRITE}{pairs}{next}"), 32, "read after write");
}

#[test]
fn writes_of_the_same_value_are_no_race() {
    assert_no_race("st.shared.u32 [%r10], 7;\n", 64);
    assert_no_race("st.shared.v2.u32 [%r10+8], {7, 8};\n", 64);
    assert_race("st.shared.u32 [%r10], %r0;\n", 32, "write after write");
    assert_race("shr.u32 %r12, %r0, 5;\nst.shared.u32 [%r10], %r12;\n", 64, "write after write");
}

#[test]
fn writes_of_what_is_not_known_race_with_all_others() {
    let copy = "cp.async.ca.shared.global [%r10], [%d0], 4;\n";
    assert_race(copy, 32, "write after write");
    assert_no_race(&copy.replace("%r10", "%r11"), 64);
    let init = "mbarrier.init.shared.b64 [%r10], 32;\n";
    assert_no_race(init, 64);
    for op in [copy, init, &format!("{init}mbarrier.inval.shared.b64 [%r10];\n")] {
        let (first, second) = ("setp.eq.u32 %p1, %r0, 0;\n@!%p1 bra A;\n", "bra B;\nA:\n");
        let store = "st.shared.u32 [%r10], %r0;\n";
        assert_race(&format!("{first}{op}{second}{store}B:\n"), 2, "write after write");
        assert_race(&format!("{first}{store}{second}{op}B:\n"), 2, "write after write");
    }
}

#[test]
fn atomics_and_volatile_accesses_race_with_plain_ones_alone() {
    assert_no_race("atom.shared.add.u32 %r12, [%r10], 1;\nred.shared.add.u32 [%r10], 1;\n", 128);
    assert_no_race("st.volatile.shared.u32 [%r10], %r0;\nld.volatile.shared.u32 %r12, [%r10];\n", 64);
    assert_race("atom.shared.add.u32 %r12, [%r10], 1;\nld.shared.u32 %r13, [%r10];\n", 64, "read after write");
    assert_race("ld.shared.u32 %r13, [%r10];\natom.shared.add.u32 %r12, [%r10], 1;\n", 64, "write after read");
}

#[test]
fn bytes_and_halves_of_one_word_belong_to_different_threads() {
    let own = "add.u32 %r12, %r10, %r0;\n";
    assert_no_race(&format!("{own}st.shared.u8 [%r12], %r0;\nbar.sync 0;\nld.shared.u32 %r13, [%r10];\n"), 64);
    assert_race(&format!("{own}st.shared.u8 [%r12], %r0;\nld.shared.u32 %r13, [%r11];\n"), 64, "read after write");
}

#[test]
fn a_flag_that_is_set_and_waited_for_orders_what_came_before() {
    // Warp 0 writes and sets a flag behind it; warp 1 spins on the flag and reads.
    let body = format!(
        "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nB:\nld.acquire.cta.shared.u32 %r13, [%r10+512];\n\
         setp.eq.u32 %p2, %r13, 0;\n@%p2 bra B;\n{READ_FAR}ret;\nA:\nsetp.ne.u32 %p3, %r0, 0;\n\
         @!%p3 st.shared.u32 [%r11], 5;\n@!%p3 st.release.cta.shared.u32 [%r10+512], 1;\n"
    );
    let only_first = body.replace("xor.b32 %r12, %r0, 32;", "mov.u32 %r12, 0;");
    assert_no_race(&only_first, 64);
}

#[test]
fn a_block_knows_nothing_of_the_one_before() {
    assert_no_race(&format!("mov.u32 %r12, %ctaid.x;\nadd.u32 %r12, %r12, %r0;\n{WRITE}"), 32);
}

#[test]
fn dynamic_shared_memory_is_named_so() {
    let text = kernel("mov.u32 %r10, pool;\nst.shared.u32 [%r10+8], %r0;")
        .replace(".visible", ".extern .shared .align 16 .b8 pool[];\n.visible");
    let device = Device::checked(&text, RACES);
    let out = device.upload(&[0u32; 32]);
    let params = device.params("kernel", &[Arg::U64(out)]);
    let fault = device.launch_bytes("kernel", [1; 3], [32, 1, 1], 64, &params).unwrap_err();
    assert!(
        fault.report.contains("writes 4 bytes at offset 8 of shared memory, 8 bytes into its dynamic part"),
        "{fault}"
    );
}

#[test]
fn reading_what_nobody_has_written_is_found_in_device_memory() {
    let device = Device::checked(&kernel("ld.global.u32 %r1, [%d1];"), UNINITIALISED);
    let data = device.memory.alloc(256).unwrap();
    device.memory.fill32(data, 0, 40).unwrap();
    let fault = device.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(data)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    assert_eq!(
        fault.report,
        format!(
            "read of 4 uninitialised bytes in global memory in kernel `kernel`\n  \
             at PTX line 13, `ld.global.u32`\n  \
             block (0, 0, 0), thread (40, 0, 0) and 23 others of its warp\n  \
             160 bytes into the 256-byte allocation at {data:#x}, which no kernel, copy or fill has written"
        )
    );
    // A typical case is a counter that was never set to zero.
    let atomic = Device::checked(&kernel("atom.global.add.u32 %r1, [%d0], 1;"), UNINITIALISED);
    let counter = atomic.memory.alloc(4).unwrap();
    assert!(atomic.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(counter)]).is_err());
    atomic.memory.fill8(counter, 0, 4).unwrap();
    atomic.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(counter)]).unwrap();
}

#[test]
fn copies_fills_and_kernels_initialise() {
    let device =
        Device::checked(&kernel("ld.global.v2.u32 {%r1, %r2}, [%d0+8];\nst.global.u32 [%d1+64], %r0;"), UNINITIALISED);
    let launch = |address| device.launch("kernel", [1; 3], [4, 1, 1], &[Arg::U64(address)]);
    let (first, second) = (device.memory.alloc(128).unwrap(), device.memory.alloc(128).unwrap());
    device.memory.fill16(first + 8, 3, 3).unwrap();
    // A vector is read as a whole, even if only a part is used.
    assert!(launch(first).unwrap_err().report.contains("14 bytes into the 128-byte allocation"));
    device.memory.fill8(first + 14, 3, 2).unwrap();
    launch(first).unwrap();
    // A copy passes the state on, and the kernel's writes count too.
    device.memory.copy_within(second, first + 8, 128 - 8).unwrap();
    assert!(launch(second).is_err());
    assert_eq!(device.memory.first_unwritten(second, 16), Some(8));
    assert_eq!(device.memory.first_unwritten(second + 56, 16), None);
    // Reallocated memory counts as unwritten.
    device.memory.free(first).unwrap();
    let all = 64 << 20;
    let room = all - (all - device.memory.info().0);
    let again = device.memory.alloc(room).unwrap();
    assert_eq!(device.memory.first_unwritten(again, 1 << 20), Some(0));
}

#[test]
fn variables_of_a_module_are_initialised() {
    let text = kernel("mov.u64 %d2, zeros;\nld.global.u32 %r1, [%d2+8];\nld.const.u32 %r1, [some];")
        .replace(".visible", ".global .align 4 .b8 zeros[64];\n.const .align 4 .b32 some[4] = {1};\n.visible");
    let device = Device::checked(&text, UNINITIALISED);
    device.launch("kernel", [1; 3], [4, 1, 1], &[Arg::U64(0)]).unwrap();
}

#[test]
fn shared_memory_is_new_to_every_block() {
    let unwritten = run(UNINITIALISED, &format!("{TILE}{WRITE}{READ_FAR}"), 32).unwrap_err();
    assert_eq!(
        unwritten.report,
        "read of 4 uninitialised bytes in shared memory in kernel `kernel`\n  \
         at PTX line 19, `ld.shared.u32`\n  \
         block (0, 0, 0), thread (0, 0, 0) and 31 others of its warp\n  \
         at offset 128 of shared memory, 128 bytes into `tile`, which the block has not written"
    );
    run(UNINITIALISED, &format!("{TILE}{WRITE}{READ_NEAR}"), 32).unwrap();
    // Only the first block writes; its values do not exist for the second.
    let first_only = format!("{TILE}mov.u32 %r12, %ctaid.x;\nsetp.eq.u32 %p1, %r12, 0;\n@%p1 {WRITE}{READ_NEAR}");
    assert!(run(UNINITIALISED, &first_only, 32).unwrap_err().report.contains("block (1, 0, 0)"));
}

#[test]
fn local_memory_is_new_to_every_call() {
    let body = ".local .align 8 .b8 mine[32];\nst.local.u32 [mine+8], %r0;\nld.local.u32 %r1, [mine+8];\n";
    run(UNINITIALISED, body, 64).unwrap();
    let fault = run(UNINITIALISED, &format!("{body}ld.local.u64 %d3, [mine+8];"), 64).unwrap_err();
    let place = "at offset 12 of the thread's local memory, which its function has not written";
    assert!(fault.report.contains(place), "{fault}");
    let calls = kernel(
        "{\n.param .b32 a;\nst.param.b32 [a], %r0;\ncall.uni f, (a);\n}\nadd.u32 %r1, %r0, 1;\n\
         {\n.param .b32 a;\nst.param.b32 [a], %r1;\ncall.uni f, (a);\n}",
    ).replace(
        ".visible",
        ".func f(.param .b32 a) {\n.local .align 8 .b8 mine[16];\n.reg .pred p;\n.reg .b32 r, which;\n\
         ld.param.u32 which, [a];\nsetp.eq.u32 p, which, 0;\n@p st.local.u32 [mine], which;\nld.local.u32 r, [mine];\nret;\n}\n.visible",
    );
    let device = Device::checked(&calls, UNINITIALISED);
    let out = device.upload(&[0u32]);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap_err();
    assert!(fault.report.contains("function `f`"), "{fault}");
}

#[test]
fn copies_within_the_device_initialise_shared_memory() {
    let body = format!(
        "{TILE}mad.lo.u32 %r12, %r0, 16, %r10;\ncp.async.ca.shared.global [%r12], [%d0], 16, 4;\n\
                        cp.async.wait_all;\nld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r12];\n"
    );
    run(Checks { races: true, uninitialised: true }, &body, 32).unwrap();
}

#[test]
fn copies_read_nothing_that_is_not_initialised() {
    let body = |last: &str| {
        format!(
            "{TILE}mad.lo.u32 %r12, %r0, 8, %r10;\nmul.wide.u32 %d2, %r0, 8;\nadd.u64 %d2, %d2, %d0;\n\
             setp.ge.u32 %p1, %r0, 4;\nselp.b32 %r13, 0, 8, %p1;\nsetp.eq.u32 %p2, %r0, 3;\n\
             @%p2 mov.u32 %r13, 4;\ncp.async.ca.shared.global [%r12], [%d2], 8{last};\n"
        )
    };
    for (last, written, thread) in [
        ("", 40, Some(5)),
        (", %p1", 32, None),
        (", %p1", 28, Some(3)),
        (", !%p1", 28, Some(4)),
        (", %r13", 28, None),
        (", %r13", 24, Some(3)),
    ] {
        let device = Device::checked(&kernel(&body(last)), UNINITIALISED);
        let data = device.memory.alloc(256).unwrap();
        device.memory.fill8(data, 0, written).unwrap();
        let report = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(data)]).err().map(|fault| fault.report);
        let found = report.as_ref().map(|report| report.contains(&format!("thread ({}, 0, 0)", thread.unwrap_or(0))));
        assert_eq!(found, thread.map(|_| true), "8{last}, {written} written: {report:?}");
    }
}

#[test]
fn accesses_outside_of_everything_are_told_as_without_checks() {
    let plain = Device::new(&kernel("ld.global.u32 %r1, [%d1+64];"));
    let checked = Device::checked(&kernel("ld.global.u32 %r1, [%d1+64];"), Checks { races: true, uninitialised: true });
    let report = |device: &Device| {
        let out = device.upload(&[0u32; 32]);
        let report = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap_err().report;
        report.replace(&format!("{out:#x}"), "BASE").replace(&format!("{:#x}", out + 128), "ADDRESS")
    };
    assert_eq!(report(&plain), report(&checked));
}

#[test]
fn checks_are_named_in_a_list() {
    assert_eq!(Checks::parse(""), Ok(Checks::default()));
    assert_eq!(Checks::parse(" races "), Ok(RACES));
    assert_eq!(Checks::parse("uninitialised, races"), Ok(Checks { races: true, uninitialised: true }));
    assert_eq!(Checks::parse("race").unwrap_err().to_string(), "unknown check `race`");
    assert!(Checks::parse("races,").is_err());
}

#[test]
fn whole_programs_run_alike_under_all_checks() {
    let checks = Checks { races: true, uninitialised: true };
    let device = Device::checked(super::harness::PROGRAMS, checks);
    let values: Vec<i32> = (0..1000).map(|i| i * 7 % 101 - 50).collect();
    let (input, out) = (device.upload(&values), device.upload(&[0i32; 4]));
    device.launch("block_sum", [4, 1, 1], [256, 1, 1], &[Arg::U64(input), Arg::U64(out), Arg::U32(1000)]).unwrap();
    let expected: Vec<i32> = values.chunks(256).map(|chunk| chunk.iter().sum()).collect();
    assert_eq!(device.download::<i32>(out, 4), expected);
}

#[test]
fn matrices_are_watched_too() {
    let registers = ".reg .f32 %f<8>;\n";
    let store =
        "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r10], {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7};\n";
    let load = "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%r10];\n";
    let rows =
        "mad.lo.u32 %r12, %r0, 16, %r10;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r12];\n";
    let all = Checks { races: true, uninitialised: true };
    let run = |body: &str, threads| run(all, &format!("{TILE}{registers}{body}"), threads);
    run(&format!("{store}bar.warp.sync -1;\nld.shared.u32 %r12, [%r11];\n{load}{rows}"), 32).unwrap();
    for reads in [load, rows] {
        let fault = run(reads, 32).unwrap_err();
        assert!(fault.report.starts_with("read of "), "{fault}");
        assert!(fault.report.contains("0 bytes into `tile`, which the block has not written"), "{fault}");
    }
    let fault = run(store, 64).unwrap_err();
    assert!(fault.report.starts_with("race in shared memory: write after write"), "{fault}");
    assert!(fault.report.contains("writes 64 bytes at offset 0 of shared memory"), "{fault}");
}

#[test]
fn barriers_in_memory_and_that_of_the_cluster_order_who_comes_to_them() {
    let meet = "setp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared.b64 [%r10+512], 64;\nbar.sync 0;\n";
    let arrive = "mbarrier.arrive.shared.b64 %d4, [%r10+512];\n";
    let wait = "A:\nmbarrier.test_wait.shared.b64 %p2, [%r10+512], %d4;\n@!%p2 bra A;\n";
    assert_no_race(&format!("{meet}{WRITE}{arrive}{wait}{READ_FAR}"), 64);
    assert_race(&format!("{meet}{arrive}{wait}{WRITE}{READ_FAR}"), 64, "write after read");
    let text = |body: &str| kernel(&format!("{TILE}{body}")).replace(".target sm_80", ".target sm_90");
    let cluster = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
    let run = |body: String| {
        let device = Device::checked(&text(&body), RACES);
        device.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(0)])
    };
    run(format!("{WRITE}{cluster}{READ_FAR}")).unwrap();
    run(format!("{cluster}{WRITE}{READ_FAR}")).unwrap_err();
}
