//! Errors of loading a module, and that loading never panics.

use std::sync::Arc;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, LoadError, LoadErrorKind, Module};
use proptest::prelude::{any, prop, proptest};

use super::harness::{PROGRAMS, kernel, words};

fn load(text: &str) -> Result<Module, LoadError> {
    let memory = Arc::new(Memory::new(1 << 24).unwrap());
    Module::load(text, &memory, ComputeCapability { major: 8, minor: 0 })
}

fn refused(text: &str) -> LoadError {
    load(text).expect_err("such a text is refused")
}

#[test]
fn an_unknown_opcode_is_named_with_its_line() {
    let error = refused(&kernel("nop_of_tomorrow.sync.b32 %r1, %r2;"));
    assert_eq!(error.to_string(), "line 13: unsupported opcode `nop_of_tomorrow.sync.b32`");
    assert_eq!(error.kind, LoadErrorKind::UnsupportedOpcode);
}

#[test]
fn what_exceeds_a_limit_of_every_device_is_refused_with_the_limit() {
    let shared = |count| format!(".shared .align 4 .b8 s[{count}];\nmov.u32 %r1, s;\nst.global.u32 [%d1], %r1;");
    assert!(load(&kernel(&shared(48 << 10))).is_ok());
    let error = refused(&kernel(&shared(60_000)));
    assert!(error.message.contains("kernel `kernel` uses 60000 bytes of static shared memory"), "{error}");
    assert!(error.message.contains("48 KiB"), "{error}");
    assert_eq!(error.line, 4);
    // A kernel counts only the variables of a text that it uses, directly or through functions.
    let declared = |body: &str| {
        let text = kernel(body);
        let shared = ".shared .align 4 .b8 a[30000];\n.shared .align 4 .b8 b[30000];\n\
                      .func f() {\n.reg .b32 %r<2>;\nmov.u32 %r1, b;\nst.shared.u32 [b], %r1;\nret;\n}\n.visible .entry";
        text.replacen(".visible .entry", shared, 1)
    };
    assert!(load(&declared("st.shared.u32 [a], %r0;")).is_ok());
    assert!(load(&declared("call f, ();")).is_ok());
    let error = refused(&declared("st.shared.u32 [a], %r0;\ncall f, ();"));
    assert!(error.message.contains("60000 bytes of static shared memory"), "{error}");

    let constant = |bytes| kernel("").replacen(".visible", &format!(".const .align 4 .b8 c[{bytes}];\n.visible"), 1);
    assert!(load(&constant(64 << 10)).is_ok());
    let error = refused(&constant(70_000));
    assert!(error.message.contains("the constants take 70000 bytes") && error.message.contains("64 KiB"), "{error}");

    let params = |version: &str, bytes| {
        let text = kernel("").replacen("(.param .u64 out)", &format!("(.param .u64 out, .param .b8 p[{bytes}])"), 1);
        text.replacen("7.8", version, 1)
    };
    assert!(load(&params("8.0", 4352 - 8)).is_ok());
    assert!(load(&params("8.1", 5000)).is_ok());
    for (version, bytes, limit) in [("8.0", 5000, "4352"), ("8.1", 40_000, "32764")] {
        let error = refused(&params(version, bytes));
        assert!(error.message.contains("too many parameters") && error.message.contains(limit), "{error}");
    }
}

