//! Integer arithmetic, with and without carry.

use super::Grammar;
use crate::{
    kind::Kind::{self, *},
    recipe::{form, forms},
    scalar::integer::{clamp, halves, int, least, most, wrap},
};

const ALL: [Kind; 6] = [U16, U32, U64, S16, S32, S64];
const PAIRS: [(Kind, Kind); 2] = [(U16x2, U16), (S16x2, S16)];

pub fn add(g: &mut Grammar) {
    sums(g);
    products(g);
    divisions(g);
    extremes(g);
    counts(g);
    fields(g);
    dots(g);
    carries(g);
}

/// Returns the kind with twice the bits.
fn wide(k: Kind) -> Kind {
    match k {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        _ => S64,
    }
}

fn sums(g: &mut Grammar) {
    for k in ALL {
        g.add(form(format!("add.{k}"), k, &[k, k], move |x| wrap(k, int(k, x[0]) + int(k, x[1]))));
        g.add(form(format!("sub.{k}"), k, &[k, k], move |x| wrap(k, int(k, x[0]) - int(k, x[1]))));
        g.add(form(format!("sad.{k}"), k, &[k, k, k], move |x| {
            wrap(k, int(k, x[2]) + (int(k, x[0]) - int(k, x[1])).abs())
        }));
    }
    for (pair, k) in PAIRS {
        g.add(
            form(format!("add.{pair}"), pair, &[pair, pair], move |x| {
                halves(x, |x| wrap(k, int(k, x[0]) + int(k, x[1])))
            })
            .needs(90, 80),
        );
    }
    g.add(form("add.sat.s32", S32, &[S32, S32], |x| clamp(S32, int(S32, x[0]) + int(S32, x[1]))));
    g.add(form("sub.sat.s32", S32, &[S32, S32], |x| clamp(S32, int(S32, x[0]) - int(S32, x[1]))));
    for k in [S16, S32, S64] {
        g.add(form(format!("abs.{k}"), k, &[k], move |x| wrap(k, int(k, x[0]).abs())));
        g.add(form(format!("neg.{k}"), k, &[k], move |x| wrap(k, -int(k, x[0]))));
    }
}

fn products(g: &mut Grammar) {
    for k in ALL {
        let product = move |x: &[u64]| int(k, x[0]) * int(k, x[1]);
        g.add(form(format!("mul.lo.{k}"), k, &[k, k], move |x| low_product(k, x[0], x[1], 0)));
        g.add(form(format!("mul.hi.{k}"), k, &[k, k], move |x| high_product(k, x[0], x[1], 0)));
        g.add(form(format!("mad.lo.{k}"), k, &[k, k, k], move |x| low_product(k, x[0], x[1], x[2])));
        g.add(form(format!("mad.hi.{k}"), k, &[k, k, k], move |x| high_product(k, x[0], x[1], x[2])));
        if k.bits() < 64 {
            let w = wide(k);
            g.add(form(format!("mul.wide.{k}"), w, &[k, k], move |x| wrap(w, product(x))));
            g.add(form(format!("mad.wide.{k}"), w, &[k, k, w], move |x| wrap(w, product(x) + int(w, x[2]))));
        }
    }
    g.add(form("mad.hi.sat.s32", S32, &[S32; 3], |x| {
        clamp(S32, ((int(S32, x[0]) * int(S32, x[1])) >> 32) + int(S32, x[2]))
    }));
    for k in [U32, S32] {
        // The low 24 bits of each, as 24-bit integers.
        let cut = move |x: u64| if k == S32 { i128::from((x as i32) << 8 >> 8) } else { i128::from(x & 0xff_ffff) };
        let product = move |x: &[u64]| cut(x[0]) * cut(x[1]);
        g.add(form(format!("mul24.lo.{k}"), k, &[k, k], move |x| wrap(k, product(x))));
        g.add(form(format!("mul24.hi.{k}"), k, &[k, k], move |x| wrap(k, product(x) >> 16)));
        g.add(form(format!("mad24.lo.{k}"), k, &[k; 3], move |x| wrap(k, product(x) + int(k, x[2]))));
        g.add(form(format!("mad24.hi.{k}"), k, &[k; 3], move |x| wrap(k, (product(x) >> 16) + int(k, x[2]))));
    }
    g.add(form("mad24.hi.sat.s32", S32, &[S32; 3], |x| {
        let cut = |x: u64| i128::from((x as i32) << 8 >> 8);
        clamp(S32, ((cut(x[0]) * cut(x[1])) >> 16) + int(S32, x[2]))
    }));
}

