//! Loads, stores and copies in every form: qualifiers, vectors, vector registers, state spaces, special registers.

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::FaultKind;

use super::harness::{Arg, Device, fault, kernel, words};

#[test]
fn every_qualifier_of_a_load_and_a_store_moves_the_same_word() {
    let loads = [
        "ld.global",
        "ld",
        "ld.weak.global",
        "ld.volatile.global",
        "ld.volatile",
        "ld.relaxed.cta.global",
        "ld.relaxed.gpu",
        "ld.relaxed.cluster.global",
        "ld.acquire.sys.global",
        "ld.acquire.gpu",
        "ld.mmio.relaxed.sys.global",
        "ld.global.ca",
        "ld.global.cg",
        "ld.global.cs",
        "ld.global.lu",
        "ld.global.cv",
        "ld.global.nc",
        "ld.global.nc.L1::no_allocate",
        "ld.global.ca.nc",
        "ld.global.L1::evict_last.L2::128B",
        "ld.acquire.gpu.L1::evict_normal",
        "ld.global.L2::64B",
        "ldu.global",
        "ldu",
    ];
    let stores = [
        "st.global",
        "st",
        "st.weak.global",
        "st.volatile.global",
        "st.relaxed.gpu.global",
        "st.release.sys",
        "st.mmio.relaxed.sys.global",
        "st.global.wb",
        "st.global.cg",
        "st.global.cs",
        "st.global.wt",
        "st.global.L1::evict_first",
        "st.release.cta.global.L1::no_allocate",
    ];
    for load in loads {
        let body = format!(
            "st.global.u32 [%d1], %r0;\n{load}.u32 %r1, [%d1];\nadd.u32 %r1, %r1, 7;\nst.global.u32 [%d1], %r1;"
        );
        assert_eq!(words(&body, 32), (7..39).collect::<Vec<_>>(), "{load}");
    }
    for store in stores {
        assert_eq!(words(&format!("{store}.u32 [%d1], %r0;"), 32), (0..32).collect::<Vec<_>>(), "{store}");
    }
    let body = "createpolicy.fractional.L2::evict_first.b64 %d2;\nst.global.L2::cache_hint.u32 [%d1], %r0, %d2;\n\
                ld.global.L1::evict_last.L2::cache_hint.L2::256B.u32 %r1, [%d1].unified, %d2;\nst.global.u32 [%d1+0], %r1;";
    assert_eq!(words(body, 32), (0..32).collect::<Vec<_>>());
    assert!(Device::try_new(&kernel("ld.global.L2::cache_hint.u32 %r1, [%d1];")).is_err());
}

#[test]
fn narrow_elements_are_extended_by_their_sign_into_any_register() {
    // The bytes 0x81 and 0xff, as each type reads them into registers of 16, 32 and 64 bits.
    for (ty, into16, into32, into64) in [
        ("u8", 0x81u64, 0x81u64, 0x81u64),
        ("b8", 0x81, 0x81, 0x81),
        ("s8", 0xff81, 0xffff_ff81, 0xffff_ffff_ffff_ff81),
        ("u16", 0xff81, 0xff81, 0xff81),
        ("b16", 0xff81, 0xff81, 0xff81),
        ("s16", 0xff81, 0xffff_ff81, 0xffff_ffff_ffff_ff81),
        ("s32", 0, 0x8000_ff81, 0xffff_ffff_8000_ff81),
        ("u32", 0, 0x8000_ff81, 0x8000_ff81),
    ] {
        for space in ["global", "shared", "local"] {
            let wide = matches!(ty, "s32" | "u32");
            let narrow = if wide { "mov.u16 %h1, 0;".to_owned() } else { format!("ld.{space}.{ty} %h1, [%d9];") };
            let start = match space {
                "global" => "add.u64 %d9, %d0, 24;",
                "shared" => ".shared .align 8 .b8 v[8];\nmov.u64 %d9, v;",
                _ => ".local .align 8 .b8 v[8];\nmov.u64 %d9, v;",
            };
            let body = format!(
                "{start}\nmov.u32 %r9, 0x8000ff81;\nst.{space}.u32 [%d9], %r9;\n{narrow}\nld.{space}.{ty} %r1, [%d9];\n\
                 ld.{space}.{ty} %d2, [%d9];\ncvt.u64.u16 %d3, %h1;\ncvt.u64.u32 %d4, %r1;\nst.global.u64 [%d0], %d3;\n\
                 st.global.u64 [%d0+8], %d4;\nst.global.u64 [%d0+16], %d2;"
            );
            let device = Device::new(&kernel(&body));
            let out = device.upload(&[0u64; 4]);
            device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
            assert_eq!(device.download::<u64>(out, 3), [into16, into32, into64], "{space}.{ty}");
        }
    }
}

