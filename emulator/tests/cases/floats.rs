//! Instructions on f32 and f64, one at a time.

use super::single::{D, DOUBLE_FLOATS, H, HALVES, P, R, SINGLES, WORDS, check, d, double, f, run, single};

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
    // Sums and products of f32 are exact in f64, except for sums of very different magnitudes. These are left out here;
    // the property tests of the rounding itself cover them.
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
fn directed_f64_sums_and_products_round_as_the_mode_says() {
    // 1 + 2^-60 is just above 1, and (1 + 2^-52)^2 is just above 1 + 2^-51.
    let (one, tiny, next) = (1f64.to_bits(), 2f64.powi(-60).to_bits(), 1f64.next_up().to_bits());
    let above = |v: f64| v.next_up().to_bits();
    for (op, a, b, want) in [
        ("add.rn.f64", one, tiny, one),
        ("add.rp.f64", one, tiny, above(1.0)),
        ("add.rm.f64", one, tiny, one),
        ("sub.rm.f64", one, tiny, 1f64.next_down().to_bits()),
        ("sub.rz.f64", one, tiny, 1f64.next_down().to_bits()),
        ("sub.rp.f64", one, tiny, one),
        ("mul.rz.f64", next, next, (1.0 + 2f64.powi(-51)).to_bits()),
        ("mul.rp.f64", next, next, above(1.0 + 2f64.powi(-51))),
        ("div.rm.f64", one, 3f64.to_bits(), (1.0 / 3.0f64).to_bits()),
        ("div.rp.f64", one, 3f64.to_bits(), above(1.0 / 3.0)),
        ("add.rz.f64", f64::MAX.to_bits(), f64::MAX.to_bits(), f64::MAX.to_bits()),
        ("mul.rp.f64", f64::MIN_POSITIVE.to_bits(), f64::MIN_POSITIVE.to_bits(), 1),
        ("add.rm.f64", one, (-1f64).to_bits(), (-0f64).to_bits()),
    ] {
        assert_eq!(run(op, D, &[D, D], &[[a, b, 0]]), [want], "{op} of {a:#x}, {b:#x}");
    }
    // The product of 1 + 2^-52 with itself less one is 2^-51 + 2^-104.
    let fused = |mode: &str| run(&format!("fma.{mode}.f64"), D, &[D, D, D], &[[next, next, (-1f64).to_bits()]])[0];
    assert_eq!(fused("rm"), 2f64.powi(-51).to_bits());
    assert_eq!(fused("rp"), above(2f64.powi(-51)));
    let root = |mode: &str| run(&format!("sqrt.{mode}.f64"), D, &[D], &[[2f64.to_bits(), 0, 0]])[0];
    assert_eq!((root("rm"), root("rp")), (2f64.sqrt().next_down().to_bits(), 2f64.sqrt().to_bits()));
}

#[test]
fn the_approximate_quotient_by_a_large_divisor_is_zero() {
    let values =
        [0, 0x3f80_0000, 0xbf80_0000, 0x7e80_0000, 0x7e80_0001, 0xff7f_ffff, 0x7f80_0000, 0x7fc0_0000, 0x7f00_0000];
    for op in ["div.approx.f32", "div.approx.ftz.f32"] {
        check(op, R, &[R, R], &values, |v| {
            let (a, b) = (f(v[0]), f(v[1]));
            let flushes = b.abs() > 2f32.powi(126) && b.is_finite();
            single(if flushes { a * 0f32.copysign(b) } else { a / b })
        });
    }
    check("div.full.f32", R, &[R, R], &values, |v| single(f(v[0]) / f(v[1])));
}

#[test]
fn a_choice_among_magnitudes_takes_the_product_of_the_signs() {
    for (name, max) in [("min", false), ("max", true)] {
        for (nan, strict) in [("", false), (".NaN", true)] {
            check(&format!("{name}{nan}.xorsign.abs.f32"), R, &[R, R], &SINGLES, |v| {
                let (a, b) = (f(v[0]).abs(), f(v[1]).abs());
                if a.is_nan() && b.is_nan() || strict && (a.is_nan() || b.is_nan()) {
                    return 0x7fff_ffff;
                }
                let chosen = if max { a.max(b) } else { a.min(b) };
                u64::from(chosen.to_bits()) | (v[0] ^ v[1]) & 0x8000_0000
            });
        }
    }
}

#[test]
fn selection_by_the_sign_of_a_float_takes_nan_as_negative() {
    check("slct.f32.f32", R, &[R, R, R], &SINGLES, |v| if f(v[2]) >= 0.0 { v[0] } else { v[1] });
    check("slct.ftz.b32.f32", R, &[R, R, R], &SINGLES, |v| {
        if f(v[2]) >= 0.0 || f(v[2]).is_subnormal() { v[0] } else { v[1] }
    });
    check("slct.f64.s32 %dz, %da, %db, %rc; // ", D, &[D, D, R], &[0, 1, 0x8000_0000, 0xffff_ffff], |v| {
        if v[2] as i32 >= 0 { v[0] } else { v[1] }
    });
}