/// Returns the low half of a product and a sum; the product of two unsigned 64-bit integers still fits.
fn low_product(k: Kind, a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a & k.mask()) * u128::from(b & k.mask());
    (product as u64).wrapping_add(c) & k.mask()
}

fn high_product(k: Kind, a: u64, b: u64, c: u64) -> u64 {
    let high = if k.is_signed() {
        (int(k, a) * int(k, b)) >> k.bits()
    } else {
        // The product of two unsigned 64-bit integers needs all 128 bits.
        ((u128::from(a & k.mask()) * u128::from(b & k.mask())) >> k.bits()) as i128
    };
    wrap(k, high + int(k, c))
}

fn divisions(g: &mut Grammar) {
    for k in ALL {
        // The ISA does not define division by zero or a quotient that does not fit, so no case has them.
        let rows = |count: usize| {
            let all = crate::inputs::rows(&[k, k], &crate::recipe::Rows::Edges { count, and: Vec::new() }, "divisions");
            all.into_iter()
                .filter(|row| {
                    int(k, row[1]) != 0 && !(k.is_signed() && int(k, row[0]) == least(k) && int(k, row[1]) == -1)
                })
                .collect::<Vec<_>>()
        };
        g.add(
            form(format!("div.{k}"), k, &[k, k], move |x| wrap(k, int(k, x[0]) / int(k, x[1])))
                .given(rows(40))
                .composed(),
        );
        g.add(
            form(format!("rem.{k}"), k, &[k, k], move |x| wrap(k, int(k, x[0]) % int(k, x[1])))
                .given(rows(40))
                .composed(),
        );
    }
}

fn extremes(g: &mut Grammar) {
    for (name, greater) in [("min", false), ("max", true)] {
        let pick = move |k: Kind, x: &[u64]| {
            let (a, b) = (int(k, x[0]), int(k, x[1]));
            wrap(k, if greater { a.max(b) } else { a.min(b) })
        };
        for k in ALL {
            g.add(form(format!("{name}.{k}"), k, &[k, k], move |x| pick(k, x)));
        }
        for (pair, k) in PAIRS {
            g.add(form(format!("{name}.{pair}"), pair, &[pair; 2], move |x| halves(x, |x| pick(k, x))).needs(90, 80));
        }
        let positive = move |k: Kind, x: &[u64]| wrap(k, int(k, pick(k, x)).max(0));
        g.add(
            form(format!("{name}.relu.s16x2"), S16x2, &[S16x2; 2], move |x| halves(x, |x| positive(S16, x)))
                .needs(90, 80),
        );
        g.add(form(format!("{name}.relu.s32"), S32, &[S32; 2], move |x| positive(S32, x)).needs(90, 80));
    }
}

fn counts(g: &mut Grammar) {
    for k in [B32, B64] {
        g.add(form(format!("popc.{k}"), U32, &[k], |x| x[0].count_ones().into()));
        g.add(form(format!("clz.{k}"), U32, &[k], move |x| {
            (0..k.bits()).take_while(|bit| x[0] >> (k.bits() - 1 - bit) & 1 == 0).count() as u64
        }));
        g.add(form(format!("brev.{k}"), k, &[k], move |x| {
            (0..k.bits()).fold(0, |value, bit| value | (x[0] >> bit & 1) << (k.bits() - 1 - bit))
        }));
    }
    for k in [U32, U64, S32, S64] {
        // The highest bit that differs from the sign; all ones if there is none.
        let highest = move |x: u64| {
            let value = int(k, x);
            (0..k.bits()).rev().find(|bit| (if value < 0 { !value } else { value }) >> bit & 1 != 0)
        };
        g.add(form(format!("bfind.{k}"), U32, &[k], move |x| highest(x[0]).map_or(0xffff_ffff, u64::from)));
        g.add(form(format!("bfind.shiftamt.{k}"), U32, &[k], move |x| {
            highest(x[0]).map_or(0xffff_ffff, |bit| u64::from(k.bits() - 1 - bit))
        }));
    }
    // The n-th set bit of a mask from a base on, upwards or downwards; all ones if there is none.
    let nth = |x: &[u64]| {
        let (mask, base, offset) = (x[0] as u32, x[1] as i64, x[2] as u32 as i32);
        let bits: Vec<i64> = match offset {
            0 => vec![base],
            1.. => (base..32).collect(),
            _ => (0..=base).rev().collect(),
        };
        let mut set = bits.into_iter().filter(|bit| mask >> bit & 1 != 0);
        set.nth(offset.unsigned_abs().saturating_sub(1) as usize).map_or(0xffff_ffff, |bit| bit as u64)
    };
    let mut rows = Vec::new();
    for mask in [0u64, 1, 0x8000_0000, 0xffff_ffff, 0x1234_5678, 0x8000_0001] {
        for (base, offset) in [(0, 1i32), (0, 0), (31, 0), (31, -1), (5, 2), (16, -3), (3, 40)] {
            rows.push(vec![mask, base, u64::from(offset as u32)]);
        }
    }
    g.add(form("fns.b32", B32, &[B32, B32, S32], nth).given(rows).composed());
}

