//! One instruction at a time, over edge values. Every case runs in both builds of the interpreter, with all lanes on
//! and with some, and all have to agree.

use super::harness::{Arg, Device};

/// Where an operand lives: 16, 32 or 64 bits, or a predicate.
#[derive(Clone, Copy, PartialEq)]
enum Reg {
    H,
    R,
    D,
    P,
}

use Reg::{D, H, P, R};

fn name(reg: Reg, letter: &str) -> String {
    match reg {
        H => format!("%h{letter}"),
        R => format!("%r{letter}"),
        D => format!("%d{letter}"),
        P => format!("%p{letter}"),
    }
}

/// The kernel: thread i reads row i of three 64-bit words, applies the instruction, writes the result as 64 bits.
fn text(op: &str, result: Reg, operands: &[Reg]) -> String {
    let mut body = String::new();
    for (index, reg) in operands.iter().enumerate() {
        let letter = ["a", "b", "c"][index];
        body += &format!("ld.global.u64 %d{letter}, [%rd2+{}];\n", index * 8);
        body += &match reg {
            H => format!("cvt.u16.u64 %h{letter}, %d{letter};\n"),
            R => format!("cvt.u32.u64 %r{letter}, %d{letter};\n"),
            P => format!("setp.ne.u64 %p{letter}, %d{letter}, 0;\n"),
            D => String::new(),
        };
    }
    let names: Vec<_> = operands.iter().enumerate().map(|(i, reg)| name(*reg, ["a", "b", "c"][i])).collect();
    body += &format!("{op} {}, {};\n", name(result, "z"), names.join(", "));
    body += match result {
        H => "cvt.u64.u16 %dz, %hz;\n",
        R => "cvt.u64.u32 %dz, %rz;\n",
        P => "selp.u64 %dz, 1, 0, %pz;\n",
        D => "",
    };
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry kernel(.param .u64 in, .param .u64 out, .param .u32 rows) {{\n\
         .reg .pred %p<2>, %pa, %pb, %pc, %pz;\n.reg .b16 %ha, %hb, %hc, %hz;\n\
         .reg .b32 %r<4>, %ra, %rb, %rc, %rz;\n.reg .b64 %rd<5>, %da, %db, %dc, %dz;\n\
         mov.u32 %r0, %tid.x;\nld.param.u32 %r1, [rows];\nsetp.ge.u32 %p0, %r0, %r1;\n@%p0 ret;\n\
         ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n\
         mad.wide.u32 %rd2, %r0, 24, %rd0;\nmad.wide.u32 %rd3, %r0, 8, %rd1;\n\
         {body}st.global.u64 [%rd3], %dz;\nret;\n}}\n"
    )
}

