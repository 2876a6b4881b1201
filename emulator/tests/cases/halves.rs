//! Instructions on f16 and bf16.

use super::single::{D, H, P, R, SINGLES, check, d, f, single};

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

/// Rounds a value once to a 16-bit format, by a search among its neighbours.
fn nearest(value: f64, format: Format) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = u64::from(value.is_sign_negative()) << 15;
    let (magnitude, of) = (value.abs(), |bits: u64| (format.value)(bits as u16));
    // Positive numbers are ordered like their bits. Infinity counts as the number that would come next.
    let next = |bits: u64| if bits == format.infinity { 2.0 * of(bits - 1) - of(bits - 2) } else { of(bits) };
    let (mut low, mut high) = (0, format.infinity);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if next(middle) <= magnitude { low = middle } else { high = middle }
    }
    let (below, above) = (magnitude - next(low), next(high) - magnitude);
    sign | if below < above || below == above && low & 1 == 0 { low } else { high }
}

#[derive(Clone, Copy)]
struct Format {
    value: fn(u16) -> f64,
    infinity: u64,
}

const F16: Format = Format { value: |bits| half::f16::from_bits(bits).to_f64(), infinity: 0x7c00 };
const BF16: Format = Format { value: |bits| half::bf16::from_bits(bits).to_f64(), infinity: 0x7f80 };

#[test]
fn bf16_arithmetic_rounds_once() {
    let values = [0, 0x8000, 1, 0x3f80, 0xbf80, 0x3eab, 0x7f7f, 0x7f80, 0x7fc1, 0x0080, 0x3f81, 0x3380];
    let b = |bits: u64| half::bf16::from_bits(bits as u16).to_f64();
    // Sums of these are exact in f64, or so far apart in magnitude that the larger one is the result.
    check("add.bf16", H, &[H, H], &values, |v| nearest(b(v[0]) + b(v[1]), BF16));
    check("sub.bf16", H, &[H, H], &values, |v| nearest(b(v[0]) - b(v[1]), BF16));
    check("mul.bf16", H, &[H, H], &values, |v| nearest(b(v[0]) * b(v[1]), BF16));
    check("fma.rn.bf16", H, &[H, H, H], &values[3..7], |v| nearest(b(v[0]).mul_add(b(v[1]), b(v[2])), BF16));
    check("neg.bf16", H, &[H], &values, |v| v[0] ^ 0x8000);
    check("abs.bf16", H, &[H], &values, |v| v[0] & 0x7fff);
    check("max.bf16x2", R, &[R, R], &[0x3f80_bf80, 0x4000_3f80, 0x7fc0_0000], |v| {
        let part = |by: u64| {
            let (x, y) = (b(v[0] >> by), b(v[1] >> by));
            nearest(x.max(y), BF16)
        };
        part(0) | part(16) << 16
    });
    check("setp.lt.bf16", P, &[H, H], &values, |v| (b(v[0]) < b(v[1])).into());
}

#[test]
fn values_just_beside_the_middle_are_not_rounded_twice() {
    // The first is above the midpoint of 1 and its neighbour by less than an f32 can represent, the second below.
    let middle = |step: i32| 1.0 + 2f64.powi(step);
    for (name, format, step) in [("f16", F16, -11), ("bf16", BF16, -8)] {
        let middle = middle(step);
        let values = [middle, middle.next_up(), middle.next_down(), -middle.next_up(), middle + 2f64.powi(-40)];
        check(&format!("cvt.rn.{name}.f64"), H, &[D], &values.map(f64::to_bits), |v| nearest(d(v[0]), format));
    }
    assert_ne!(nearest(middle(-11), F16), nearest(middle(-11).next_up(), F16));
    // 1 * (1 + 2^-10) + 2^-24 * (1 + 2^-10) and the like: above the midpoint only by the last bits of the product.
    check("fma.rn.f16", H, &[H, H, H], &[0x3c00, 0x3c01, 0x0001, 0x1000, 0x9001, 0x7bff], |v| {
        let [x, y, z] = [0, 1, 2].map(|i| half::f16::from_bits(v[i] as u16).to_f64());
        nearest(x * y + z, F16)
    });
    check("cvt.rn.f16.u64", H, &[D], &[2049, 2051, 4095, 65_519, 65_520, u64::MAX], |v| nearest(v[0] as f64, F16));
    let near = [0x0101_0000_0000_0000, 0x0101_0000_0000_0001, 0x0100_ffff_ffff_ffff];
    check("cvt.rn.bf16.u64", H, &[D], &near, |v| if v[0] == near[1] { 0x5b81 } else { 0x5b80 });
}