fn fields(g: &mut Grammar) {
    // Start and length have eight bits; bits past the end of the value are copies of the sign.
    let starts: Vec<Vec<u64>> = [0, 1, 31, 32, 63, 64, 255, 256, 0xffff_ff04].iter().map(|n| vec![*n]).collect();
    let fields = |prefix: &[u64]| {
        let mut rows = Vec::new();
        for (index, start) in starts.iter().enumerate() {
            for length in [0u64, 1, 8, 32, 64, 0x1_05] {
                let value = 0xfedc_ba98_7654_3210u64.rotate_left(7 * index as u32 + length as u32);
                let mut row: Vec<u64> = prefix.iter().map(|_| value).collect();
                if let Some(second) = row.get_mut(1) {
                    *second = !value.rotate_left(13);
                }
                row.extend([start[0], length]);
                rows.push(row);
            }
        }
        rows
    };
    let masked = |rows: Vec<Vec<u64>>, k: Kind, values: usize| {
        rows.into_iter()
            .map(|row| row.iter().enumerate().map(|(i, v)| if i < values { v & k.mask() } else { *v }).collect())
            .collect::<Vec<Vec<u64>>>()
    };
    for k in [U32, U64, S32, S64] {
        let extract = move |x: &[u64]| {
            let (start, length) = ((x[1] & 0xff) as u32, (x[2] & 0xff) as u32);
            let top = (start + length).saturating_sub(1).min(k.bits() - 1);
            let sign = k.is_signed() && length > 0 && x[0] >> top & 1 != 0;
            let bit = |i: u32| if i < length && start + i < k.bits() { x[0] >> (start + i) & 1 != 0 } else { sign };
            (0..k.bits()).fold(0, |value, i| value | u64::from(bit(i)) << i)
        };
        g.add(form(format!("bfe.{k}"), k, &[k, U32, U32], extract).given(masked(fields(&[0]), k, 1)));
    }
    for k in [B32, B64] {
        let insert = move |x: &[u64]| {
            let (start, length) = ((x[2] & 0xff) as u32, (x[3] & 0xff) as u32);
            (0..length)
                .take_while(|i| start + i < k.bits())
                .fold(x[1], |value, i| value & !(1 << (start + i)) | (x[0] >> i & 1) << (start + i))
        };
        g.add(form(format!("bfi.{k}"), k, &[k, k, U32, U32], insert).given(masked(fields(&[0, 0]), k, 2)));
    }
    for mode in ["clamp", "wrap"] {
        let shift = move |amount: u64| if mode == "clamp" { amount.min(32) as u32 } else { (amount & 31) as u32 };
        for k in [U32, S32] {
            g.add(
                form(format!("szext.{mode}.{k}"), k, &[k, U32], move |x| {
                    let bits = shift(x[1]);
                    let kept = (1u128 << bits) - 1;
                    let negative = k.is_signed() && bits > 0 && x[0] >> (bits - 1) & 1 != 0;
                    (x[0] & kept as u64) | if negative { !(kept as u64) & k.mask() } else { 0 }
                })
                .needs(70, 76),
            );
        }
        g.add(
            form(format!("bmsk.{mode}.b32"), B32, &[U32, U32], move |x| {
                let (start, length) = (shift(x[0]), shift(x[1]));
                (start..32.min(start + length)).fold(0, |mask, bit| mask | 1 << bit)
            })
            .needs(70, 76),
        );
    }
}