#[test]
fn vector_registers_are_read_and_written_by_part_and_as_a_whole() {
    let body = ".reg .v4 .b32 v;\n.reg .v2 .b32 w<3>;\nld.global.v4.u32 v, [%d0];\nadd.u32 v.x, v.w, v.y;\nmov.b32 w1.x, v.x;\n\
                mov.b32 w1.g, v.b;\nst.global.v2.u32 [%d0+16], w1;\nld.global.v2.u32 {_, w2.y}, [%d0];\nmov.b32 w2.x, 77;\n\
                st.global.v2.u32 [%d0+24], w2;\nred.global.add.v2.f32 [%d0+32], w2;";
    let device = Device::new(&kernel(body));
    let out = device.upload(&[1u32, 20, 300, 4000, 0, 0, 0, 0, 0, 0]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 8), [1, 20, 300, 4000, 4020, 300, 77, 20]);
    for op in ["mov.b32 v.q, 1", "mov.b32 %r1, v", "st.global.v4.u32 [%d0], v", "mov.b32 %r1, v.z", "add.u32 v, v, v"] {
        let error = Device::try_new(&kernel(&format!(".reg .v2 .b32 v;\n{op};"))).unwrap_err();
        assert_eq!(error.line, 14, "{op}: {error}");
    }
}

#[test]
fn the_128_bits_of_a_parameter_are_loaded_at_once() {
    let text = ".version 8.3\n.target sm_80\n.address_size 64\n\
        .func (.param .align 16 .b8 r[16]) turn(.param .align 16 .b8 a[16]) {\n.reg .b128 %q<3>;\n.reg .b64 %d<3>;\n\
        ld.param.b128 %q1, [a];\nmov.b128 {%d1, %d2}, %q1;\nmov.b128 %q2, {%d2, %d1};\nst.param.b128 [r], %q2;\nret;\n}\n\
        .visible .entry kernel(.param .u64 out, .param .align 16 .b8 p[16]) {\n.reg .b128 %q<3>;\n.reg .b64 %d<3>;\n\
        ld.param.u64 %d1, [out];\nld.param.b128 %q1, [p];\n{\n.param .align 16 .b8 a[16];\n.param .align 16 .b8 r[16];\n\
        st.param.b128 [a], %q1;\ncall.uni (r), turn, (a);\nld.param.b128 %q2, [r];\n}\nst.global.b128 [%d1], %q2;\nret;\n}\n";
    let device = Device::new(text);
    let out = device.upload(&[0u64; 2]);
    let mut params = vec![0u8; 32];
    params[..8].copy_from_slice(&out.to_le_bytes());
    params[16..24].copy_from_slice(&0x1234u64.to_le_bytes());
    params[24..].copy_from_slice(&u64::MAX.to_le_bytes());
    device.launch_bytes("kernel", [1; 3], [1; 3], 0, &params).unwrap();
    assert_eq!(device.download::<u64>(out, 2), [u64::MAX, 0x1234]);
}

