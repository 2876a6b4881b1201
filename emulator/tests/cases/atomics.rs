//! Atomic operations: every function and type, their results, and concurrent updates by blocks that run in parallel.

use gpufleet_emulator::fault::FaultKind;
use half::{bf16, f16};

use super::harness::{Arg, Device, fault, kernel, words};

/// Runs `op` once on memory with the value `start`, with `%d2` and `%d3` set to the operands. Returns the result in
/// `%d4` and the value in memory.
fn once(space: &str, op: &str, start: u64, b: u64, c: u64) -> (u64, u64) {
    let address = if space == "shared" { "s" } else { "%d0+16" };
    let body = format!(
        ".shared .align 16 .b8 s[16];\nmov.u64 %d2, {b};\nmov.u64 %d3, {c};\nmov.u64 %d4, 0;\nmov.u64 %d5, {start};\n\
         cvt.u32.u64 %r2, %d2;\ncvt.u32.u64 %r3, %d3;\nmov.u32 %r4, 0;\ncvt.u16.u64 %h2, %d2;\ncvt.u16.u64 %h3, %d3;\n\
         mov.u16 %h4, 0;\nst.{space}.u64 [{address}], %d5;\n{};\ncvt.u64.u32 %d6, %r4;\nor.b64 %d4, %d4, %d6;\n\
         cvt.u64.u16 %d6, %h4;\nor.b64 %d4, %d4, %d6;\nst.global.u64 [%d0], %d4;\nld.{space}.u64 %d4, [{address}];\n\
         st.global.u64 [%d0+8], %d4;",
        op.replace("[a]", &format!("[{address}]"))
    );
    let device = Device::new(&kernel(&body));
    let out = device.upload(&[0u64; 4]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    let got = device.download::<u64>(out, 2);
    (got[0], got[1])
}

/// Checks both state spaces, and `red` in addition to `atom`: the old value and the new one.
fn check(op: &str, ty: &str, start: u64, b: u64, expected: u64) {
    let register = match ty {
        "u64" | "s64" | "b64" | "f64" => "%d",
        "f16" | "bf16" | "b16" => "%h",
        _ => "%r",
    };
    for space in ["global", "shared"] {
        let atom = format!("atom.{space}.{op}.{ty} {register}4, [a], {register}2");
        assert_eq!(once(space, &atom, start, b, 0), (start, expected), "{atom}");
        if op != "exch" {
            let red = format!("red.{space}.{op}.{ty} [a], {register}2");
            assert_eq!(once(space, &red, start, b, 0), (0, expected), "{red}");
        }
    }
}

#[test]
fn integers_are_counted_compared_and_wrapped() {
    let (min32, min64) = (i64::from(i32::MIN) as u64 & 0xffff_ffff, i64::MIN as u64);
    for (op, ty, start, b, expected) in [
        ("add", "u32", 0xffff_ffff, 2, 1),
        ("add", "s32", 5, 0xffff_fff0, 0xffff_fff5),
        ("add", "u64", u64::MAX, 2, 1),
        ("and", "b32", 0xff00_ff00, 0x0ff0_0ff0, 0x0f00_0f00),
        ("or", "b32", 0xff00_ff00, 0x0ff0_0ff0, 0xfff0_fff0),
        ("xor", "b32", 0xff00_ff00, 0x0ff0_0ff0, 0xf0f0_f0f0),
        ("and", "b64", u64::MAX, 1 << 63, 1 << 63),
        ("or", "b64", 1, 1 << 63, 1 << 63 | 1),
        ("xor", "b64", u64::MAX, 1 << 63, u64::MAX >> 1),
        ("exch", "b32", 7, 9, 9),
        ("exch", "b64", 7, u64::MAX, u64::MAX),
        ("min", "s32", 5, min32, min32),
        ("max", "s32", 5, min32, 5),
        ("min", "u32", 5, min32, 5),
        ("max", "u32", 5, min32, min32),
        ("min", "s64", 5, min64, min64),
        ("max", "s64", 5, min64, 5),
        ("min", "u64", 5, min64, 5),
        ("max", "u64", 5, min64, min64),
        ("inc", "u32", 9, 9, 0),
        ("inc", "u32", 8, 9, 9),
        ("inc", "u32", 0xffff_ffff, 0xffff_ffff, 0),
        ("dec", "u32", 0, 9, 9),
        ("dec", "u32", 10, 9, 9),
        ("dec", "u32", 9, 9, 8),
    ] {
        check(op, ty, start, b, expected);
    }
}

#[test]
fn compare_and_swap_writes_where_it_found_what_it_expected() {
    for space in ["global", "shared"] {
        for (ty, r, mask) in [("b16", "%h", 0xffffu64), ("b32", "%r", 0xffff_ffff), ("b64", "%d", u64::MAX)] {
            let op = format!("atom.{space}.cas.{ty} {r}4, [a], {r}2, {r}3");
            let start = 0x8877_6655_4433_2211;
            let (found, kept) = (start & mask, start & !mask);
            let wanted = 0x0102_0304_0506_0708 & mask;
            assert_eq!(once(space, &op, start, found, wanted), (found, kept | wanted), "{op}");
            assert_eq!(once(space, &op, start, found ^ 1, wanted), (found, start), "{op}");
        }
    }
}

#[test]
fn floats_are_added_with_one_rounding() {
    let sum = |a: f32, b: f32| (a.to_bits().into(), b.to_bits().into(), (a + b).to_bits().into());
    for (a, b) in [(1.0, 2.5), (1e30, -1e30), (f32::INFINITY, -1.0), (16_777_216.0, 1.0), (-0.0, -0.0)] {
        let (start, b, expected) = sum(a, b);
        check("add", "f32", start, b, expected);
    }
    check("add", "f32", f32::INFINITY.to_bits().into(), f32::NEG_INFINITY.to_bits().into(), 0x7fff_ffff);
    check("add", "f64", 1.0f64.to_bits(), 1e-300f64.to_bits(), 1.0f64.to_bits());
    check("add", "f64", 5e-324f64.to_bits(), 5e-324f64.to_bits(), 1e-323f64.to_bits());
}

#[test]
fn small_numbers_are_flushed_in_global_memory_and_kept_in_shared() {
    // PTX: atom.add.f32 on global memory flushes subnormal inputs and results to zero of their sign.
    let (tiny, least) = (1u64, u64::from(f32::MIN_POSITIVE.to_bits()));
    let negative = 0x8000_0000;
    for (start, b, global, shared) in [
        (tiny, tiny, 0, 2),
        (least, tiny, least, least + 1),
        (least + 1, least | negative, 0, 1),
        (tiny | negative, negative, negative, tiny | negative),
    ] {
        for (space, expected) in [("global", global), ("shared", shared)] {
            let op = format!("atom.{space}.add.f32 %r4, [a], %r2");
            assert_eq!(once(space, &op, start, b, 0), (start, expected), "{op} {start:#x} {b:#x}");
        }
        // A generic address is global or shared, depending on its value.
        let generic = "mov.u64 %d7, s;\ncvta.shared.u64 %d7, %d7;\natom.add.f32 %r4, [%d7], %r2";
        assert_eq!(once("shared", generic, start, b, 0), (start, shared));
        assert_eq!(once("global", "atom.add.f32 %r4, [a], %r2", start, b, 0), (start, global));
    }
}

#[test]
fn halves_are_added_each_for_itself_and_never_flushed() {
    let half = |value: f32| u64::from(f16::from_f32(value).to_bits());
    let brain = |value: f32| u64::from(bf16::from_f32(value).to_bits());
    check("add.noftz", "f16", half(1.5), half(2.25), half(3.75));
    check("add.noftz", "f16", 1, 1, 2);
    check("add.noftz", "bf16", brain(1.5), brain(2.25), brain(3.75));
    check("add.noftz", "bf16", 1, 1, 2);
    check("add.noftz", "f16x2", half(1.0) | half(-3.0) << 16, half(2.0) | half(3.5) << 16, half(3.0) | half(0.5) << 16);
    check(
        "add.noftz",
        "bf16x2",
        brain(1.0) | brain(-3.0) << 16,
        brain(2.0) | brain(3.5) << 16,
        brain(3.0) | brain(0.5) << 16,
    );
    // 65504 is the largest f16; more than half a step above it becomes infinity.
    check("add.noftz", "f16", half(65504.0), half(16.0), half(f32::INFINITY));
    check("add.noftz", "f16", half(f32::INFINITY), half(f32::NEG_INFINITY), 0x7fff);
}

#[test]
fn vectors_work_on_each_element() {
    // Returns the two elements before; the operands are swapped to show that all are read before any is written.
    let body = "mov.b32 %r1, 0f3f800000;\nmov.b32 %r2, 0f40000000;\n\
                st.global.v2.u32 [%d0], {%r1, %r2};\natom.global.gpu.relaxed.add.v2.f32 {%r2, %r1}, [%d0], {%r1, %r2};\n\
                st.global.v2.u32 [%d0+8], {%r2, %r1};\nred.global.v4.f32.add [%d0+16], {%r1, %r1, %r2, %r2};";
    let floats = |words: &[u32]| words.iter().map(|word| f32::from_bits(*word)).collect::<Vec<_>>();
    let device = Device::new(&kernel(body));
    let out = device.upload(&[0u32; 8]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(floats(&device.download::<u32>(out, 8)), [2.0, 4.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0]);

    let body = "ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%d0+8];\n\
                atom.global.max.noftz.v4.f16 {%h5, _, %h6, _}, [%d0], {%h1, %h2, %h3, %h4};\n\
                st.global.v2.u16 [%d0+16], {%h5, %h6};\n\
                ld.global.v2.u32 {%r1, %r2}, [%d0+32];\nred.global.min.noftz.v2.bf16x2 [%d0+24], {%r1, %r2};\n\
                ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%d0+56];\nld.global.v4.u16 {%h5, %h6, %h7, %h8}, [%d0+64];\n\
                red.global.add.noftz.v8.f16 [%d0+48], {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8};";
    let device = Device::new(&kernel(body));
    let h = |v: f32| f16::from_f32(v).to_bits();
    let b = |v: f32| bf16::from_f32(v).to_bits();
    let nan = 0x7e00;
    let mut memory = vec![0u16; 48];
    memory[..8].copy_from_slice(&[h(1.0), h(-2.0), nan, h(-0.0), h(0.5), h(-1.0), h(3.0), h(0.0)]);
    memory[12..20].copy_from_slice(&[b(1.0), b(-2.0), b(0.0), b(8.0), b(0.5), b(5.0), b(-0.0), b(9.0)]);
    for index in 0..4 {
        memory[24 + index] = h(index as f32);
        memory[28 + index] = h(10.0 + index as f32);
        memory[32 + index] = h(100.0 + index as f32);
    }
    let out = device.upload(&memory);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    let got = device.download::<u16>(out, 48);
    assert_eq!(got[..4], [h(1.0), h(-1.0), h(3.0), h(0.0)], "a number wins over NaN, and zero over minus zero");
    assert_eq!(got[8..10], [h(1.0), nan]);
    assert_eq!(got[12..16], [b(0.5), b(-2.0), b(-0.0), b(8.0)]);
    // The eight begin as 0 1 2 3 10 11 12 13, and the operands are 10 11 12 13 100 101 102 103.
    let sums: Vec<u16> = [10.0, 12.0, 14.0, 16.0, 110.0, 112.0, 114.0, 116.0].map(h).into();
    assert_eq!(got[24..32], sums);
}

#[test]
fn a_register_of_128_bits_is_swapped_as_one() {
    let body = ".reg .b128 %q<6>;\n.shared .align 16 .b8 s[16];\nld.global.b128 %q1, [%d0];\nld.global.v2.b64 {%d2, %d3}, [%d0+16];\n\
                mov.b128 %q2, {%d2, %d3};\natom.global.cas.b128 %q3, [%d0], %q1, %q2;\nst.global.b128 [%d0+32], %q3;\n\
                atom.global.cas.b128 %q3, [%d0], %q1, %q1;\nst.global.b128 [%d0+48], %q3;\n\
                mov.b128 %q4, %q1;\nst.shared.b128 [s], %q2;\natom.shared.exch.b128 %q5, [s], %q4;\nst.global.b128 [%d0+64], %q5;\n\
                ld.shared.b128 %q5, [s];\nst.release.gpu.global.b128 [%d0+80], %q5;\nld.relaxed.sys.global.b128 %q5, [%d0+80];\n\
                mov.b128 {%d4, %d5}, %q5;\nmov.b128 %q5, {%d5, %d4};\nst.global.b128 [%d0+96], %q5;";
    let device = Device::new(&kernel(body));
    let (a, b) = ([0x1111_2222_3333_4444u64, 0x5555_6666_7777_8888], [u64::MAX, 1]);
    let out = device.upload(&[a[0], a[1], b[0], b[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    let got = device.download::<u64>(out, 14);
    let expected = [b, b, a, b, b, a, [a[1], a[0]]];
    assert_eq!(got, expected.as_flattened());
}

/// Runs `body` in many blocks on two threads; returns `count` values from `out`.
fn contended<T: Copy + Default>(body: &str, values: &[T], count: usize) -> Vec<T> {
    let mut device = Device::new(&kernel(body));
    device.threads = 2;
    let out = device.upload(values);
    device.launch("kernel", [64, 1, 1], [256, 1, 1], &[Arg::U64(out)]).unwrap();
    device.download(out, count)
}

const THREADS: u32 = 64 * 256;

#[test]
fn nothing_is_lost_among_blocks_at_the_same_time() {
    let got = contended::<u32>("red.global.add.u32 [%d0], 3;\natom.inc.u32 %r1, [%d0+4], 1000;", &[0, 0], 2);
    assert_eq!(got, [3 * THREADS, THREADS % 1001]);
    let got = contended::<u64>("mov.u64 %d2, 5000000000;\nred.add.u64 [%d0], %d2;", &[0], 1);
    assert_eq!(got, [5_000_000_000 * u64::from(THREADS)]);
    let got = contended::<f32>("red.global.add.f32 [%d0], 0f3F800000;", &[0.0], 1);
    assert_eq!(got, [THREADS as f32]);
    let got = contended::<f64>("mov.f64 %d2, 0d3FF0000000000000;\nred.global.add.f64 [%d0], %d2;", &[0.0], 1);
    assert_eq!(got, [f64::from(THREADS)]);
    // 16 threads of each block add to both halves of a word, as often as f16 counts exactly.
    let body = "and.b32 %r1, %r0, 255;\nsetp.lt.u32 %p1, %r1, 16;\n@!%p1 exit;\nmov.b32 %r2, 0x40003c00;\n\
                red.global.add.noftz.f16x2 [%d0], %r2;";
    let got = contended::<u16>(body, &[0, 0], 2);
    assert_eq!(got.iter().map(|bits| f16::from_bits(*bits).to_f32()).collect::<Vec<_>>(), [1024.0, 2048.0]);
}

#[test]
fn swaps_of_16_and_128_bits_are_whole() {
    // Odd threads count in the upper half of a word, even ones in the lower; neither may disturb the other.
    let body = "and.b32 %r1, %r0, 1;\nmad.wide.u32 %d2, %r1, 2, %d0;\nld.relaxed.gpu.global.u16 %h1, [%d2];\nAGAIN:\n\
                add.u16 %h2, %h1, 3;\natom.global.acquire.gpu.cas.b16 %h3, [%d2], %h1, %h2;\nsetp.ne.u16 %p1, %h3, %h1;\n\
                mov.u16 %h1, %h3;\n@%p1 bra AGAIN;";
    assert_eq!(contended::<u16>(body, &[0, 5], 2), [3 * 8192, 3 * 8192 + 5]);
    // Each thread adds 1 to the lower and 3 to the upper half at once; the check would see a torn value.
    let body = ".reg .b128 %q<4>;\nld.relaxed.gpu.global.b128 %q1, [%d0];\nAGAIN:\nmov.b128 {%d2, %d3}, %q1;\n\
                mul.lo.u64 %d4, %d2, 3;\nsetp.ne.u64 %p1, %d4, %d3;\n@%p1 trap;\nadd.u64 %d2, %d2, 1;\nadd.u64 %d3, %d3, 3;\n\
                mov.b128 %q2, {%d2, %d3};\natom.global.cas.b128 %q3, [%d0], %q1, %q2;\nmov.b128 {%d2, %d3}, %q3;\n\
                mov.b128 {%d4, %d5}, %q1;\nsetp.ne.u64 %p1, %d2, %d4;\nmov.b128 %q1, %q3;\n@%p1 bra AGAIN;";
    assert_eq!(contended::<u64>(body, &[0, 0], 2), [u64::from(THREADS), 3 * u64::from(THREADS)]);
}

#[test]
fn misaligned_atomics_are_faults() {
    for op in [
        "atom.global.add.u32 %r1, [%d0+2], 1;",
        "atom.global.add.u64 %d2, [%d0+4], %d3;",
        "mov.u16 %h1, 0;\natom.global.cas.b16 %h2, [%d0+1], %h1, %h1;",
        "red.global.add.v2.f32 [%d0+4], {%r1, %r1};",
        ".reg .b128 %q<2>;\natom.global.exch.b128 %q1, [%d0+8], %q1;",
        "red.global.add.noftz.v8.f16 [%d0+8], {%h1, %h1, %h1, %h1, %h1, %h1, %h1, %h1};",
    ] {
        assert_eq!(fault(op, 32).kind, FaultKind::MisalignedAddress, "{op}");
    }
    // A vector that begins inside an allocation and ends outside it changes nothing.
    let device = Device::new(&kernel("red.global.add.v4.f32 [%d0+16], {%r1, %r1, %r1, %r1};"));
    let out = device.upload(&[7u32; 6]);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!(device.download::<u32>(out, 6), [7; 6]);
}

#[test]
fn orders_scopes_and_policies_are_taken() {
    let body = "createpolicy.fractional.L2::evict_last.b64 %d2, 0.5;\n\
                createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %d3, [%d0], 64, 128;\n\
                createpolicy.cvt.L2.b64 %d3, %d2;\nmov.u32 %r2, 0;\nst.global.u32 [%d1], %r2;\n\
                atom.acq_rel.gpu.global.add.L2::cache_hint.u32 %r2, [%d1], 1, %d2;\natom.relaxed.sys.add.u32 %r2, [%d1], 1;\n\
                atom.release.cta.add.u32 %r2, [%d1], 1;\natom.cluster.add.u32 %r2, [%d1], 1;\n\
                red.release.cluster.global.add.L2::cache_hint.u32 [%d1], 1, %d2;\natom.global.or.b32 _, [%d1], 0x100;";
    assert_eq!(words(body, 32), [0x105; 32]);
}
