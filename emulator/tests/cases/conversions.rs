//! Conversions between number formats.

use super::single::{D, DOUBLE_FLOATS, DOUBLES, H, HALVES, R, SINGLES, WORDS, check, d, double, f, single, word};

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
    // A NaN keeps its sign and payload.
    check("cvt.f64.f32", D, &[R], &[&SINGLES[..], &[0xff80_0001]].concat(), |v| {
        let nan = 0x7ff8_0000_0000_0000 | (v[0] >> 31) << 63 | (v[0] & 0x003f_ffff) << 29;
        if f(v[0]).is_nan() { nan } else { f64::from(f(v[0])).to_bits() }
    });
    check("cvt.rn.f32.f64", R, &[D], &DOUBLE_FLOATS, |v| single(d(v[0]) as f32));
}

/// `cvt` of f32 and f64 to integers: the limits to which every mode clamps, and the result for values in between.
#[test]
fn every_mode_and_width_of_a_conversion_to_integers_agrees_with_rust() {
    let values = [-1e30, -300.5, -129.0, -1.5, -0.5, -0.0, 0.0, 0.49, 0.5, 1.5, 2.5, 127.5, 255.5, 70_000.25, 1e30];
    let singles = values.map(|v| u64::from((v as f32).to_bits()));
    let doubles = values.map(f64::to_bits);
    type Mode = (&'static str, fn(f64) -> f64);
    let modes: [Mode; 4] =
        [("rni", f64::round_ties_even), ("rzi", f64::trunc), ("rmi", f64::floor), ("rpi", f64::ceil)];
    macro_rules! table {
        ($($name:literal: $t:ty => $register:expr, $unsigned:ty;)*) => {$(
            for (mode, integral) in modes {
                let wanted = |value: f64| u64::from((integral(value) as $t) as $unsigned);
                check(&format!("cvt.{mode}.{}.f32", $name), $register, &[R], &singles, |v| wanted(f(v[0]).into()));
                check(&format!("cvt.{mode}.{}.f64", $name), $register, &[D], &doubles, |v| wanted(d(v[0])));
            }
        )*};
    }
    table! {
        "u16": u16 => H, u16;
        "s16": i16 => H, u16;
        "u32": u32 => R, u32;
        "s32": i32 => R, u32;
        "u64": u64 => D, u64;
        "s64": i64 => D, u64;
    }
}

#[test]
fn saturating_conversions_clamp_to_the_type_or_to_one() {
    let wide = [0, 1, 200, 0x7fff, 0x8000, 0xffff_ffff, 0x8000_0000, 0x7fff_ffff_ffff_ffff, 1 << 63, u64::MAX];
    check("cvt.sat.s16.s64", H, &[D], &wide, |v| (v[0] as i64).clamp(-0x8000, 0x7fff) as u16 as u64);
    check("cvt.sat.u16.s64", H, &[D], &wide, |v| (v[0] as i64).clamp(0, 0xffff) as u64);
    check("cvt.sat.s32.u64", R, &[D], &wide, |v| v[0].min(0x7fff_ffff));
    check("cvt.sat.u32.s64", R, &[D], &wide, |v| (v[0] as i64).clamp(0, 0xffff_ffff) as u64);
    check("cvt.sat.s64.u64", D, &[D], &wide, |v| v[0].min(i64::MAX as u64));
    let clamp = |value: f64| if value > 0.0 { value.min(1.0) } else { 0.0 };
    check("cvt.sat.f64.f32", D, &[R], &SINGLES, |v| clamp(f(v[0]).into()).to_bits());
    check("cvt.rni.sat.f64.f64", D, &[D], &DOUBLE_FLOATS, |v| clamp(d(v[0]).round_ties_even()).to_bits());
    check("cvt.rn.sat.f32.f64", R, &[D], &DOUBLE_FLOATS, |v| single(clamp(d(v[0])) as f32));
}

/// Rounds a value to a multiple of `2^unit`, by a search among the integers.
fn to_multiple(value: f64, unit: i32, mode: &str) -> f64 {
    let scaled = value / 2f64.powi(unit);
    let whole = match mode {
        "rz" => scaled.trunc(),
        "rm" => scaled.floor(),
        "rp" => scaled.ceil(),
        _ => scaled.round_ties_even(),
    };
    whole * 2f64.powi(unit)
}

/// Rounds a value to a 16-bit format in any mode. The values used are far enough from the limits of f64 that scaling is
/// exact.
fn to_half(value: f64, mode: &str, bits: i32, least: i32, top: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
    let rounded = to_multiple(value, (exponent - bits + 1).max(least), mode);
    if rounded.abs() <= top {
        return rounded.copysign(value);
    }
    let outward = mode == "rn" || mode == "rp" && value > 0.0 || mode == "rm" && value < 0.0;
    if outward { f64::INFINITY.copysign(value) } else { top.copysign(value) }
}

const F16_MAX: f64 = 65504.0;
const BF16_MAX: f64 = 3.3895313892515355e38;

fn f16_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7fff } else { half::f16::from_f64(value).to_bits().into() }
}