#[test]
fn wide_accesses_are_aligned_to_their_whole_width() {
    for op in [
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];",
        "ld.global.v2.u32 {%r1, %r2}, [%d0+4];",
        "st.global.v2.u64 [%d0+8], {%d1, %d1};",
        ".reg .b128 %q;\nld.global.b128 %q, [%d0+8];",
        ".reg .b128 %q;\nst.relaxed.gpu.global.b128 [%d0+8], %q;",
        "ld.global.v4.u8 {%r1, %r2, %r3, %r4}, [%d0+2];",
        ".shared .align 16 .b8 s[32];\nmov.u32 %r9, s;\nld.shared.v2.u32 {%r1, %r2}, [%r9+4];",
        ".shared .align 16 .b8 s[32];\nmov.u32 %r9, s;\ncp.async.cg.shared.global [%r9+8], [%d0], 16;",
        ".shared .align 16 .b8 s[32];\nmov.u32 %r9, s;\ncp.async.ca.shared.global [%r9], [%d0+4], 8;",
    ] {
        assert_eq!(fault(op, 8).kind, FaultKind::MisalignedAddress, "{op}");
    }
}

#[test]
fn copies_read_only_what_they_are_told() {
    let body = ".shared .align 16 .b8 s[1024];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r1, %r1, %r2;\n\
                mul.wide.u32 %d2, %r0, 16;\nadd.u64 %d2, %d2, %d0;\nand.b32 %r3, %r0, 3;\nshl.b32 %r3, %r3, 2;\n\
                createpolicy.fractional.L2::evict_first.b64 %d3;\n\
                cp.async.cg.shared::cta.global.L2::cache_hint.L2::128B [%r1], [%d2], 16, %r3, %d3;\ncp.async.wait_all;\n\
                ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];\nst.global.v4.u32 [%d2], {%r4, %r5, %r6, %r7};";
    let device = Device::new(&kernel(body));
    let out = device.upload(&(1..=128u32).collect::<Vec<_>>());
    device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap();
    let expected: Vec<u32> = (0..128).map(|i| if i % 4 < i / 4 % 4 { i + 1 } else { 0 }).collect();
    assert_eq!(device.download::<u32>(out, 128), expected);
    // A source that is ignored need not even be an address.
    let body = ".shared .align 16 .b8 s[1024];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 3;\nadd.u32 %r1, %r1, %r2;\n\
                st.shared.u64 [%r1], -1;\nsetp.ge.u32 %p1, %r0, 8;\nmov.u64 %d2, %d0;\n@%p1 mov.u64 %d2, 0;\n\
                cp.async.ca.shared.global [%r1], [%d2], 8, %p1;\ncp.async.commit_group;\ncp.async.wait_group 0;\n\
                ld.shared.v2.u32 {%r2, %r3}, [%r1];\nadd.u32 %r2, %r2, %r3;\nbar.sync 0;\nst.global.u32 [%d1], %r2;";
    let device = Device::new(&kernel(body));
    let out = device.upload(&[30u32; 16]);
    device.launch("kernel", [1; 3], [16, 1, 1], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 16), (0..16).map(|i| if i < 8 { 60 } else { 0 }).collect::<Vec<u32>>());
}

/// Returns a kernel with one copy, whose operands behind the size are `last`. Thread `i` copies to `16 * i` in `s` from
/// `16 * i` in `out`, and writes the result back there. `%r2` is 16, 8 in thread 1 and 0 in later threads; `%p1` is set
/// in those.
fn partial_copy(last: &str) -> String {
    kernel(&format!(
        ".shared .align 16 .b8 s[512];\nmov.u32 %r1, s;\nmad.lo.u32 %r1, %r0, 16, %r1;\nst.shared.v2.u64 [%r1], {{-1, -1}};\n\
         mul.wide.u32 %d2, %r0, 16;\nadd.u64 %d2, %d2, %d0;\nsetp.gt.u32 %p1, %r0, 1;\nmov.u32 %r2, 16;\n\
         setp.eq.u32 %p2, %r0, 1;\n@%p2 mov.u32 %r2, 8;\n@%p1 mov.u32 %r2, 0;\n\
         cp.async.cg.shared.global [%r1], [%d2], 16{last};\ncp.async.wait_all;\nbar.warp.sync -1;\n\
         setp.ne.u32 %p3, %r0, 0;\n@%p3 ret;\nld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r1+16];\n\
         st.global.v4.u32 [%d0], {{%r4, %r5, %r6, %r7}};\nld.shared.v2.u32 {{%r4, %r5}}, [%r1+32];\n\
         st.global.v2.u32 [%d0+16], {{%r4, %r5}};"
    ))
}

