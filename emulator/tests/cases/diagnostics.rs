//! Reports for the author of a kernel that fails: the whole text of each report.

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::{Fault, FaultKind};
use gpufleet_emulator::memory::Memory;

use super::harness::{Arg, Device, fault, kernel};

/// A kernel and a function as a compiler emits them with line information: the kernel calls `far` and inlines `outer`,
/// which inlines `helper`.
const WITH_LINES: &str = r#".version 8.8
.target sm_80
.address_size 64
.func (.param .b32 result) far(.param .b64 data, .param .b32 index)
{
	.reg .b32 %r<3>;
	.reg .b64 %d<3>;
	.loc	1 7 0
	ld.param.u64 %d0, [data];
	ld.param.u32 %r0, [index];
	.loc	1 8 5
	mad.wide.s32 %d1, %r0, 12, %d0;
	ld.global.u32 %r1, [%d1];
	st.param.b32 [result+0], %r1;
	ret;
}
.visible .entry k(.param .u64 data, .param .u32 start)
{
	.reg .b32 %r<8>;
	.reg .b64 %d<4>;
	.loc	1 10 0
	ld.param.u64 %d0, [data];
	ld.param.u32 %r0, [start];
	.loc	1 12 5
	mov.u32 %r1, %tid.x;
	add.s32 %r1, %r1, %r0;
	.loc	1 13 5
	.loc	1 5 5, function_name $L__info_string0, inlined_at 1 13 5
	.loc	1 2 5, function_name $L__info_string1, inlined_at 1 5 5
	mad.wide.s32 %d1, %r1, 4, %d0;
	ld.global.u32 %r2, [%d1];
	.loc	1 0 5
	{
	.param .b64 a;
	st.param.b64 [a+0], %d0;
	.param .b32 b;
	st.param.b32 [b+0], %r1;
	.param .b32 c;
	.loc	1 16 9
	call.uni (c), far, (a, b);
	ld.param.b32 %r3, [c+0];
	}
	ret;
}
	.file	1 "/home/someone/kernel.cu"
	.section	.debug_str
	{
$L__info_string0:
.b8 111,117,116,101,114,0
$L__info_string1:
.b8 104,101,108,112,101,114,0
	}
"#;

fn with_lines(start: u32) -> (Fault, u64) {
    let device = Device::new(WITH_LINES);
    let data = device.upload(&[0u32; 96]);
    let fault = device.launch("k", [2, 1, 1], [32, 1, 1], &[Arg::U64(data), Arg::U32(start)]).unwrap_err();
    (fault, data)
}

#[test]
fn an_access_beyond_an_allocation_is_told_with_its_line_in_cuda_c() {
    let (fault, base) = with_lines(76);
    let address = base + 384;
    assert_eq!(
        fault.report,
        format!(
            "illegal access of 4 bytes at {address:#x} in global memory in kernel `k`\n  \
             at kernel.cu:2, inlined at kernel.cu:5, inlined at kernel.cu:13 (PTX line 31, `ld.global.u32`)\n  \
             block (0, 0, 0), thread (20, 0, 0) and 11 others of its warp\n  \
             directly past the end of the 384-byte allocation at {base:#x}"
        )
    );
}

#[test]
fn a_function_names_who_called_it() {
    let (fault, base) = with_lines(2);
    let address = base + 32 * 12;
    assert_eq!(
        fault.report,
        format!(
            "illegal access of 4 bytes at {address:#x} in global memory in kernel `k`, function `far`\n  \
             at kernel.cu:8 (PTX line 13, `ld.global.u32`)\n  \
             block (0, 0, 0), thread (30, 0, 0) and 1 other of its warp\n  \
             called from kernel.cu:16 (PTX line 40) in `k`\n  \
             directly past the end of the 384-byte allocation at {base:#x}"
        )
    );
}

#[test]
fn a_report_without_lines_names_those_of_the_ptx() {
    let device = Device::new(&kernel("mad.wide.u32 %d2, %r0, 8, %d0;\nst.global.v2.u32 [%d2+4096], {%r0, %r0};"));
    let out = device.upload(&[0u32; 32]);
    let beyond = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap_err();
    assert_eq!(
        beyond.report,
        format!(
            "illegal access of 8 bytes at {:#x} in global memory in kernel `kernel`\n  \
             at PTX line 14, `st.global.v2.u32`\n  \
             block (0, 0, 0), thread (0, 0, 0) and 31 others of its warp\n  \
             3968 bytes past the end of the 128-byte allocation at {out:#x}",
            out + 4096
        )
    );
}

#[test]
fn only_the_lanes_that_reach_beyond_are_counted() {
    let body = "setp.eq.u32 %p1, %r0, 21;\n@%p1 ld.global.u32 %r1, [%d1+1000];";
    let fault = fault(body, 64);
    assert!(fault.report.contains("block (0, 0, 0), thread (21, 0, 0)\n"), "{}", fault.report);
    assert!(fault.report.contains("828 bytes past the end of the 256-byte allocation"), "{}", fault.report);
}

