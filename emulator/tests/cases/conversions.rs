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
    check("cvt.f64.f32", D, &[R], &SINGLES, |v| double(f(v[0]).into()));
    check("cvt.rn.f32.f64", R, &[D], &DOUBLE_FLOATS, |v| single(d(v[0]) as f32));
}

/// `cvt` of f32 and f64 to integers: the bounds that every mode clamps to, and what a value in between becomes.
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