#[test]
fn copies_of_a_part_end_with_their_source() {
    for checks in [Checks::default(), Checks { races: true, uninitialised: true }] {
        let launch = |last: &str, words: u32| {
            let device = Device::checked(&partial_copy(last), checks);
            let out = device.upload(&(1..=words).collect::<Vec<_>>());
            let done = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]);
            done.map(|()| device.download::<u32>(out, 6))
                .map_err(|fault| fault.report.replace(&format!("{out:#x}"), "OUT"))
        };
        // The source has 24 bytes, and thread 1 reads 8 of the 16 that it writes.
        assert_eq!(launch(", %r2", 6), Ok(vec![5, 6, 0, 0, 0, 0]));
        let report = launch(", %r2", 5).unwrap_err();
        for part in [
            "illegal access of 8 bytes at ",
            "block (0, 0, 0), thread (1, 0, 0)\n",
            "16 bytes into the 20-byte allocation at OUT, with 4 bytes past its end",
        ] {
            assert!(report.contains(part), "{part} is missing in: {report}");
        }
        // The others read all 16 bytes.
        let report = launch(", %p1", 6).unwrap_err();
        assert!(report.contains("illegal access of 16 bytes at ") && report.contains("thread (1, 0, 0)\n"), "{report}");
    }
}

#[test]
fn parts_of_copies_are_aligned_to_the_whole() {
    let device = Device::new(&partial_copy(", %r2"));
    let out = device.upload(&[0u32; 128]);
    let report = device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out + 8)]).unwrap_err().report;
    for part in ["misaligned access of 16 bytes at ", "thread (0, 0, 0) and 1 other of its warp\n"] {
        assert!(report.contains(part), "{part} is missing in: {report}");
    }
}

#[test]
fn fences_of_every_form_are_taken() {
    let fences = [
        "membar.cta",
        "membar.gl",
        "membar.sys",
        "membar.proxy.alias",
        "fence.cta",
        "fence.sc.gpu",
        "fence.acq_rel.sys",
        "fence.acquire.cluster",
        "fence.release.cta",
        "fence.proxy.alias",
        "fence.proxy.async",
        "fence.proxy.async.global",
        "fence.proxy.async.shared::cta",
        "fence.mbarrier_init.release.cluster",
        "fence.acquire.sync_restrict::shared::cluster.cluster",
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
        "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
        "prefetch.local.L2 [%d1]",
    ];
    for fence in fences {
        let body = format!("{fence};\nst.global.u32 [%d1], %r0;");
        assert_eq!(words(&body, 32), (0..32).collect::<Vec<_>>(), "{fence}");
    }
}