fn run(op: &str, result: Reg, operands: &[Reg], rows: &[[u64; 3]]) -> Vec<u64> {
    let mut device = Device::new(&text(op, result, operands));
    let threads = (rows.len() as u32).next_multiple_of(32);
    let mut padded = rows.to_vec();
    padded.resize(threads as usize, [1; 3]);
    let input = device.upload(&padded);
    let mut answers = Vec::new();
    for vector in [true, false] {
        for on in [threads, rows.len() as u32] {
            device.vector = vector;
            let out = device.upload(&vec![0u64; threads as usize]);
            let args = [Arg::U64(input), Arg::U64(out), Arg::U32(on)];
            device.launch("kernel", [1; 3], [threads, 1, 1], &args).unwrap();
            answers.push(device.download::<u64>(out, rows.len()));
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{op}: the builds disagree: {answers:x?}");
    answers.swap_remove(0)
}

/// Applies an instruction to all triples (pairs, ...) of values and compares with `expect`.
fn check(op: &str, result: Reg, operands: &[Reg], values: &[u64], expect: impl Fn(&[u64]) -> u64) {
    let n = values.len();
    let rows: Vec<[u64; 3]> =
        (0..n.pow(operands.len() as u32)).map(|i| [values[i % n], values[i / n % n], values[i / n / n % n]]).collect();
    for chunk in rows.chunks(1000) {
        for (row, got) in chunk.iter().zip(run(op, result, operands, chunk)) {
            let want = expect(row);
            assert_eq!(got, want, "{op} of {row:x?}: {got:#x}, not {want:#x}");
        }
    }
}

const WORDS: [u64; 9] = [0, 1, 2, 31, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
const DOUBLES: [u64; 7] = [0, 1, 63, 70, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, u64::MAX];
const HALVES: [u64; 6] = [0, 1, 17, 0x7fff, 0x8000, 0xffff];

/// f32 values as bits: zeros, subnormals, the ends, infinities, NaNs.
const SINGLES: [u64; 15] = [
    0,
    0x8000_0000,
    1,
    0x807f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3eaa_aaab,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xc049_0fdb,
    0x4b80_0001,
];

const DOUBLE_FLOATS: [u64; 10] = [
    0,
    0x8000_0000_0000_0000,
    1,
    0x3ff0_0000_0000_0000,
    0xbfd5_5555_5555_5555,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    0x4170_0000_1000_0001,
];

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn single(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

fn double(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

fn word(value: i32) -> u64 {
    (value as u32).into()
}

#[test]
fn integer_arithmetic_wraps() {
    let (a, b) = (|v: &[u64]| v[0] as u32, |v: &[u64]| v[1] as u32);
    check("add.s32", R, &[R, R], &WORDS, |v| a(v).wrapping_add(b(v)).into());
    check("sub.u32", R, &[R, R], &WORDS, |v| a(v).wrapping_sub(b(v)).into());
    check("mul.lo.s32", R, &[R, R], &WORDS, |v| a(v).wrapping_mul(b(v)).into());
    check("mul.hi.u32", R, &[R, R], &WORDS, |v| (v[0] * v[1]) >> 32);
    check("mul.hi.s32", R, &[R, R], &WORDS, |v| {
        ((i64::from(a(v) as i32) * i64::from(b(v) as i32)) >> 32) as u32 as u64
    });
    check("mul.wide.s32", D, &[R, R], &WORDS, |v| (i64::from(a(v) as i32) * i64::from(b(v) as i32)) as u64);
    check("mul.wide.u32", D, &[R, R], &WORDS, |v| v[0] * v[1]);
    check("mul.wide.u16", R, &[H, H], &HALVES, |v| (v[0] * v[1]) & 0xffff_ffff);
    check("add.s64", D, &[D, D], &DOUBLES, |v| v[0].wrapping_add(v[1]));
    check("mul.hi.u64", D, &[D, D], &DOUBLES, |v| ((u128::from(v[0]) * u128::from(v[1])) >> 64) as u64);
    check("mad.lo.s32", R, &[R, R, R], &WORDS, |v| a(v).wrapping_mul(b(v)).wrapping_add(v[2] as u32).into());
    check("sub.s16", H, &[H, H], &HALVES, |v| (v[0] as u16).wrapping_sub(v[1] as u16).into());
    check("add.sat.s32", R, &[R, R], &WORDS, |v| word((a(v) as i32).saturating_add(b(v) as i32)));
    check("neg.s32", R, &[R], &WORDS, |v| word((v[0] as i32).wrapping_neg()));
    check("abs.s32", R, &[R], &WORDS, |v| word((v[0] as i32).wrapping_abs()));
    check("sad.s32", R, &[R, R, R], &WORDS, |v| {
        u64::from((a(v) as i32).abs_diff(b(v) as i32).wrapping_add(v[2] as u32))
    });
    check("min.s32", R, &[R, R], &WORDS, |v| word((a(v) as i32).min(b(v) as i32)));
    check("max.u64", D, &[D, D], &DOUBLES, |v| v[0].max(v[1]));
}

#[test]
fn division_never_traps() {
    check("div.u32", R, &[R, R], &WORDS, |v| v[0].checked_div(v[1]).unwrap_or(0xffff_ffff));
    check("rem.u32", R, &[R, R], &WORDS, |v| v[0].checked_rem(v[1]).unwrap_or(v[0]));
    check("div.s32", R, &[R, R], &WORDS, |v| {
        let (a, b) = (v[0] as i32, v[1] as i32);
        word(if b == 0 { -1 } else { a.wrapping_div(b) })
    });
    check("rem.s64", D, &[D, D], &DOUBLES, |v| {
        let (a, b) = (v[0] as i64, v[1] as i64);
        (if b == 0 { a } else { a.wrapping_rem(b) }) as u64
    });
}

#[test]
fn shifts_beyond_the_width_clamp() {
    check("shl.b32", R, &[R, R], &WORDS, |v| if v[1] < 32 { (v[0] << v[1]) & 0xffff_ffff } else { 0 });
    check("shr.u32", R, &[R, R], &WORDS, |v| if v[1] < 32 { v[0] >> v[1] } else { 0 });
    check("shr.s32", R, &[R, R], &WORDS, |v| word((v[0] as i32) >> v[1].min(31)));
    check("shr.s64", D, &[D, R], &DOUBLES, |v| ((v[0] as i64) >> (v[1] & 0xffff_ffff).min(63)) as u64);
    check("shl.b64", D, &[D, R], &DOUBLES, |v| {
        let by = v[1] & 0xffff_ffff;
        if by < 64 { v[0] << by } else { 0 }
    });
    check("shf.l.wrap.b32", R, &[R, R, R], &WORDS, |v| ((v[1] << 32 | v[0]) << (v[2] & 31)) >> 32);
    check("shf.r.clamp.b32", R, &[R, R, R], &WORDS, |v| ((v[1] << 32 | v[0]) >> v[2].min(32)) & 0xffff_ffff);
}

#[test]
fn bits_are_counted_found_and_moved() {
    check("popc.b32", R, &[R], &WORDS, |v| v[0].count_ones().into());
    check("clz.b32", R, &[R], &WORDS, |v| (v[0] as u32).leading_zeros().into());
    check("clz.b64", R, &[D], &DOUBLES, |v| v[0].leading_zeros().into());
    check("brev.b32", R, &[R], &WORDS, |v| (v[0] as u32).reverse_bits().into());
    check("bfind.u32", R, &[R], &WORDS, |v| if v[0] == 0 { 0xffff_ffff } else { v[0].ilog2().into() });
    check("bfind.s32", R, &[R], &WORDS, |v| {
        let value = if (v[0] as i32) < 0 { !(v[0] as u32) } else { v[0] as u32 };
        if value == 0 { 0xffff_ffff } else { value.ilog2().into() }
    });
    check("bfind.shiftamt.u32", R, &[R], &WORDS, |v| {
        if v[0] == 0 { 0xffff_ffff } else { (v[0] as u32).leading_zeros().into() }
    });
    check("not.b32", R, &[R], &WORDS, |v| !v[0] & 0xffff_ffff);
    check("prmt.b32", R, &[R, R, R], &[0, 0x8123_4567, 0x7654_3210, 0xfedc_ba98, 0x0f0e_0102], |v| {
        let bytes = (v[1] << 32 | v[0]).to_le_bytes();
        (0..4).fold(0, |sum, i| {
            let selector = v[2] >> (4 * i) & 15;
            let byte = u64::from(bytes[(selector & 7) as usize]);
            let byte = if selector & 8 == 0 { byte } else { 0xff * (byte >> 7) };
            sum | byte << (8 * i)
        })
    });
}

#[test]
fn fields_are_taken_bit_by_bit() {
    let values = [0, 1, 5, 31, 32, 40, 0x8765_4321, 0x7fff_ffff];
    let field = |v: &[u64], signed: bool| {
        let (at, length) = (v[1] & 0xff, v[2] & 0xff);
        let bit = |i: u64| v[0] >> i.min(31) & 1;
        let sign = if signed && length > 0 { bit((at + length - 1).min(31)) } else { 0 };
        (0..32).fold(0, |sum, i| sum | (if i < length && at + i < 32 { bit(at + i) } else { sign }) << i)
    };
    check("bfe.u32", R, &[R, R, R], &values, |v| field(v, false));
    check("bfe.s32", R, &[R, R, R], &values, |v| field(v, true));
    check("bfi.b32 %rz, %ra, %rb, %rc, 9; // ", R, &[R, R, R], &values, |v| {
        let at = v[2] & 0xff;
        (0..32).fold(v[1] & 0xffff_ffff, |sum, i| {
            if i < 9 && at + i < 32 { sum & !(1 << (at + i)) | (v[0] >> i & 1) << (at + i) } else { sum }
        })
    });
    check("lop3.b32 %rz, %ra, %rb, %rc, 0xca; // ", R, &[R, R, R], &WORDS, |v| v[0] & v[1] | !v[0] & v[2]);
    check("dp4a.s32.u32", R, &[R, R, R], &WORDS, |v| {
        let sum = (0..4).map(|i| i64::from((v[0] >> (8 * i)) as i8) * (v[1] >> (8 * i) & 0xff) as i64).sum::<i64>();
        (sum as u32).wrapping_add(v[2] as u32).into()
    });
}

#[test]
fn carries_pass_from_one_instruction_to_the_next() {
    check("add.cc.u32 %rz, %ra, %rb; addc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        (v[2] + (v[0] + v[1] > 0xffff_ffff) as u64) & 0xffff_ffff
    });
    check("sub.cc.u32 %rz, %ra, %rb; subc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        v[2].wrapping_sub((v[0] < v[1]) as u64) & 0xffff_ffff
    });
    check("mad.lo.cc.u32 %rz, %ra, %rb, %rc; madc.hi.u32 %rz, %ra, %rb, 7; // ", R, &[R, R, R], &WORDS, |v| {
        ((((u128::from(v[0]) * u128::from(v[1]) + u128::from(v[2])) >> 32) + 7) & 0xffff_ffff) as u64
    });
}

#[test]
fn single_arithmetic_is_that_of_ieee() {
    check("add.f32", R, &[R, R], &SINGLES, |v| single(f(v[0]) + f(v[1])));
    check("sub.f32", R, &[R, R], &SINGLES, |v| single(f(v[0]) - f(v[1])));
    check("mul.rn.f32", R, &[R, R], &SINGLES, |v| single(f(v[0]) * f(v[1])));
    check("div.rn.f32", R, &[R, R], &SINGLES, |v| single(f(v[0]) / f(v[1])));
    check("fma.rn.f32", R, &[R, R, R], &SINGLES, |v| single(f(v[0]).mul_add(f(v[1]), f(v[2]))));
    check("sqrt.rn.f32", R, &[R], &SINGLES, |v| single(f(v[0]).sqrt()));
    check("rcp.rn.f32", R, &[R], &SINGLES, |v| single(1.0 / f(v[0])));
    check("neg.f32", R, &[R], &SINGLES, |v| v[0] ^ 0x8000_0000);
    check("abs.f32", R, &[R], &SINGLES, |v| v[0] & 0x7fff_ffff);
    check("copysign.f32", R, &[R, R], &SINGLES, |v| v[0] & 0x8000_0000 | v[1] & 0x7fff_ffff);
    check("fma.rn.f64", D, &[D, D, D], &DOUBLE_FLOATS, |v| double(d(v[0]).mul_add(d(v[1]), d(v[2]))));
    check("div.rn.f64", D, &[D, D], &DOUBLE_FLOATS, |v| double(d(v[0]) / d(v[1])));
}

#[test]
fn directed_rounding_encloses_the_exact_result() {
    // Sums and products of f32 are exact in f64, but for sums of very different sizes, which are left out here and
    // are covered by the property tests of the rounding itself.
    let near = [0, 0x3f80_0001, 0xbf80_0003, 0x3eaa_aaab, 0x4049_0fdb, 0x3400_0001, 0xb3ff_ffff];
    let towards = |exact: f64, mode: &str| {
        let nearest = exact as f32;
        let above = f64::from(nearest) > exact;
        let below = f64::from(nearest) < exact;
        single(match mode {
            "rm" if above => nearest.next_down(),
            "rp" if below => nearest.next_up(),
            "rz" if above && exact > 0.0 => nearest.next_down(),
            "rz" if below && exact < 0.0 => nearest.next_up(),
            _ => nearest,
        })
    };
    for mode in ["rz", "rm", "rp"] {
        check(&format!("mul.{mode}.f32"), R, &[R, R], &near, |v| {
            towards(f64::from(f(v[0])) * f64::from(f(v[1])), mode)
        });
        check(&format!("cvt.{mode}.f32.f64"), R, &[D], &DOUBLE_FLOATS[2..6], |v| towards(d(v[0]), mode));
        check(&format!("cvt.{mode}.f32.s32"), R, &[R], &WORDS, |v| towards(f64::from(v[0] as i32), mode));
        check(&format!("add.{mode}.f32"), R, &[R, R], &near[1..], |v| {
            let sum = f64::from(f(v[0])) + f64::from(f(v[1]));
            if sum == 0.0 && mode == "rm" { 0x8000_0000 } else { towards(sum, mode) }
        });
    }
}

#[test]
fn subnormals_flush_only_when_told() {
    let flush = |value: f32| if value.is_subnormal() { 0f32.copysign(value) } else { value };
    check("add.ftz.f32", R, &[R, R], &SINGLES, |v| single(flush(flush(f(v[0])) + flush(f(v[1])))));
    check("mul.ftz.f32", R, &[R, R], &SINGLES, |v| single(flush(flush(f(v[0])) * flush(f(v[1])))));
    check("setp.eq.ftz.f32", P, &[R, R], &SINGLES, |v| (flush(f(v[0])) == flush(f(v[1]))).into());
    check("add.sat.f32", R, &[R, R], &SINGLES, |v| {
        let sum = f(v[0]) + f(v[1]);
        single(if sum > 0.0 { sum.min(1.0) } else { 0.0 })
    });
}

#[test]
fn extremes_skip_nan_and_order_zeros() {
    let less = |a: f32, b: f32| a < b || a == b && a.is_sign_negative() && b.is_sign_positive();
    check("min.f32", R, &[R, R], &SINGLES, |v| {
        let (a, b) = (f(v[0]), f(v[1]));
        single(if a.is_nan() {
            b
        } else if b.is_nan() || less(a, b) {
            a
        } else {
            b
        })
    });
    check("max.f32", R, &[R, R], &SINGLES, |v| {
        let (a, b) = (f(v[0]), f(v[1]));
        single(if a.is_nan() {
            b
        } else if b.is_nan() || less(b, a) {
            a
        } else {
            b
        })
    });
    check("max.NaN.f32", R, &[R, R], &SINGLES, |v| {
        let (a, b) = (f(v[0]), f(v[1]));
        single(if a.is_nan() || b.is_nan() {
            f32::NAN
        } else if less(b, a) {
            a
        } else {
            b
        })
    });
}

#[test]
fn comparisons_know_about_nan() {
    let any_nan = |v: &[u64]| f(v[0]).is_nan() || f(v[1]).is_nan();
    check("setp.lt.f32", P, &[R, R], &SINGLES, |v| (f(v[0]) < f(v[1])).into());
    check("setp.ltu.f32", P, &[R, R], &SINGLES, |v| (any_nan(v) || f(v[0]) < f(v[1])).into());
    check("setp.ne.f32", P, &[R, R], &SINGLES, |v| (!any_nan(v) && f(v[0]) != f(v[1])).into());
    check("setp.neu.f32", P, &[R, R], &SINGLES, |v| (f(v[0]) != f(v[1])).into());
    check("setp.num.f32", P, &[R, R], &SINGLES, |v| (!any_nan(v)).into());
    check("setp.gt.s32", P, &[R, R], &WORDS, |v| ((v[0] as i32) > (v[1] as i32)).into());
    check("setp.hi.u32", P, &[R, R], &WORDS, |v| (v[0] > v[1]).into());
    check("setp.lt.s16", P, &[H, H], &HALVES, |v| ((v[0] as i16) < (v[1] as i16)).into());
    check("setp.lt.and.s32 %pz, %ra, %rb, !%pc; // ", P, &[R, R, P], &WORDS, |v| {
        ((v[0] as i32) < (v[1] as i32) && v[2] == 0).into()
    });
    check("setp.eq.s32 %pz|%pa, %ra, %rb; selp.u32 %rz, 1, 2, %pa; // ", R, &[R, R], &WORDS, |v| {
        if v[0] == v[1] { 2 } else { 1 }
    });
    check("testp.subnormal.f32", P, &[R], &SINGLES, |v| f(v[0]).is_subnormal().into());
}

#[test]
fn conversions_to_integers_saturate() {
    let singles =
        [&SINGLES[..], &[0x3f00_0000, 0x3fc0_0000, 0x4020_0000, 0xbf00_0000, 0x4f00_0000, 0x4f80_0000]].concat();
    check("cvt.rni.s32.f32", R, &[R], &singles, |v| word(f(v[0]).round_ties_even() as i32));
    check("cvt.rzi.s32.f32", R, &[R], &singles, |v| word(f(v[0]) as i32));
    check("cvt.rmi.s32.f32", R, &[R], &singles, |v| word(f(v[0]).floor() as i32));
    check("cvt.rpi.u32.f32", R, &[R], &singles, |v| (f(v[0]).ceil() as u32).into());
    check("cvt.rzi.s64.f32", D, &[R], &singles, |v| if f(v[0]).is_nan() { 1 << 63 } else { f(v[0]) as i64 as u64 });
    check(
        "cvt.rzi.s32.f64",
        R,
        &[D],
        &DOUBLE_FLOATS,
        |v| {
            if d(v[0]).is_nan() { 1 << 31 } else { word(d(v[0]) as i32) }
        },
    );
    check("cvt.rni.f32.f32", R, &[R], &singles, |v| single(f(v[0]).round_ties_even()));
    check("cvt.sat.f32.f32", R, &[R], &singles, |v| {
        let value = f(v[0]);
        single(if value > 0.0 { value.min(1.0) } else { 0.0 })
    });
    check("cvt.sat.s8.s32 %rz, %ra; // ", R, &[R], &WORDS, |v| word((v[0] as i32).clamp(-128, 127)));
    check("cvt.sat.u8.s32 %rz, %ra; // ", R, &[R], &WORDS, |v| (v[0] as i32).clamp(0, 255) as u64);
}

#[test]
fn conversions_extend_and_cut_by_type() {
    check("cvt.s64.s32", D, &[R], &WORDS, |v| v[0] as i32 as i64 as u64);
    check("cvt.u64.u32", D, &[R], &WORDS, |v| v[0]);
    check("cvt.s32.s8", R, &[R], &WORDS, |v| word(i32::from(v[0] as i8)));
    check("cvt.s32.s16", R, &[H], &HALVES, |v| word(i32::from(v[0] as i16)));
    check("cvt.u16.u32", H, &[R], &WORDS, |v| v[0] & 0xffff);
    check("cvt.rn.f32.s32", R, &[R], &WORDS, |v| single(v[0] as i32 as f32));
    check("cvt.rn.f32.u64", R, &[D], &DOUBLES, |v| single(v[0] as f32));
    check("cvt.rn.f64.s64", D, &[D], &DOUBLES, |v| double(v[0] as i64 as f64));
    check("cvt.f64.f32", D, &[R], &SINGLES, |v| double(f(v[0]).into()));
    check("cvt.rn.f32.f64", R, &[D], &DOUBLE_FLOATS, |v| single(d(v[0]) as f32));
}

#[test]
fn halves_round_once() {
    use half::{bf16, f16};
    let values = [0, 0x8000, 1, 0x3c00, 0xbc00, 0x3555, 0x7bff, 0x7c00, 0x7e01, 0x0400, 0x3c01];
    let h = |bits: u64| f16::from_bits(bits as u16);
    let out = |value: f64| u64::from(if value.is_nan() { 0x7fff } else { f16::from_f64(value).to_bits() });
    check("add.f16", H, &[H, H], &values, |v| out(h(v[0]).to_f64() + h(v[1]).to_f64()));
    check("mul.f16", H, &[H, H], &values, |v| out(h(v[0]).to_f64() * h(v[1]).to_f64()));
    check("cvt.f32.f16", R, &[H], &values, |v| single(h(v[0]).to_f32()));
    check("cvt.rn.f16.f32", H, &[R], &SINGLES, |v| out(f(v[0]).into()));
    check("cvt.rn.bf16.f32", H, &[R], &SINGLES, |v| {
        if f(v[0]).is_nan() { 0x7fff } else { bf16::from_f32(f(v[0])).to_bits().into() }
    });
    check("setp.gt.f16", P, &[H, H], &values, |v| (h(v[0]) > h(v[1])).into());
    check("fma.rn.f16x2", R, &[R, R, R], &[0x3c00_3c00, 0x0001_7bff, 0xbc00_3555], |v| {
        let part = |by: u64| {
            let [a, b, c] = [0, 1, 2].map(|i| h(v[i] >> by).to_f64());
            out(a.mul_add(b, c))
        };
        part(0) | part(16) << 16
    });
}

#[test]
fn approximations_are_within_a_unit_in_the_last_place() {
    let values: Vec<u64> = [0.1f32, 1.0, 2.5, -0.75, 7.25, 100.0, 1e-3].map(|v| u64::from(v.to_bits())).into();
    let near = |op: &str, function: fn(f64) -> f64| {
        let rows: Vec<[u64; 3]> = values.iter().map(|v| [*v, 0, 0]).collect();
        for (row, got) in rows.iter().zip(run(op, R, &[R], &rows)) {
            let want = function(f64::from(f(row[0]))) as f32;
            let off = (f(got) - want).abs();
            assert!(want.is_nan() && f(got).is_nan() || off <= want.abs() * f32::EPSILON, "{op} of {}", f(row[0]));
        }
    };
    near("sin.approx.f32", f64::sin);
    near("cos.approx.f32", f64::cos);
    near("ex2.approx.f32", f64::exp2);
    near("lg2.approx.f32", f64::log2);
    near("rsqrt.approx.f32", |v| 1.0 / v.sqrt());
    near("rcp.approx.ftz.f32", |v| 1.0 / v);
    near("sqrt.approx.f32", f64::sqrt);
    near("tanh.approx.f32", f64::tanh);
}

#[test]
fn registers_are_packed_and_unpacked() {
    check("mov.b64 %dz, {%ra, %rb}; // ", D, &[R, R], &WORDS, |v| v[0] | v[1] << 32);
    check("mov.b64 {%ra, %rz}, %da; // ", R, &[D], &DOUBLES, |v| v[0] >> 32);
    check("mov.b32 %rz, {%hb, %ha}; // ", R, &[H, H], &HALVES, |v| v[1] | v[0] << 16);
    check("slct.u32.s32", R, &[R, R, R], &WORDS, |v| if v[2] as i32 >= 0 { v[0] } else { v[1] });
}