fn h(bits: u64) -> f64 {
    half::f16::from_bits(bits as u16).to_f64()
}

fn b(bits: u64) -> f64 {
    half::bf16::from_bits(bits as u16).to_f64()
}

const SMALL: [u64; 12] = [0, 0x8000, 1, 0x8001, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0x7c00, 0xfc00, 0x7e01, 0xfd55];

/// Returns the minimum or maximum by the definition in the PTX ISA: zeros are ordered, NaN as the modifiers require.
fn extreme(v: &[u64], max: bool, strict: bool, signs: bool, infinity: u64) -> u64 {
    let sign = if signs { (v[0] ^ v[1]) & 0x8000 } else { 0 };
    let [x, y] = [v[0], v[1]].map(|bits| if signs { bits & 0x7fff } else { bits & 0xffff });
    let nan = |bits: u64| bits & 0x7fff > infinity;
    let rank = |bits: u64| if bits & 0x8000 == 0 { bits as i64 } else { -1 - (bits & 0x7fff) as i64 };
    let chosen = match (nan(x), nan(y)) {
        (true, true) => return 0x7fff,
        (true, false) | (false, true) if strict => return 0x7fff,
        (true, false) => y,
        (false, true) => x,
        _ if (rank(x) < rank(y)) != max => x,
        _ => y,
    };
    chosen | sign
}

#[test]
fn extremes_of_halves_follow_their_modifiers() {
    let flushed =
        |v: &[u64]| v.iter().map(|bits| if bits & 0x7c00 == 0 { bits & 0x8000 } else { *bits }).collect::<Vec<_>>();
    for (name, max) in [("min", false), ("max", true)] {
        for (nan, strict) in [("", false), (".NaN", true)] {
            for (abs, signs) in [("", false), (".xorsign.abs", true)] {
                let op = format!("{name}{nan}{abs}");
                check(&format!("{op}.f16"), H, &[H, H], &SMALL, |v| extreme(v, max, strict, signs, 0x7c00));
                check(&format!("{op}.bf16"), H, &[H, H], &SMALL, |v| extreme(v, max, strict, signs, 0x7f80));
                check(&format!("{name}.ftz{nan}{abs}.f16"), H, &[H, H], &SMALL, |v| {
                    extreme(&flushed(&v[..2]), max, strict, signs, 0x7c00)
                });
                let pairs = [0x3c00_8000, 0x0000_bc01, 0x7e01_fc00, 0x8001_7fff];
                for (ty, infinity) in [("f16x2", 0x7c00), ("bf16x2", 0x7f80)] {
                    check(&format!("{op}.{ty}"), R, &[R, R], &pairs, |v| {
                        let part = |by: u64| {
                            extreme(&[v[0] >> by & 0xffff, v[1] >> by & 0xffff], max, strict, signs, infinity)
                        };
                        part(0) | part(16) << 16
                    });
                }
            }
        }
    }
}