#[test]
fn special_registers_of_a_cluster_of_one_and_of_sizes() {
    let read = |name: &str| {
        let body = format!("mov.u32 %r1, {name};\nst.global.u32 [%d1], %r1;");
        let device = Device::new(&kernel(&format!(".shared .align 16 .b8 s[48];\nst.shared.u32 [s], 0;\n{body}")));
        let out = device.upload(&[9u32; 32]);
        let params = device.params("kernel", &[Arg::U64(out)]);
        device.launch_bytes("kernel", [1, 3, 2], [4, 2, 4], 100, &params).unwrap();
        device.download::<u32>(out, 1)[0]
    };
    for (name, expected) in [
        ("%ntid.y", 2),
        ("%nctaid.y", 3),
        ("%tid.w", 0),
        ("%nctaid.w", 0),
        ("%nclusterid.y", 3),
        ("%nclusterid.z", 2),
        ("%cluster_ctaid.y", 0),
        ("%cluster_nctaid.z", 1),
        ("%cluster_ctarank", 0),
        ("%cluster_nctarank", 1),
        ("%nwarpid", 1),
        ("%dynamic_smem_size", 100),
        ("%total_smem_size", 148),
        ("%aggr_smem_size", 148),
        // A text that names this register has the region, in front of its own variables.
        ("%reserved_smem_offset_begin", 0),
        ("%reserved_smem_offset_end", 512),
        ("%reserved_smem_offset_cap", 512),
        ("%reserved_smem_offset_1", 0),
    ] {
        assert_eq!(read(name), expected, "{name}");
    }
    let body = "mov.u64 %d2, %current_graph_exec;\ncvt.u32.u64 %r1, %d2;\nmov.pred %p1, %is_explicit_cluster;\n\
                @%p1 add.u32 %r1, %r1, 1;\nmov.u32 %r2, %clusterid.x;\nadd.u32 %r1, %r1, %r2;\nst.global.u32 [%d1], %r1;";
    assert_eq!(words(body, 32), [0; 32]);
    for name in ["%pm0", "%tid", "%smid.x", "%clusterid.q", "%warpsize"] {
        let error = Device::try_new(&kernel(&format!("mov.u32 %r1, {name};"))).unwrap_err();
        assert_eq!(error.line, 13, "{name}: {error}");
    }
}

#[test]
fn the_timer_goes_on_from_launch_to_launch() {
    let device = Device::new(&kernel("mov.u64 %d2, %globaltimer;\nst.global.u64 [%d0], %d2;\nmov.u32 %r1, %clock_hi;"));
    let out = device.upload(&[0u64; 4]);
    let mut last = 0;
    for _ in 0..20 {
        device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
        let now = device.download::<u64>(out, 1)[0];
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
}

#[test]
fn addresses_in_a_cluster_of_one_stay_what_they_are() {
    let body = ".shared .u32 s[32];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r1, %r1, %r2;\n\
                mapa.shared::cluster.u32 %r3, %r1, 0;\nst.shared::cluster.u32 [%r3], %r0;\ncvt.u64.u32 %d2, %r1;\n\
                cvta.shared::cluster.u64 %d2, %d2;\nmapa.u64 %d3, %d2, 0;\natom.add.u32 %r4, [%d3], 5;\n\
                isspacep.shared::cluster %p1, %d3;\ngetctarank.u64 %r5, %d3;\nld.shared::cta.u32 %r6, [%r1];\n\
                @%p1 add.u32 %r6, %r6, 100;\nadd.u32 %r6, %r6, %r5;\nred.shared::cluster.add.u32 [%r3], 1000;\n\
                ld.shared.u32 %r7, [%r1];\nadd.u32 %r6, %r6, %r7;\nst.global.u32 [%d1], %r6;";
    assert_eq!(words(body, 32), (0..32).map(|i| i + 5 + 100 + i + 1005).collect::<Vec<u32>>());
    // There is no block of another rank.
    for op in [
        "mapa.shared::cluster.u32 %r3, %r1, 1;\nld.shared::cluster.u32 %r4, [%r3];",
        "mov.u64 %d2, s;\ncvta.shared.u64 %d2, %d2;\nmapa.u64 %d3, %d2, 1;\nld.u32 %r4, [%d3];",
    ] {
        let fault = fault(&format!(".shared .u32 s[32];\nmov.u32 %r1, s;\n{op}"), 32);
        assert_eq!(fault.kind, FaultKind::IllegalAddress, "{op}");
    }
}