#[test]
fn an_access_that_begins_inside_tells_how_much_is_too_long() {
    let device = Device::new(&kernel("ld.global.u32 %r1, [%d0+24];"));
    let data = device.upload(&[0u8; 26]);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(data)]).unwrap_err();
    let nearest = format!("24 bytes into the 26-byte allocation at {data:#x}, with 2 bytes past its end");
    assert!(fault.report.contains(&nearest), "{}", fault.report);
}

#[test]
fn null_pointers_are_called_so() {
    let device = Device::new(&kernel("ld.global.u32 %r1, [%d0+8];"));
    let report = |address| device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(address)]).unwrap_err().report;
    assert!(report(0).ends_with("the address is 8 bytes from a null pointer"), "{}", report(0));
    assert!(report(8u64.wrapping_neg()).ends_with("the address is a null pointer"));
}

#[test]
fn an_index_a_little_too_large_never_reaches_a_neighbour() {
    let device = Device::new(&kernel("st.global.u32 [%d0+512], 7;"));
    let (first, second) = (device.upload(&[0u32; 128]), device.upload(&[5u32; 128]));
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(first)]).unwrap_err();
    assert!(fault.report.contains("directly past the end of the 512-byte allocation"), "{}", fault.report);
    assert_eq!(device.download::<u32>(second, 1), [5]);
}

#[test]
fn memory_that_was_freed_is_remembered() {
    let device = Device::new(&kernel("ld.global.u32 %r1, [%d0+40];"));
    let data = device.upload(&[0u32; 100]);
    device.memory.free(data).unwrap();
    // The next allocation is elsewhere.
    assert_ne!(device.upload(&[0u32; 100]), data);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(data)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    let address = data + 40;
    assert!(fault.report.starts_with(&format!("use after free: illegal access of 4 bytes at {address:#x}")));
    let which = format!("40 bytes into the 400-byte allocation at {data:#x}, which was freed");
    assert!(fault.report.contains(&which), "{}", fault.report);
}

#[test]
fn freed_addresses_are_used_again_when_there_is_no_other_room() {
    let memory = Memory::new(1 << 20).unwrap();
    for _ in 0..64 {
        let address = memory.alloc(1 << 20).unwrap();
        assert!(memory.alloc(1).is_err());
        memory.free(address).unwrap();
    }
    let small: Vec<u64> = (0..4096).map(|_| memory.alloc(256).unwrap()).collect();
    assert_eq!(memory.info().0, 0);
    small.iter().for_each(|address| memory.free(*address).unwrap());
    assert_eq!(memory.info().0, 1 << 20);
    memory.alloc(1 << 20).unwrap();
}

#[test]
fn misaligned_accesses_tell_by_how_much() {
    let fault = fault("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+4];", 32);
    assert_eq!(fault.kind, FaultKind::MisalignedAddress);
    for part in [
        "misaligned access of 16 bytes at ",
        "thread (0, 0, 0) and 23 others of its warp",
        "the address is 4 bytes past a multiple of 16",
        "4 bytes into the 128-byte allocation",
    ] {
        assert!(fault.report.contains(part), "{part} is missing in: {}", fault.report);
    }
}

#[test]
fn shared_local_and_atomic_accesses_tell_the_size_of_what_they_left() {
    for (body, part) in [
        (
            ".shared .align 4 .b8 tile[64];\nst.shared.u32 [64], %r0;",
            "directly past the end of the 64 bytes that the block has",
        ),
        (
            ".shared .align 4 .b8 tile[64];\natom.shared.add.u32 %r1, [80], %r0;",
            "16 bytes past the end of the 64 bytes",
        ),
        ("ld.shared.u32 %r1, [4];", "the block has none"),
        (
            ".local .align 4 .b8 mine[16];\nst.local.u32 [16], %r0;",
            "directly past the end of the 16 bytes that the thread has",
        ),
        ("atom.global.add.u32 %r1, [%d0+128], 1;", "directly past the end of the 128-byte allocation"),
        ("red.global.add.u32 [%d0+132], 1;", "4 bytes past the end of the 128-byte allocation"),
        (
            ".shared .align 16 .b8 tile[64];\nmov.u32 %r2, tile;\ncp.async.ca.shared.global [%r2], [%d0+128], 16;",
            "directly past the end of the 128-byte allocation",
        ),
        (
            ".shared .align 16 .b8 tile[64];\nmov.u64 %d2, tile;\ncvta.shared.u64 %d2, %d2;\nld.global.u32 %r1, [%d2];",
            "the address is a generic address of shared memory",
        ),
    ] {
        let fault = fault(body, 32);
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert!(fault.report.contains(part), "{part} is missing in: {}", fault.report);
    }
}