fn bf16_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7fff } else { half::bf16::from_f64(value).to_bits().into() }
}

/// f32 values around the limits of f16 and bf16.
const AROUND_HALVES: [u64; 16] = [
    0,
    0x8000_0000,
    0x3f80_0001,
    0xbf80_1001,
    0x3f80_1000,
    0x3f80_8000,
    0xbf81_8000,
    0x3380_0001,
    0xb300_0000,
    0x387f_ffff,
    0x477f_e001,
    0xc77f_f000,
    0x7f7f_ffff,
    0xff80_0000,
    0x7f80_0001,
    0x0000_8001,
];

#[test]
fn conversions_to_sixteen_bits_round_in_every_mode() {
    for mode in ["rn", "rz", "rm", "rp"] {
        let half = |value: f64| to_half(value, mode, 11, -24, F16_MAX);
        let brain = |value: f64| to_half(value, mode, 8, -133, BF16_MAX);
        check(&format!("cvt.{mode}.f16.f32"), H, &[R], &AROUND_HALVES, |v| f16_bits(half(f(v[0]).into())));
        check(&format!("cvt.{mode}.bf16.f32"), H, &[R], &AROUND_HALVES, |v| bf16_bits(brain(f(v[0]).into())));
        let doubles = AROUND_HALVES.map(|bits| (f64::from(f(bits)) * (1.0 + 2f64.powi(-45))).to_bits());
        check(&format!("cvt.{mode}.f16.f64"), H, &[D], &doubles, |v| f16_bits(half(d(v[0]))));
        check(&format!("cvt.{mode}.bf16.f64"), H, &[D], &doubles, |v| bf16_bits(brain(d(v[0]))));
        check(&format!("cvt.{mode}.f16.s64"), H, &[D], &DOUBLES, |v| f16_bits(half(v[0] as i64 as f64)));
        check(&format!("cvt.{mode}.bf16.s32"), H, &[R], &WORDS, |v| bf16_bits(brain(f64::from(v[0] as i32))));
        let halves = [0, 0x8001, 0x3c01, 0xbfff, 0x7bff, 0xfc00, 0x7c01];
        check(&format!("cvt.{mode}.bf16.f16"), H, &[H], &halves, |v| {
            bf16_bits(brain(half::f16::from_bits(v[0] as u16).to_f64()))
        });
        let brains = [0, 0x8001, 0x3f81, 0xbfff, 0x7f7f, 0xff80, 0x7f81, 0x3381, 0x477f];
        check(&format!("cvt.{mode}.f16.bf16"), H, &[H], &brains, |v| {
            f16_bits(half(half::bf16::from_bits(v[0] as u16).to_f64()))
        });
        check(&format!("cvt.{mode}.f64.bf16"), D, &[H], &brains[..6], |v| {
            half::bf16::from_bits(v[0] as u16).to_f64().to_bits()
        });
        check(&format!("cvt.{mode}.sat.f16.f32"), H, &[R], &AROUND_HALVES, |v| {
            let value = f64::from(f(v[0]));
            f16_bits(if value > 0.0 { half(value.min(1.0)) } else { 0.0 })
        });
    }
}