#[test]
fn an_unknown_modifier_is_never_ignored() {
    for op in [
        "add.relu.s32 %r1, %r1, %r1",
        "tex.2d.v4.f32.s32.trap {%r1, %r2, %r3, %r4}, [%d1, {%r1, %r2}]",
        "mma.sync.aligned.m8n8k8.row.col.f16.f16.f16.f16 {%r1}, {%r2}, {%r3}, {%r4}",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%d1], 16, [%r2], %h1",
        "ld.relaxed.global.u32 %r1, [%d1]",
        "ld.global.gpu.u32 %r1, [%d1]",
        "ld.volatile.global.ca.u32 %r1, [%d1]",
        "ld.mmio.relaxed.gpu.global.u32 %r1, [%d1]",
        "ld.relaxed.gpu.local.u32 %r1, [%d1]",
        "ld.global.L2::evict_last.u32 %r1, [%d1]",
        "ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1]",
        "ld.global.v4.b64 {%d1, %d2, %d3, %d4}, [%d1]",
        "ld.global.f16 %h1, [%d1]",
        "ld.shared.nc.u32 %r1, [%d1]",
        "ldu.shared.u32 %r1, [%d1]",
        "ldu.volatile.global.u32 %r1, [%d1]",
        "st.const.u32 [%d1], %r1",
        "st.global.ca.u32 [%d1], %r1",
        "st.async.u32 [%d1], %r1",
        "atom.exch.b16 %h1, [%d1], %h2",
        "atom.add.s64 %d1, [%d1], %d2",
        "atom.add.f16 %h1, [%d1], %h2",
        "atom.min.noftz.f16 %h1, [%d1], %h2",
        "atom.and.u32 %r1, [%d1], %r2",
        "atom.cas.f32 %r1, [%d1], %r2, %r3",
        "atom.volatile.add.u32 %r1, [%d1], %r2",
        "atom.local.add.u32 %r1, [%d1], %r2",
        "atom.const.add.u32 %r1, [%d1], %r2",
        "atom.shared.add.v2.f32 {%r1, %r2}, [%d1], {%r3, %r4}",
        "atom.add.v8.f32 {%r1, %r2}, [%d1], {%r3, %r4}",
        "atom.add.v2.u32 {%r1, %r2}, [%d1], {%r3, %r4}",
        "red.exch.b32 [%d1], %r1",
        "red.async.relaxed.cluster.global.add.u32 [%d1], %r1, [%d2]",
        "multimem.red.global.add.u32 [%d1], %r1",
        "fence.sc",
        "fence.proxy.tensormap::generic.release.gpu",
        "fence.acquire.sync_restrict::shared::cta.cluster",
        "fence.release.sync_restrict::shared::cluster.cluster",
        "fence.acquire.sync_restrict::shared::cluster.gpu",
        "fence.proxy.async::generic.release.sync_restrict::shared::cluster.cluster",
        "membar.gpu",
        "membar.proxy.async",
        "cp.async.cg.shared.global [%r1], [%d1], 8",
        "cp.async.ca.shared.global [%r1], [%d1], 12",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r1], 16",
        "redux.sync.min.f32 %r1, %r2, -1",
        "shfl.up.b32 %r1, %r2, 1, 0",
        "vote.ballot.b32 %r1, %p1",
        "setmaxnreg.inc.sync.aligned.u32 64",
        "wgmma.fence.sync.aligned",
        "tcgen05.wait::ld.sync.aligned",
        "suld.b.1d.b32.wrap {%r1}, [%d1, {%r2}]",
        "sust.p.1d.b64.trap [%d1, {%r2}], {%d2}",
        "sured.b.add.1d.s64.trap [%d1, {%r2}], %d2",
        "sured.b.xor.1d.b32.trap [%d1, {%r2}], %r1",
        "sured.b.add.a1d.u32.trap [%d1, {%r1, %r2}], %r1",
        "sured.b.add.1d.u32 [%d1, {%r2}], %r1",
        "sured.p.add.1d.u32.trap [%d1, {%r2}], %r1",
        "tensormap.replace.tile.rank.global.b1024.b32 [%d1], 1",
        "mbarrier.arrive.expect_tx.noComplete.shared.b64 %d1, [%r1], 3",
        "mbarrier.arrive.acquire.cta.shared.b64 %d1, [%r1]",
        "mbarrier.init.global.b64 [%d1], 3",
        "mbarrier.init.shared::cluster.b64 [%r1], 3",
        "mbarrier.init.cta.shared.b64 [%r1], 3",
        "mbarrier.inval.shared::cluster.b64 [%r1]",
        "mbarrier.arrive.shared::cluster.b64 %d1, [%r1]",
        "mbarrier.arrive_drop.expect_tx.shared::cluster.b64 %d1, [%r1], 4",
        "mbarrier.arrive.noComplete.shared::cluster.b64 _, [%r1], 1",
        "mbarrier.arrive.noComplete.release.cluster.shared.b64 %d1, [%r1], 1",
        "mbarrier.arrive.noComplete.relaxed.cta.shared.b64 %d1, [%r1], 1",
        "mbarrier.arrive.relaxed.shared.b64 %d1, [%r1]",
        "mbarrier.arrive.cta.shared.b64 %d1, [%r1]",
        "mbarrier.expect_tx.relaxed.shared.b64 [%r1], 4",
        "mbarrier.complete_tx.cta.shared.b64 [%r1], 4",
        "mbarrier.complete_tx.release.cta.shared.b64 [%r1], 4",
        "mbarrier.test_wait.shared::cluster.b64 %p1, [%r1], %d1",
        "mbarrier.test_wait.acquire.shared.b64 %p1, [%r1], %d1",
        "mbarrier.try_wait.cta.shared.b64 %p1, [%r1], %d1",
        "mbarrier.try_wait.release.cta.shared.b64 %p1, [%r1], %d1",
        "mbarrier.pending_count.shared.b64 %r1, %d1",
        "cp.async.mbarrier.arrive.shared::cluster.b64 [%r1]",
        "barrier.cluster.sync",
        "mul.s32 %r1, %r1, %r1",
        "div.f32 %r1, %r1, %r1",
        "cvt.s32.f32 %r1, %r1",
        "fma.f32 %r1, %r1, %r1, %r1",
        "sin.f32 %r1, %r1",
        "add.approx.f32 %r1, %r1, %r1",
        "cvt.f32.s32 %r1, %r1",
        "cvt.f32.f64 %r1, %d1",
        "cvt.rzi.rn.s32.f32 %r1, %r1",
        "cvt.relu.s32.s32 %r1, %r1",
        "cvt.rm.relu.bf16.f32 %h1, %r1",
        "cvt.rn.relu.sat.f16.f32 %h1, %r1",
        "prefetch.global.L3 [%d1]",
        "prefetch.shared.L1 [%d1]",
        "prefetch.const.L1 [%d1]",
        "createpolicy.fractional.global.L2::evict_last.b64 %d1, 0.5",
        "prefetch.tensormap [%d1]",
        "prefetchu.L2 [%d1]",
        "discard.global.L1 [%d1], 128",
        "applypriority.global.L2::evict_last [%d1], 128",
        "nanosleep.s32 %r1",
        "nanosleep.relaxed.u32 %r1",
        "pmevent.all 3",
    ] {
        let error = refused(&kernel(&format!("{op};")));
        assert_eq!((error.line, error.kind), (13, LoadErrorKind::UnsupportedOpcode), "{op}: {error}");
    }
}

