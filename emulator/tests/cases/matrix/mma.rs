//! `mma.sync` against products computed in Rust.

use super::fragments::*;
use super::{BF16, F16, F32, F64, Format, Numbers, S4, S8, S32, TF32, U4, U8, product, refusal, registers, run};

/// One product: its fragments, the opcode up to the types, and the formats of D, A, B and C.
struct Case<'a> {
    fragments: &'a Fragments,
    opcode: &'a str,
    formats: [Format; 4],
}

/// Returns the registers of a matrix, in words.
fn width(elements: usize, bits: u32) -> usize {
    (elements * bits as usize).div_ceil(32 * 32)
}

/// Returns a body that loads A, B and C, multiplies, and stores D, register by register.
pub fn body(opcode: &str, counts: [usize; 4], wide: bool) -> String {
    let (ty, kind, size) = if wide { ("b64", "d", 8) } else { ("b32", "r", 4) };
    let [d, a, b, c] = counts;
    let starts = if wide { [0, 8, 16, 24] } else { [0, 20, 40, 60] };
    let list = |start: usize, count: usize| registers(start, count).replace("%r", &format!("%{kind}"));
    let mut text = format!("mad.wide.u32 %d62, %r150, {size}, %d60;\nmad.wide.u32 %d63, %r150, {size}, %d61;\n");
    let mut offset = 0;
    for (start, count) in [(starts[1], a), (starts[2], b), (starts[3], c)] {
        for number in start..start + count {
            text += &format!("ld.global.{ty} %{kind}{number}, [%d62+{offset}];\n");
            offset += 32 * size;
        }
    }
    let operands = [(starts[0], d), (starts[1], a), (starts[2], b), (starts[3], c)].map(|(s, n)| list(s, n));
    text += &format!("{opcode} {};\n", operands.join(", "));
    for number in 0..d {
        text += &format!("st.global.{ty} [%d63+{}], %{kind}{};\n", number * 32 * size, starts[0] + number);
    }
    text
}

impl Case<'_> {
    fn sizes(&self) -> [usize; 3] {
        let (m, n, k) = self.fragments.shape;
        [m * k, k * n, m * n]
    }

    /// Runs the instruction; returns the elements of D for those of A, B and C.
    fn run(&self, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
        let (m, n, k) = self.fragments.shape;
        let [fd, fa, fb, fc] = self.formats;
        let Fragments { a: pa, b: pb, c: pc, .. } = self.fragments;
        let mut input = spread(a, k, fa.bits, *pa);
        input.extend(spread(b, n, fb.bits, *pb));
        input.extend(spread(c, n, fc.bits, *pc));
        let wide = fd.bits == 64;
        let words = [(m * n, fd), (m * k, fa), (k * n, fb), (m * n, fc)].map(|(size, f)| width(size, f.bits));
        let counts = if wide { words.map(|words| words / 2) } else { words };
        let opcode = format!("{}.{}.{}.{}.{}", self.opcode, fd.name, fa.name, fb.name, fc.name);
        let mut out = vec![0; words[0] * 32];
        run(&body(&opcode, counts, wide), &input, &mut out).unwrap();
        collect(&out, m, n, fd.bits, *pc)
    }

    /// Checks random elements: small integers, whose products are exact, or fractions.
    fn check(&self, whole: Option<u32>, seed: u64) {
        let mut numbers = Numbers(seed);
        let [fd, fa, fb, fc] = self.formats;
        let [a, b, c] = [(0, fa), (1, fb), (2, fc)].map(|(index, format)| -> Vec<u64> {
            let one = |_| {
                let value = match whole {
                    Some(most) => numbers.whole(most),
                    None => numbers.fraction(),
                };
                let value = if format.name.starts_with('u') { value.abs() } else { value };
                (format.encode)(value)
            };
            (0..self.sizes()[index]).map(one).collect()
        });
        let [x, y, z] = [(&a, fa), (&b, fb), (&c, fc)]
            .map(|(bits, format)| -> Vec<f64> { bits.iter().map(|bits| (format.decode)(*bits)).collect() });
        let expected = product(self.fragments.shape, &x, &y, &z);
        for (index, (got, (want, magnitude))) in self.run(&a, &b, &c).into_iter().zip(expected).enumerate() {
            let got = (fd.decode)(got);
            // Tolerance: half a unit of the result, plus what the sum in f64 loses.
            let unit = match fd.name {
                "f16" => 2f64.powi(-11),
                "f64" => 0.0,
                _ => 2f64.powi(-24),
            };
            let error = if whole.is_some() { 0.0 } else { unit * want.abs() + 2f64.powi(-48) * magnitude };
            assert!((got - want).abs() <= error, "{} element {index}: {got}, not {want}", self.opcode);
        }
    }
}