#[test]
fn bytes_convert_to_and_from_bf16() {
    let brains = [0, 0x8000, 0x3f80, 0xbfc0, 0x42fe, 0x4300, 0xc302, 0x4380, 0x7f80, 0xff80, 0x7fc1];
    let value = |bits: u64| half::bf16::from_bits(bits as u16).to_f32();
    let text = |ty: &str| format!(".reg .b8 %q;\ncvt.rzi.{ty}.bf16 %q, %ha; mov.b16 %hz, {{%q, 0}}; // ");
    check(&text("s8"), H, &[H], &brains, |v| (value(v[0]) as i8 as u8).into());
    check(&text("u8"), H, &[H], &brains, |v| (value(v[0]) as u8).into());
    let text = |ty: &str| format!(".reg .b8 %q, %s;\nmov.b16 {{%q, %s}}, %ha; cvt.rn.bf16.{ty} %hz, %q; // ");
    check(&text("s8"), H, &[H], &HALVES, |v| bf16_bits(f64::from(v[0] as i8)));
    check(&text("u8"), H, &[H], &HALVES, |v| bf16_bits(f64::from(v[0] as u8)));
}

#[test]
fn limits_of_conversions_replace_negative_and_infinite_results() {
    let limit = |value: f64, relu: bool, finite: bool, top: f64| {
        let value = if relu && value <= 0.0 { 0.0 } else { value };
        if finite && value.is_infinite() { top.copysign(value) } else { value }
    };
    for mode in ["rn", "rz"] {
        for (relu, finite) in [(true, false), (false, true), (true, true)] {
            let limits =
                [(relu, ".relu"), (finite, ".satfinite")].map(|(on, name)| if on { name } else { "" }).concat();
            let half =
                |bits: u64| f16_bits(limit(to_half(f(bits).into(), mode, 11, -24, F16_MAX), relu, finite, F16_MAX));
            let brain =
                |bits: u64| bf16_bits(limit(to_half(f(bits).into(), mode, 8, -133, BF16_MAX), relu, finite, BF16_MAX));
            check(&format!("cvt.{mode}{limits}.f16.f32"), H, &[R], &AROUND_HALVES, |v| half(v[0]));
            check(&format!("cvt.{mode}{limits}.bf16.f32"), H, &[R], &AROUND_HALVES, |v| brain(v[0]));
            check(&format!("cvt.{mode}{limits}.f16x2.f32"), R, &[R, R], &AROUND_HALVES, |v| {
                half(v[1]) | half(v[0]) << 16
            });
            check(&format!("cvt.{mode}{limits}.bf16x2.f32"), R, &[R, R], &AROUND_HALVES, |v| {
                brain(v[1]) | brain(v[0]) << 16
            });
        }
    }
}

#[test]
fn tf32_keeps_ten_bits_of_the_fraction() {
    let rounded = |bits: u64, mode: &str| {
        if f(bits).is_nan() {
            0x7fff_e000
        } else {
            u64::from((to_half(f(bits).into(), mode, 11, -136, 3.4011621342146535e38) as f32).to_bits())
        }
    };
    for mode in ["rn", "rz"] {
        check(&format!("cvt.{mode}.tf32.f32"), R, &[R], &AROUND_HALVES, |v| rounded(v[0], mode));
        check(&format!("cvt.{mode}.relu.tf32.f32"), R, &[R], &AROUND_HALVES, |v| {
            if f(v[0]) <= 0.0 { 0 } else { rounded(v[0], mode) }
        });
    }
    // Half a unit of the tenth bit is added to a number, and the rest cut; a NaN is only cut.
    let away = |bits: u64| (if f(bits).is_finite() { bits + 0x1000 } else { bits }) & 0xffff_e000;
    check("cvt.rna.tf32.f32", R, &[R], &AROUND_HALVES, |v| away(v[0]));
    check("cvt.rna.satfinite.tf32.f32", R, &[R], &[0x3f80_1000, 0x7f7f_ffff, 0xff80_0000, 0x7f7f_e000], |v| {
        if away(v[0]) & 0x7fff_ffff == 0x7f80_0000 { v[0] & 0x8000_0000 | 0x7f7f_e000 } else { away(v[0]) }
    });
}

/// Returns the value of an 8-bit code, by the definition of the format.
fn eight(code: u64, fraction_bits: i32) -> f64 {
    let (exponent, fraction) =
        ((code >> fraction_bits) as i32 & 0x7f >> fraction_bits, code as i32 & ((1 << fraction_bits) - 1));
    let bias = (1 << (6 - fraction_bits)) - 1;
    let special = if fraction_bits == 3 { code & 0x7f == 0x7f } else { code & 0x7f > 0x7c };
    let magnitude = match exponent {
        _ if special => f64::NAN,
        31 if fraction_bits == 2 => f64::INFINITY,
        0 => f64::from(fraction) * 2f64.powi(1 - bias - fraction_bits),
        _ => f64::from(fraction + (1 << fraction_bits)) * 2f64.powi(exponent - bias - fraction_bits),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// Returns the code with the nearest value, by trying all; of two the even one.
fn nearest_eight(value: f64, fraction_bits: i32) -> u64 {
    if value.is_nan() {
        return 0x7f;
    }
    let codes = (0..0x7f).filter(|code| eight(*code, fraction_bits).is_finite());
    let distance = |code: &u64| (eight(*code, fraction_bits) - value.abs().min(1e6)).abs();
    let best = codes.min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))).unwrap();
    best | u64::from(value.is_sign_negative()) << 7
}