#[test]
fn operands_of_the_wrong_size_are_refused() {
    for op in [
        "add.s64 %d1, %r1, %d2",
        "add.s32 %r1, %d1, %r2",
        "mov.pred %p1, %r1",
        "add.s32 %r1, %r2",
        "st.global.u64 [%d1], %r1",
        "cp.async.cg.shared.global [%r1], [%d1], 16, 17",
        "cp.async.ca.shared.global [%r1], [%d1], 4, -1",
        "mbarrier.test_wait.shared.b64 _, [%r1], %d1",
        "createpolicy.fractional.L2::evict_last.b64 %d1, 0.0",
        "createpolicy.fractional.L2::evict_last.b64 %d1, 0f3FC00000",
    ] {
        let error = refused(&kernel(&format!("{op};")));
        assert_eq!((error.line, error.kind), (13, LoadErrorKind::Syntax), "{op}: {error}");
    }
}

#[test]
fn advice_and_pauses_are_taken() {
    let body = "prefetch.global.L2 [%d1];\nprefetch.global.L2::evict_last [%d1+8];\nprefetch.L1 [%d1];\n\
                prefetchu.L1 [%d1];\ndiscard.global.L2 [%d1], 128;\napplypriority.global.L2::evict_normal [%d1], 128;\n\
                pmevent 7;\npmevent.mask 3;\nnanosleep.u32 20;\nst.global.u32 [%d1], %r0;";
    assert_eq!(words(body, 32), (0..32).collect::<Vec<_>>());
    for op in ["discard.global.L2 [%d1], 64", "prefetch.global.L2 %d1", "pmevent %r1", "nanosleep.u32 %d1"] {
        assert_eq!(refused(&kernel(&format!("{op};"))).line, 13, "{op}");
    }
}

#[test]
fn unresolved_names_are_named() {
    for (body, name) in
        [("bra NOWHERE;", "NOWHERE"), ("add.s32 %r1, %r2, %r99;", "%r99"), ("mov.u64 %d1, lost;", "lost")]
    {
        let error = refused(&kernel(body));
        assert_eq!(error.kind, LoadErrorKind::Unresolved);
        assert!(error.message.contains(name), "{error}");
    }
    let text = ".version 7.8\n.target sm_80\n.address_size 64\n.extern .func outside();\n.extern .global .u32 far;\n";
    load(text).unwrap();
    for (used, kind) in [("call outside;", "function `outside`"), ("ld.global.u32 %r1, [far];", "variable `far`")] {
        let text = format!("{text}.visible .entry k()\n{{\n.reg .b32 %r<2>;\n{used}\nret;\n}}\n");
        assert!(refused(&text).message.contains(kind));
    }
}

#[test]
fn a_text_for_a_newer_device_is_refused() {
    let error = refused(".version 8.0\n.target sm_90\n.address_size 64\n");
    assert_eq!((error.line, error.kind), (2, LoadErrorKind::Target));
    assert!(error.message.contains("sm_90"), "{error}");
}

#[test]
fn modules_give_their_memory_back() {
    let memory = Arc::new(Memory::new(1 << 24).unwrap());
    let module = Module::load(PROGRAMS, &memory, ComputeCapability { major: 8, minor: 0 }).unwrap();
    let entry = module.entry("constants").unwrap();
    assert!(memory.info().0 < memory.info().1);
    drop(module);
    assert!(memory.info().0 < memory.info().1, "a kernel keeps the variables of its module");
    drop(entry);
    assert_eq!(memory.info().0, memory.info().1);
}

#[test]
fn every_prefix_of_a_module_is_loaded_or_refused() {
    for end in (0..PROGRAMS.len()).step_by(211).filter(|end| PROGRAMS.is_char_boundary(*end)) {
        let _ = load(&PROGRAMS[..end]);
    }
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn random_text_never_panics(text in "[ -~\n]{0,200}") {
        let _ = load(&text);
        let _ = load(&kernel(&text));
    }

    #[test]
    fn mutated_modules_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..3), 1..6),
    ) {
        let mut bytes = PROGRAMS.as_bytes()[..PROGRAMS.len().min(24_000)].to_vec();
        for (to, from, kind) in edits {
            let (to, from) = (to.index(bytes.len()), from.index(bytes.len()));
            match kind {
                0 => bytes[to] = bytes[from],
                1 => drop(bytes.remove(to)),
                _ => bytes.insert(to, bytes[from]),
            }
        }
        let _ = load(&String::from_utf8_lossy(&bytes));
    }
}