fn opcode(fragments: &Fragments) -> String {
    let (m, n, k) = fragments.shape;
    format!("mma.sync.aligned.m{m}n{n}k{k}.row.col")
}

fn check(fragments: &Fragments, formats: [Format; 4]) {
    let case = Case { fragments, opcode: &opcode(fragments), formats };
    case.check(Some(if formats[1].bits == 4 { 7 } else { 9 }), 3);
    if formats[0].name != "s32" {
        case.check(None, 4);
    }
}

#[test]
fn halves_multiply_in_both_shapes_and_with_both_accumulators() {
    for fragments in [&M16N8K8_HALF, &M16N8K16_HALF] {
        check(fragments, [F32, F16, F16, F32]);
        check(fragments, [F16, F16, F16, F16]);
        check(fragments, [F32, BF16, BF16, F32]);
    }
}

#[test]
fn of_tf32_only_the_upper_nineteen_bits_count() {
    // The encoding sets all lower bits, which do not count.
    check(&M16N8K4, [F32, TF32, TF32, F32]);
    check(&M16N8K8_WORD, [F32, TF32, TF32, F32]);
}

#[test]
fn doubles_multiply_in_all_shapes() {
    for fragments in [&M8N8K4, &M16N8K4, &M16N8K8_WORD, &M16N8K16_DOUBLE] {
        check(fragments, [F64; 4]);
    }
}

#[test]
fn bytes_of_either_sign_multiply() {
    for fragments in [&M8N8K16, &M16N8K16_BYTE, &M16N8K32_BYTE] {
        for (a, b) in [(U8, U8), (U8, S8), (S8, U8), (S8, S8)] {
            check(fragments, [S32, a, b, S32]);
        }
    }
}

#[test]
fn nibbles_of_either_sign_multiply() {
    for fragments in [&M8N8K32, &M16N8K32_NIBBLE, &M16N8K64] {
        for (a, b) in [(U4, U4), (U4, S4), (S4, U4), (S4, S4)] {
            check(fragments, [S32, a, b, S32]);
        }
    }
}