fn dots(g: &mut Grammar) {
    let part = |k: Kind, bits: u32, x: u64, at: u32| {
        let cut = x >> (at * bits) & ((1 << bits) - 1);
        if k == S32 && cut >> (bits - 1) != 0 { i128::from(cut) - (1 << bits) } else { i128::from(cut) }
    };
    for a in [U32, S32] {
        for b in [U32, S32] {
            let c = if a == U32 && b == U32 { U32 } else { S32 };
            g.add(form(format!("dp4a.{a}.{b}"), c, &[a, b, c], move |x| {
                wrap(c, int(c, x[2]) + (0..4).map(|i| part(a, 8, x[0], i) * part(b, 8, x[1], i)).sum::<i128>())
            }));
            for (name, first) in [("lo", 0), ("hi", 2)] {
                g.add(form(format!("dp2a.{name}.{a}.{b}"), c, &[a, b, c], move |x| {
                    wrap(
                        c,
                        int(c, x[2]) + (0..2).map(|i| part(a, 16, x[0], i) * part(b, 8, x[1], first + i)).sum::<i128>(),
                    )
                }));
            }
        }
    }
}

/// Carries: `%a` and `%b` produce a carry or none, which the form reads; another instruction reads the carry that it
/// leaves.
fn carries(g: &mut Grammar) {
    for k in [U32, S32, U64, S64] {
        let u = if k.bits() == 32 { U32 } else { U64 };
        let (least, most) = (least(u), most(u));
        let out = move |sum: i128| u64::from(sum < least || sum > most);
        for cc in [false, true] {
            let end = if cc { ".cc" } else { "" };
            // Without `.cc` the flag is unchanged.
            let kept = move |sum: i128, before: u64| if cc { out(sum) } else { before };
            let set = format!("add.cc.{k} %d, %c, %c;\n");
            let (take, take_borrow) = (format!("addc.{u} %q, 0, 0;"), format!("subc.{u} %q, 0, 0;"));
            let before = move |x: &[u64]| out(2 * int(u, x[2]));
            let borrowed = move |x: &[u64]| out(int(u, x[2]) - int(u, x[0]));
            let borrow = format!("sub.cc.{k} %d, %c, %a;\n");
            // 0 - 0 - borrow.
            let all = move |flag: u64| if flag == 1 { u.mask() } else { 0 };
            g.add(
                forms(format!("addc{end}.{k}"), &[k, u], &[k; 3], move |x| {
                    let sum = int(u, x[0]) + int(u, x[1]) + i128::from(before(x));
                    vec![wrap(u, sum), kept(sum, before(x))]
                })
                .code(format!("{set}addc{end}.{k} %d, %a, %b;\n{take}"))
                .plain(),
            );
            g.add(
                forms(format!("subc{end}.{k}"), &[k, u], &[k; 3], move |x| {
                    let sum = int(u, x[0]) - int(u, x[1]) - i128::from(borrowed(x));
                    vec![wrap(u, sum), all(kept(sum, borrowed(x)))]
                })
                .code(format!("{borrow}subc{end}.{k} %d, %a, %b;\n{take_borrow}"))
                .plain(),
            );
            for hi in [false, true] {
                let half = if hi { "hi" } else { "lo" };
                let product =
                    move |x: &[u64]| if hi { high_product(k, x[0], x[1], 0) } else { low_product(k, x[0], x[1], 0) };
                g.add(
                    forms(format!("madc.{half}{end}.{k}"), &[k, u], &[k; 3], move |x| {
                        let sum = int(u, product(x)) + int(u, x[2]) + i128::from(before(x));
                        vec![wrap(u, sum), kept(sum, before(x))]
                    })
                    .code(format!("{set}madc.{half}{end}.{k} %d, %a, %b, %c;\n{take}"))
                    .plain(),
                );
                if cc {
                    g.add(
                        forms(format!("mad.{half}.cc.{k}"), &[k, u], &[k; 3], move |x| {
                            let sum = int(u, product(x)) + int(u, x[2]);
                            vec![wrap(u, sum), out(sum)]
                        })
                        .code(format!("mad.{half}.cc.{k} %d, %a, %b, %c;\n{take}"))
                        .plain(),
                    );
                }
            }
        }
        g.add(
            forms(format!("add.cc.{k}"), &[k, u], &[k; 2], move |x| {
                let sum = int(u, x[0]) + int(u, x[1]);
                vec![wrap(u, sum), out(sum)]
            })
            .code(format!("add.cc.{k} %d, %a, %b;\naddc.{u} %q, 0, 0;"))
            .plain(),
        );
        g.add(
            forms(format!("sub.cc.{k}"), &[k, u], &[k; 2], move |x| {
                let sum = int(u, x[0]) - int(u, x[1]);
                vec![wrap(u, sum), if sum < 0 { u.mask() } else { 0 }]
            })
            .code(format!("sub.cc.{k} %d, %a, %b;\nsubc.{u} %q, 0, 0;"))
            .plain(),
        );
    }
}