#[test]
fn fused_products_of_halves_may_be_clamped() {
    let values = [0x3c00, 0xbc00, 0x3555, 0x0001, 0x8000, 0x7c00, 0x7e00];
    check("fma.rn.relu.f16", H, &[H, H, H], &values, |v| {
        let sum = h(v[0]) * h(v[1]) + h(v[2]);
        if sum <= 0.0 { 0 } else { nearest(sum, F16) }
    });
    check("fma.rn.sat.f16", H, &[H, H, H], &values, |v| {
        let sum = h(v[0]) * h(v[1]) + h(v[2]);
        if sum > 0.0 { nearest(sum.min(1.0), F16) } else { 0 }
    });
    check("fma.rn.relu.bf16", H, &[H, H, H], &[0x3f80, 0xbf80, 0x4049, 0x7f80, 0x7fc0], |v| {
        let sum = b(v[0]) * b(v[1]) + b(v[2]);
        if sum <= 0.0 { 0 } else { nearest(sum, BF16) }
    });
    check("fma.rn.relu.bf16x2", R, &[R, R, R], &[0x3f80_bf80, 0xbf80_3f80, 0x4000_c049], |v| {
        let part = |by: u64| {
            let sum = b(v[0] >> by) * b(v[1] >> by) + b(v[2] >> by);
            if sum <= 0.0 { 0 } else { nearest(sum, BF16) }
        };
        part(0) | part(16) << 16
    });
    check("add.rn.ftz.sat.f16", H, &[H, H], &SMALL, |v| {
        let flush = |bits: u64| if bits & 0x7c00 == 0 { 0.0 } else { h(bits) };
        let sum = flush(v[0]) + flush(v[1]);
        if sum > 0.0 { nearest(sum.min(1.0), F16) } else { 0 }
    });
}

type Relation = (&'static str, fn(f64, f64) -> bool);

const RELATIONS: [Relation; 14] = [
    ("eq", |a, b| a == b),
    ("ne", |a, b| a.partial_cmp(&b).is_some_and(|order| order.is_ne())),
    ("lt", |a, b| a < b),
    ("le", |a, b| a <= b),
    ("gt", |a, b| a > b),
    ("ge", |a, b| a >= b),
    ("equ", |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_eq())),
    ("neu", |a, b| a != b),
    ("ltu", |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_lt())),
    ("leu", |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_le())),
    ("gtu", |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_gt())),
    ("geu", |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_ge())),
    ("num", |a, b| a.partial_cmp(&b).is_some()),
    ("nan", |a, b| a.partial_cmp(&b).is_none()),
];

#[test]
fn halves_compare_by_every_relation() {
    for (name, holds) in RELATIONS {
        check(&format!("setp.{name}.f16"), P, &[H, H], &SMALL, |v| holds(h(v[0]), h(v[1])).into());
        check(&format!("setp.{name}.bf16"), P, &[H, H], &SMALL, |v| holds(b(v[0]), b(v[1])).into());
        check(&format!("set.{name}.u16.f16"), H, &[H, H], &SMALL, |v| u64::from(holds(h(v[0]), h(v[1]))) * 0xffff);
        check(&format!("set.{name}.f16.f16"), H, &[H, H], &SMALL, |v| u64::from(holds(h(v[0]), h(v[1]))) * 0x3c00);
        check(&format!("set.{name}.bf16.f32"), H, &[R, R], &SINGLES, |v| {
            u64::from(holds(f(v[0]).into(), f(v[1]).into())) * 0x3f80
        });
        check(&format!("set.{name}.s32.bf16"), R, &[H, H], &SMALL, |v| {
            u64::from(holds(b(v[0]), b(v[1]))) * 0xffff_ffff
        });
        let pairs = [0x3c00_bc00, 0xbc00_3c00, 0x7fff_0000, 0x8000_0000];
        let both = |v: &[u64], one: u64| {
            let part = |by: u64| u64::from(holds(h(v[0] >> by), h(v[1] >> by))) * one;
            part(0) | part(16) << 16
        };
        check(&format!("set.{name}.f16x2.f16x2"), R, &[R, R], &pairs, |v| both(v, 0x3c00));
        check(&format!("set.{name}.u32.f16x2"), R, &[R, R], &pairs, |v| both(v, 0xffff));
        // The first predicate is that of the lower halves, the second that of the upper ones.
        for (wanted, by) in [("%pz|%pb", 0), ("%pb|%pz", 16)] {
            let text = format!("setp.{name}.and.f16x2 {wanted}, %ra, %rb, !%pc; // ");
            check(&text, P, &[R, R, P], &pairs, |v| (holds(h(v[0] >> by), h(v[1] >> by)) && v[2] == 0).into());
        }
        check(&format!("set.{name}.or.bf16x2.bf16x2"), R, &[R, R, P], &pairs, |v| {
            let part = |by: u64| u64::from(holds(b(v[0] >> by), b(v[1] >> by)) || v[2] != 0) * 0x3f80;
            part(0) | part(16) << 16
        });
    }
}