#[test]
fn eight_bit_floats_multiply() {
    // Multiplies every value of both formats by one; the expected values come from a table made by the formats'
    // definition.
    fn value(bits: u64, exponent_bits: u32, infinite: bool) -> f64 {
        let fraction_bits = 7 - exponent_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let (exponent, fraction) =
            (bits >> fraction_bits & ((1 << exponent_bits) - 1), bits & ((1 << fraction_bits) - 1));
        let part = fraction as f64 / f64::from(1 << fraction_bits);
        let top = (1 << exponent_bits) - 1;
        let magnitude = match exponent {
            0 => part * 2f64.powi(1 - bias),
            e if e == top && infinite => {
                if fraction == 0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            e if e == top && fraction == (1 << fraction_bits) - 1 && !infinite => f64::NAN,
            e => (1.0 + part) * 2f64.powi(e as i32 - bias),
        };
        if bits >> 7 & 1 != 0 { -magnitude } else { magnitude }
    }
    const E4M3: Format = Format { name: "e4m3", bits: 8, encode: |_| 0x38, decode: |bits| value(bits, 4, false) };
    const E5M2: Format = Format { name: "e5m2", bits: 8, encode: |_| 0x3c, decode: |bits| value(bits, 5, true) };
    for (a, one) in [(E4M3, E5M2), (E5M2, E4M3), (E4M3, E4M3), (E5M2, E5M2)] {
        let case = Case { fragments: &M16N8K16_BYTE, opcode: &opcode(&M16N8K16_BYTE), formats: [F32, a, one, F32] };
        // The row of B that meets column 5 of A is one, the others are zero, so a NaN or infinity in A spreads in its
        // row.
        let b: Vec<u64> = (0..128).map(|index| if index / 8 == 5 { (one.encode)(1.0) } else { 0 }).collect();
        for start in (0..256).step_by(16) {
            let left: Vec<u64> = (0..256).map(|index| if index % 16 == 5 { start + index / 16 } else { 0 }).collect();
            let got = case.run(&left, &b, &[0; 128]);
            for (index, got) in got.into_iter().enumerate() {
                let want = (a.decode)(start + index as u64 / 8);
                let got = f64::from(f32::from_bits(got as u32));
                assert!(got == want || got.is_nan() && want.is_nan(), "{} {}: {got}, not {want}", a.name, start);
            }
        }
    }
    let bits = |seed: u64, count: usize| -> Vec<u64> {
        let mut numbers = Numbers(seed);
        // Signs and exponents near one.
        (0..count).map(|_| u64::from(numbers.next() & 0x8f | 0x30)).collect()
    };
    for (fragments, d) in [(&M16N8K16_BYTE, F16), (&M16N8K32_BYTE, F32), (&M16N8K32_BYTE, F16)] {
        let (m, n, k) = fragments.shape;
        let case = Case { fragments, opcode: &opcode(fragments), formats: [d, E4M3, E5M2, d] };
        let (a, b) = (bits(5, m * k), bits(6, k * n));
        let decoded = |bits: &[u64], format: Format| -> Vec<f64> { bits.iter().map(|b| (format.decode)(*b)).collect() };
        let want = product(fragments.shape, &decoded(&a, E4M3), &decoded(&b, E5M2), &vec![0.0; m * n]);
        for (got, (want, magnitude)) in case.run(&a, &b, &vec![0; m * n]).into_iter().zip(want) {
            let got = (d.decode)(got);
            assert!((got - want).abs() <= 2f64.powi(-11) * magnitude, "{got}, not {want}");
        }
    }
}

#[test]
fn bits_are_combined_and_counted() {
    for fragments in [&M8N8K128, &M16N8K128, &M16N8K256] {
        let (m, n, k) = fragments.shape;
        let mut numbers = Numbers(7);
        let a: Vec<u64> = (0..m * k).map(|_| u64::from(numbers.next() & 1)).collect();
        let b: Vec<u64> = (0..k * n).map(|_| u64::from(numbers.next() & 1)).collect();
        let c: Vec<u64> = (0..m * n).map(|_| u64::from(numbers.next())).collect();
        for (op, both) in [("xor", false), ("and", true)] {
            let mut input = spread(&a, k, 1, fragments.a);
            input.extend(spread(&b, n, 1, fragments.b));
            input.extend(spread(&c, n, 32, fragments.c));
            let counts = [m * n / 32, m * k / 1024, k * n / 1024, m * n / 32];
            let opcode = format!("{}.s32.b1.b1.s32.{op}.popc", opcode(fragments));
            let mut out = vec![0; m * n];
            run(&body(&opcode, counts, false), &input, &mut out).unwrap();
            for (index, got) in collect(&out, m, n, 32, fragments.c).into_iter().enumerate() {
                let count = (0..k).filter(|i| {
                    let (x, y) = (a[index / n * k + i], b[i * n + index % n]);
                    if both { x & y == 1 } else { x != y }
                });
                let want = (c[index] as u32).wrapping_add(count.count() as u32);
                assert_eq!(got as u32, want, "{opcode} element {index}");
            }
        }
    }
}

#[test]
fn integer_sums_wrap_or_saturate() {
    let fragments = &M16N8K16_BYTE;
    let most = i32::MAX as u32 as u64;
    let least = i32::MIN as u32 as u64;
    for (saturate, c, sign, want) in [
        ("", most, 1, i32::MIN + 15),
        (".satfinite", most, 1, i32::MAX),
        ("", least, -1, i32::MAX - 15),
        (".satfinite", least, -1, i32::MIN),
        (".satfinite", most, -1, i32::MAX - 16),
        (".satfinite", 5, -1, -11),
    ] {
        let opcode = format!("{}{saturate}", opcode(fragments));
        let case = Case { fragments, opcode: &opcode, formats: [S32, S8, S8, S32] };
        let got = case.run(&[(S8.encode)(f64::from(sign)); 256], &[1; 128], &[c; 128]);
        assert!(got.iter().all(|got| *got as i32 == want), "{saturate} {c}: {:?}, not {want}", got[0] as i32);
    }
}

#[test]
fn doubles_round_at_every_step_in_the_mode_asked_for() {
    // 1 + 2^-60 - 2^-60 and so on: each step is inexact.
    let fragments = &M8N8K4;
    let tiny = 2f64.powi(-60);
    let a: Vec<u64> = (0..32).map(|i| [tiny, -tiny, tiny, tiny][i % 4].to_bits()).collect();
    let up = 1.0 + f64::EPSILON;
    let below = 1.0 - f64::EPSILON / 2.0;
    for (mode, want) in [
        ("", 1.0),
        (".rn", 1.0),
        // Down from 1, and up again to 1.
        (".rz", below),
        (".rm", below),
        (".rp", up + 2.0 * f64::EPSILON),
    ] {
        let opcode = format!("{}{mode}", opcode(fragments));
        let case = Case { fragments, opcode: &opcode, formats: [F64; 4] };
        let got = case.run(&a, &[1f64.to_bits(); 32], &[1f64.to_bits(); 64]);
        assert!(got.iter().all(|bits| f64::from_bits(*bits) == want), "{mode}: {:?}", f64::from_bits(got[0]));
    }
}

#[test]
fn what_is_no_number_spreads_along_its_row_and_column() {
    let fragments = &M16N8K16_HALF;
    let one = 0x3c00;
    for (format, nan) in [(F32, 0x7fff_ffff), (F16, 0x7fff)] {
        let case = Case { fragments, opcode: &opcode(fragments), formats: [format, F16, F16, format] };
        let mut a = vec![one; 256];
        let mut b = vec![one; 128];
        let mut c = vec![0; 128];
        a[3 * 16 + 7] = 0x7e12;
        a[5 * 16 + 2] = 0x7c00;
        // An infinity of opposite sign in one sum, and a zero times infinity.
        a[5 * 16 + 3] = 0xfc00;
        a[6 * 16 + 9] = 0x7c00;
        b[9 * 8 + 4] = 0;
        b[11 * 8 + 1] = 0xfc00;
        c[9 * 8 + 6] = (format.encode)(f64::NEG_INFINITY);
        let got = case.run(&a, &b, &c);
        for (index, got) in got.into_iter().enumerate() {
            let want = match (index / 8, index % 8) {
                (3 | 5, _) | (6, 1 | 4) => nan,
                (6, _) => (format.encode)(f64::INFINITY),
                (_, 1) | (9, 6) => (format.encode)(f64::NEG_INFINITY),
                (_, 4) => (format.encode)(15.0),
                _ => (format.encode)(16.0),
            };
            assert_eq!(got, want, "{} row {} column {}", format.name, index / 8, index % 8);
        }
    }
}

#[test]
fn sums_that_do_not_fit_the_accumulator_are_infinite() {
    let fragments = &M16N8K8_HALF;
    let case = Case { fragments, opcode: &opcode(fragments), formats: [F16, F16, F16, F16] };
    // 8 * 8188 = 65504 is the largest f16; half a unit more becomes infinity.
    let a: Vec<u64> = (0..128).map(|_| (F16.encode)(8188.0)).collect();
    let b = [0x3c00; 64];
    assert!(case.run(&a, &b, &[0; 128]).iter().all(|got| *got == (F16.encode)(65504.0)));
    assert!(case.run(&a, &b, &[(F16.encode)(15.0); 128]).iter().all(|got| *got == (F16.encode)(65504.0)));
    assert!(case.run(&a, &b, &[(F16.encode)(16.0); 128]).iter().all(|got| *got == 0x7c00));
}

#[test]
fn shapes_and_types_that_ptx_does_not_have_are_refused() {
    let refused = |opcode: &str| {
        let message = refusal(&format!("{opcode} {{%r0}}, {{%r1}}, {{%r2}}, {{%r3}};"));
        assert!(message.contains(&format!("unsupported opcode `{opcode}`")), "{opcode}: {message}");
        message
    };
    for opcode in [
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.s32.u8.u4.s32",
        "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32",
        "mma.sync.aligned.m16n8k8.row.col.rz.f32.bf16.bf16.f32",
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32",
        "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f16",
    ] {
        refused(opcode);
    }
    let named = [
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sparse"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sparse"),
        ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "scaled"),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32", "narrower than eight bits"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "warpgroup"),
        ("wgmma.fence.sync.aligned", "warpgroup"),
        ("tcgen05.mma.cta_group::1.kind::f16", "tensor memory"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", "tensor memory"),
    ];
    for (opcode, why) in named {
        let message = refused(opcode);
        assert!(message.contains(why), "{message}");
    }
    let message = refusal("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%r0}, {%r1}, {%r2}, {%r3};");
    assert!(message.contains("expected 2 registers, found 1"), "{message}");
}