#[test]
fn numbers_of_eight_bits_convert_both_ways() {
    for (name, bits) in [("e4m3", 3), ("e5m2", 2)] {
        let codes: Vec<u64> = (0..128).map(|code| code | (255 - code) << 8).collect();
        let half = |code: u64| f16_bits(eight(code & 0xff, bits));
        check(&format!("cvt.rn.f16x2.{name}x2"), R, &[H], &codes, |v| half(v[0]) | half(v[0] >> 8) << 16);
        check(&format!("cvt.rn.relu.f16x2.{name}x2"), R, &[H], &codes, |v| {
            let part = |code: u64| if eight(code & 0xff, bits) <= 0.0 { 0 } else { half(code) };
            part(v[0]) | part(v[0] >> 8) << 16
        });
        let mut singles = AROUND_HALVES.to_vec();
        // Every code's value, and the midpoint between it and the next.
        for code in (0..0x7f).step_by(3).filter(|code| eight(*code, bits).is_finite()) {
            let (low, high) = (eight(code, bits), eight(code + 1, bits));
            let middle = if high.is_finite() { (low + high) / 2.0 } else { low * 1.1 };
            singles.extend([low, middle, middle.next_up(), -middle].map(|value| u64::from((value as f32).to_bits())));
        }
        for (relu, limits) in [(false, ""), (true, ".relu")] {
            let code = |value: f64| nearest_eight(if relu && value <= 0.0 { 0.0 } else { value }, bits);
            check(&format!("cvt.rn.satfinite{limits}.{name}x2.f32 %hz, %ra, %ra; // "), H, &[R], &singles, |v| {
                code(f(v[0]).into()) * 0x101
            });
            check(&format!("cvt.rn.satfinite{limits}.{name}x2.f32"), H, &[R, R], &singles[..16], |v| {
                code(f(v[1]).into()) | code(f(v[0]).into()) << 8
            });
            let pairs = [0x3c01_bc01, 0x7bff_0001, 0x7c00_fc00, 0x7e00_8000, 0x5f80_2000, 0x1801_9801];
            check(&format!("cvt.rn.satfinite{limits}.{name}x2.f16x2"), H, &[R], &pairs, |v| {
                let part = |bits: u64| code(half::f16::from_bits(bits as u16).to_f64());
                part(v[0]) | part(v[0] >> 16) << 8
            });
        }
    }
}

#[test]
fn saturated_integers_are_packed_below_what_a_third_operand_gives() {
    let values = [0, 1, 5, 0xffff_ffff, 0xffff_fff0, 200, 0x7fff_ffff, 0x8000_0000];
    let part = |value: u64, low: i32, high: i32, mask: u64| (value as i32).clamp(low, high) as u64 & mask;
    check("cvt.pack.sat.u16.s32", R, &[R, R], &values, |v| {
        part(v[1], 0, 0xffff, 0xffff) | part(v[0], 0, 0xffff, 0xffff) << 16
    });
    check("cvt.pack.sat.s16.s32", R, &[R, R], &values, |v| {
        part(v[1], -0x8000, 0x7fff, 0xffff) | part(v[0], -0x8000, 0x7fff, 0xffff) << 16
    });
    for bits in [8, 4, 2] {
        let mask = (1 << bits) - 1;
        for (letter, low, high) in [("u", 0, mask as i32), ("s", -(1 << (bits - 1)), (1 << (bits - 1)) - 1)] {
            check(&format!("cvt.pack.sat.{letter}{bits}.s32.b32"), R, &[R, R, R], &values, |v| {
                let pair = part(v[1], low, high, mask) | part(v[0], low, high, mask) << bits;
                (pair | v[2] << (2 * bits)) & 0xffff_ffff
            });
        }
    }
}
