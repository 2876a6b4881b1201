//! Faults that stop a kernel, and their reports.

use gpufleet_emulator::fault::FaultKind;
use gpufleet_emulator::memory::Owner;

use super::harness::{Arg, Device, fault, kernel};

#[test]
fn an_access_past_an_allocation_names_thread_and_allocation() {
    let device = Device::programs();
    let data = device.upload(&[0i32; 100]);
    let args = [Arg::U64(data), Arg::I32(0)];
    let fault = device.launch("beyond", [4, 1, 1], [32, 1, 1], &args).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    for part in [
        "illegal access of 4 bytes",
        "in global memory",
        "directly past the end of the 400-byte allocation",
        "kernel `beyond`",
        "`st.global.u32`",
        "block (3, 0, 0), thread (4, 0, 0) and 27 others of its warp",
        "PTX line ",
    ] {
        assert!(fault.report.contains(part), "{part} is missing in: {}", fault.report);
    }
    // Nothing was written behind the allocation; the blocks before wrote what is before it.
    assert_eq!(device.download::<i32>(data, 96), [1; 96]);
}

#[test]
fn freed_memory_and_null_are_out_of_bounds() {
    let device = Device::programs();
    let data = device.upload(&[0i32; 32]);
    device.memory.free(data).unwrap();
    for address in [data, 0, u64::MAX - 3, 1 << 60] {
        let fault = device.launch("beyond", [1; 3], [32, 1, 1], &[Arg::U64(address), Arg::I32(0)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress, "{}", fault.report);
    }
}

#[test]
fn a_misaligned_access_is_told_apart() {
    let fault = fault("ld.global.u32 %r1, [%d1+2];", 32);
    assert_eq!(fault.kind, FaultKind::MisalignedAddress);
    assert!(fault.report.contains("`ld.global.u32`"), "{}", fault.report);
}

#[test]
fn a_trap_names_the_first_thread_that_reached_it() {
    let fault = fault("setp.eq.u32 %p1, %r0, 37;\n@%p1 trap;", 64);
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    assert!(fault.report.contains("thread (37, 0, 0)"), "{}", fault.report);
}

#[test]
fn a_barrier_that_some_threads_never_reach_is_no_hang() {
    // Warp 0 waits at barrier 0, warp 1 at barrier 1.
    let fault = fault("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nbar.sync 1;\nbra B;\nA:\nbar.sync 0;\nB:", 64);
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    assert!(fault.report.contains("barrier deadlock"), "{}", fault.report);
}

#[test]
fn lanes_of_a_warp_at_different_barriers_are_a_divergent_barrier() {
    let fault = fault("setp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:", 32);
    assert!(fault.report.contains("divergent barrier"), "{}", fault.report);
}

#[test]
fn a_shuffle_with_lanes_that_never_come_is_no_hang() {
    let body = "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nshfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\nbra B;\nA:\n\
                shfl.sync.idx.b32 %r1, %r0, 1, 31, -1;\nB:";
    let fault = fault(body, 32);
    assert!(fault.report.contains("waits for lanes"), "{}", fault.report);
}

#[test]
fn the_budget_ends_an_endless_loop() {
    let mut device = Device::programs();
    device.instructions_max = Some(100_000);
    let flag = device.upload(&[0i32]);
    let fault = device.launch("forever", [8, 1, 1], [1024, 1, 1], &[Arg::U64(flag)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(fault.report.contains("exceeded its instruction limit"), "{}", fault.report);
}

#[test]
fn cancelling_from_another_thread_ends_a_loop_that_has_begun() {
    // Each thread stores 1 and then polls a flag that is never set. An iteration contains nothing else, a sleep, or a
    // barrier.
    for wait in ["", "nanosleep.u32 1000000;\n", "bar.sync 0;\n", "barrier.sync 0, 64;\n"] {
        let body = format!(
            "st.global.u32 [%d1], 1;\nA:\n{wait}ld.volatile.global.u32 %r1, [%d0+256];\n\
                            setp.eq.u32 %p1, %r1, 0;\n@%p1 bra A;"
        );
        let mut device = Device::new(&kernel(&body));
        device.instructions_max = None;
        let out = device.upload(&[0u32; 65]);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| device.launch("kernel", [2, 1, 1], [64, 1, 1], &[Arg::U64(out)]));
            while device.download::<u32>(out, 64).contains(&0) {
                assert!(!running.is_finished(), "the kernel ended by itself");
                std::thread::yield_now();
            }
            device.cancel();
            let fault = running.join().unwrap().unwrap_err();
            assert_eq!(fault.kind, FaultKind::Timeout);
            assert!(fault.report.contains("cancelled"), "{}", fault.report);
        });
    }
}

#[test]
fn memory_that_the_kernel_freed_is_out_of_bounds() {
    let text = ".version 7.8\n.target sm_80\n.address_size 64\n.extern .func free(.param .b64 a);\n\
        .visible .entry kernel(.param .u64 data) {\n.reg .b64 %d<2>;\n.reg .b32 %r<2>;\n\
        ld.param.u64 %d0, [data];\nld.global.u32 %r0, [%d0];\n\
        {\n.param .b64 a;\nst.param.b64 [a], %d0;\ncall.uni free, (a);\n}\n\
        ld.global.u32 %r1, [%d0];\nret;\n}\n";
    let device = Device::new(text);
    // As if an earlier kernel had called `malloc`.
    let data = device.memory.alloc_for(Owner::Heap, 4).unwrap();
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(data)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.report.contains("PTX line 15"), "{}", fault.report);
}

#[test]
fn absurd_shapes_are_refused() {
    let device = Device::programs();
    let flag = device.upload(&[1i32]);
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [u32::MAX, u32::MAX, 2]),
        ([u32::MAX; 3], [1, 1, 1]),
    ] {
        assert!(device.launch("forever", grid, block, &[Arg::U64(flag)]).is_err(), "{grid:?} {block:?}");
    }
}