#[test]
fn a_copy_blames_none_that_read_nothing() {
    // Threads 0 to 9 read nothing, from nowhere; threads 20 and 21 are wrong.
    let body = |last: &str| {
        format!(
            ".shared .align 16 .b8 tile[1024];\nmov.u32 %r2, tile;\nmad.lo.u32 %r2, %r0, 16, %r2;\nmov.u64 %d2, %d0;\n\
             setp.lt.u32 %p1, %r0, 10;\nselp.b32 %r3, 0, 8, %p1;\n@%p1 mov.u64 %d2, 0;\nsub.u32 %r4, %r0, 20;\n\
             setp.lt.u32 %p2, %r4, 2;\n@%p2 add.u64 %d2, %d0, 4096;\ncp.async.ca.shared.global [%r2], [%d2], 16{last};"
        )
    };
    for checks in [Checks::default(), Checks { races: true, uninitialised: false }] {
        for (last, bytes) in [(", %p1", 16), (", %r3", 8)] {
            let device = Device::checked(&kernel(&body(last)), checks);
            let out = device.upload(&[0u32; 32]);
            let report = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap_err().report;
            for part in [
                format!("illegal access of {bytes} bytes at {:#x} in global memory", out + 4096),
                "thread (20, 0, 0) and 1 other of its warp\n".to_owned(),
            ] {
                assert!(report.contains(&part), "{part} is missing in: {report}");
            }
        }
    }
}

#[test]
fn a_barrier_that_some_threads_never_reach_tells_where_they_are() {
    let body = "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nsetp.lt.u32 %p2, %r0, 64;\n@%p2 bra B;\nret;\nB:\nbar.sync 1;\n\
                ret;\nA:\nbar.sync 0;";
    assert_eq!(
        fault(body, 96).report,
        "barrier deadlock: not every thread of the block can reach the barrier, in kernel `kernel`\n  \
         at PTX line 22, `bar.sync`\n  \
         block (0, 0, 0), thread (0, 0, 0) and 31 others of its warp\n  \
         32 threads are waiting at PTX line 22, `bar.sync`\n  \
         32 threads are waiting at PTX line 19, `bar.sync`\n  \
         of the block's 96 threads: 32 exited"
    );
}

#[test]
fn a_warp_barrier_tells_which_lanes_are_missing() {
    let body = "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nbar.sync 0;\nret;\nA:\nbar.warp.sync -1;";
    assert_eq!(
        fault(body, 32).report,
        "a warp-level instruction waits for lanes that never reach it, in kernel `kernel`\n  \
         at PTX line 18, `bar.warp.sync`\n  \
         block (0, 0, 0), thread (0, 0, 0) and 15 others of its warp\n  \
         it waits for lanes 0xffff0000 of warp 0\n  \
         16 threads are waiting at PTX line 15, `bar.sync`\n  \
         16 threads are waiting at PTX line 18, `bar.warp.sync`"
    );
}

#[test]
fn an_endless_loop_tells_where_the_others_are() {
    let body = "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nbar.sync 0;\nret;\nA:\nbra A;";
    let mut device = Device::new(&kernel(body));
    device.instructions_max = Some(100_000);
    let out = device.upload(&[0u32; 96]);
    let fault = device.launch("kernel", [1; 3], [96, 1, 1], &[Arg::U64(out)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(
        fault.report,
        "the launch exceeded its instruction limit in kernel `kernel`\n  \
         at PTX line 18, `bra`\n  \
         block (0, 0, 0), thread (0, 0, 0) and 31 others of its warp\n  \
         64 threads are waiting at PTX line 15, `bar.sync`"
    );
}

#[test]
fn traps_count_the_lanes_that_came_to_them() {
    let fault = fault("setp.ge.u32 %p1, %r0, 30;\n@%p1 trap;", 32);
    assert_eq!(
        fault.report,
        "trap in kernel `kernel`\n  at PTX line 14, `trap`\n  \
         block (0, 0, 0), thread (30, 0, 0) and 1 other of its warp"
    );
}

#[test]
fn an_access_between_two_arrays_names_both() {
    let memory = Memory::new(1 << 20).unwrap();
    let (first, second) = (memory.alloc(1000).unwrap(), memory.alloc(400).unwrap());
    let told = |address| memory.check(address, 4).unwrap_err().nearest;
    let before = |bytes| format!("{bytes} bytes before the 400-byte allocation at {second:#x}");
    let past = |bytes| format!("{bytes} bytes past the end of the 1000-byte allocation at {first:#x}");
    assert_eq!(second - first, 1536);
    assert_eq!(told(second - 4), format!("{}, and {}", before(4), past(532)));
    assert_eq!(told(second - 400), format!("{}, and {}", past(136), before(400)));
    assert_eq!(told(first + 1000), format!("directly past the end of the 1000-byte allocation at {first:#x}"));
}
