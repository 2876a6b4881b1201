//! Comparison and selection (`setp`, `set`, `selp`, `slct`, `min`, `max`).

use super::{Grammar, float::switch};
use crate::{
    kind::Kind::{self, *},
    recipe::{form, forms},
    scalar::{
        float::{BRAIN, Format, HALF, SINGLE},
        integer::int,
    },
};

pub fn add(g: &mut Grammar) {
    for k in [B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64, F16, Bf16] {
        comparisons(g, k);
    }
    pairs(g);
    selections(g);
}

/// Names of relations, and whether each holds for an ordering; `None` is unordered, for NaN.
type Relation = (&'static str, fn(Option<std::cmp::Ordering>) -> bool);

const ORDERED: [Relation; 6] = [
    ("eq", |o| o.is_some_and(|o| o.is_eq())),
    ("ne", |o| o.is_some_and(|o| o.is_ne())),
    ("lt", |o| o.is_some_and(|o| o.is_lt())),
    ("le", |o| o.is_some_and(|o| o.is_le())),
    ("gt", |o| o.is_some_and(|o| o.is_gt())),
    ("ge", |o| o.is_some_and(|o| o.is_ge())),
];

const UNSIGNED: [Relation; 4] = [
    ("lo", |o| o.is_some_and(|o| o.is_lt())),
    ("ls", |o| o.is_some_and(|o| o.is_le())),
    ("hi", |o| o.is_some_and(|o| o.is_gt())),
    ("hs", |o| o.is_some_and(|o| o.is_ge())),
];

const UNORDERED: [Relation; 8] = [
    ("equ", |o| o.is_none_or(|o| o.is_eq())),
    ("neu", |o| o.is_none_or(|o| o.is_ne())),
    ("ltu", |o| o.is_none_or(|o| o.is_lt())),
    ("leu", |o| o.is_none_or(|o| o.is_le())),
    ("gtu", |o| o.is_none_or(|o| o.is_gt())),
    ("geu", |o| o.is_none_or(|o| o.is_ge())),
    ("num", |o| o.is_some()),
    ("nan", |o| o.is_none()),
];

fn relations(k: Kind) -> Vec<Relation> {
    let mut all = ORDERED.to_vec();
    match k {
        B16 | B32 | B64 => all.truncate(2),
        U16 | U32 | U64 => all.extend(UNSIGNED),
        _ if k.is_float() => all.extend(UNORDERED),
        _ => {}
    }
    all
}

fn order(k: Kind, ftz: bool, a: u64, b: u64) -> Option<std::cmp::Ordering> {
    if k.is_float() {
        let f = Format::of(k);
        let place = |x: u64| f.place(if ftz { f.flush(x) } else { x });
        return (!f.is_nan(a) && !f.is_nan(b)).then(|| place(a).cmp(&place(b)));
    }
    Some(int(k, a).cmp(&int(k, b)))
}

/// Boolean operation that combines the result with another predicate.
type Join = (&'static str, fn(bool, bool) -> bool);
const JOINS: [Join; 4] = [("", |t, _| t), (".and", |t, c| t && c), (".or", |t, c| t || c), (".xor", |t, c| t != c)];

fn comparisons(g: &mut Grammar, k: Kind) {
    let (sm, ptx) = match k {
        F16 => (70, 65),
        Bf16 => (90, 78),
        _ => (70, 70),
    };
    for (relation, holds) in relations(k) {
        for (ftz, flushes) in switch(".ftz") {
            if flushes && !matches!(k, F32 | F16) {
                continue;
            }
            for (join, joined) in JOINS {
                let third = if join.is_empty() { "" } else { ", %c" };
                let file = format!("{relation}{ftz}.{k}");
                let first = move |x: &[u64]| holds(order(k, flushes, x[0], x[1]));
                let text = format!("setp.{relation}{join}{ftz}.{k}");
                if k.element().is_some_and(|k| k.bits() == 16) {
                    let made = form(text.clone(), Pred, &[k, k, Pred], move |x| joined(first(x), x[2] != 0).into());
                    g.add(made.file(&file).code(format!("{text} %d, %a, %b{third};")).plain().needs(sm, ptx));
                } else {
                    // With both results: the second combines the negated comparison.
                    let both = forms(text.clone(), &[Pred, Pred], &[k, k, Pred], move |x| {
                        vec![joined(first(x), x[2] != 0).into(), joined(!first(x), x[2] != 0).into()]
                    });
                    g.add(both.file(&file).code(format!("{text} %d|%q, %a, %b{third};")).plain().needs(sm, ptx));
                }
                let words = [(U32, 0xffff_ffff), (S32, 0xffff_ffff)];
                let more = match k {
                    F16 => vec![(F16, HALF.one()), (U16, 0xffff), (S16, 0xffff)],
                    Bf16 => vec![(Bf16, BRAIN.one()), (U16, 0xffff), (S16, 0xffff)],
                    _ => vec![(F32, SINGLE.one()), (F16, HALF.one()), (Bf16, BRAIN.one())],
                };
                for (result, one) in words.into_iter().chain(more) {
                    if flushes && result == Bf16 {
                        continue;
                    }
                    let text = format!("set.{relation}{join}{ftz}.{result}.{k}");
                    let made =
                        form(
                            text.clone(),
                            result,
                            &[k, k, Pred],
                            move |x| {
                                if joined(first(x), x[2] != 0) { one } else { 0 }
                            },
                        );
                    let made = made.code(format!("{text} %d, %a, %b{third};")).plain().needs(sm, ptx);
                    g.add(match result {
                        // In a file of its own, so that older devices can run the others.
                        Bf16 => made.file(format!("{file}.bf16")).needs(90, 78),
                        _ => made.file(&file),
                    });
                }
            }
        }
    }
}

/// Pairs are compared separately: `setp` has one predicate for each, `set` one half of its result.
fn pairs(g: &mut Grammar) {
    for (k, e, one) in [(F16x2, F16, HALF.one()), (Bf16x2, Bf16, BRAIN.one())] {
        for (relation, holds) in relations(e) {
            for (ftz, flushes) in switch(".ftz") {
                if flushes && k != F16x2 {
                    continue;
                }
                let (sm, ptx) = if k == F16x2 { (70, 65) } else { (90, 78) };
                for (join, joined) in JOINS {
                    let third = if join.is_empty() { "" } else { ", %c" };
                    let file = format!("{relation}{ftz}.{k}");
                    let half = move |x: &[u64], shift: u32| {
                        let part = |x: u64| x >> shift & 0xffff;
                        joined(holds(order(e, flushes, part(x[0]), part(x[1]))), x[2] != 0)
                    };
                    let text = format!("setp.{relation}{join}{ftz}.{k}");
                    let both = forms(text.clone(), &[Pred, Pred], &[k, k, Pred], move |x| {
                        vec![half(x, 0).into(), half(x, 16).into()]
                    });
                    g.add(both.file(&file).code(format!("{text} %d|%q, %a, %b{third};")).plain().needs(sm, ptx));
                    for (result, one) in [(k, one), (U32, 0xffff), (S32, 0xffff)] {
                        let text = format!("set.{relation}{join}{ftz}.{result}.{k}");
                        let made = form(text.clone(), result, &[k, k, Pred], move |x| {
                            let value = |shift| if half(x, shift) { one } else { 0 };
                            value(0) | value(16) << 16
                        });
                        g.add(made.file(&file).code(format!("{text} %d, %a, %b{third};")).plain().needs(sm, ptx));
                    }
                }
            }
        }
    }
}

fn selections(g: &mut Grammar) {
    let all = [B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64];
    for k in all {
        g.add(form(format!("selp.{k}"), k, &[k, k, Pred], |x| if x[2] != 0 { x[0] } else { x[1] }));
        g.add(form(format!("slct.{k}.s32"), k, &[k, k, S32], |x| if x[2] as i32 >= 0 { x[0] } else { x[1] }));
        for (ftz, _) in switch(".ftz") {
            // −0 counts as 0, and so does a flushed subnormal; a NaN selects the second.
            let flushes = !ftz.is_empty();
            g.add(form(format!("slct{ftz}.{k}.f32"), k, &[k, k, F32], move |x| {
                let f = SINGLE;
                let c = if flushes { f.flush(x[2]) } else { x[2] };
                if !f.is_nan(c) && f.place(c) >= 0 { x[0] } else { x[1] }
            }));
        }
    }
}
