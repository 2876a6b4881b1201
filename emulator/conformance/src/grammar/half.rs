//! Floating-point arithmetic on f16, bf16 and pairs of them.

use super::{
    Grammar,
    float::{extreme, switch, wrapped},
};
use crate::{
    compare::Tolerance::{Absolute, Relative},
    kind::Kind::{self, *},
    recipe::{Form, form},
    scalar::{
        float::{Format, Mode, Number, approximate, multiply, nearest, negate, sum},
        integer::halves,
    },
};

pub const SMALL: [Kind; 4] = [F16, F16x2, Bf16, Bf16x2];

/// A form on one float, or on both floats of a pair.
fn small(text: String, k: Kind, count: usize, eval: impl Fn(&[u64]) -> u64 + 'static) -> Form {
    let inputs = vec![k; count];
    if k.lanes() == 2 { form(text, k, &inputs, move |x| halves(x, &eval)) } else { form(text, k, &inputs, eval) }
}

pub fn add(g: &mut Grammar) {
    for k in SMALL {
        let format = Format::of(k.element().expect("a small float"));
        let brain = matches!(k, Bf16 | Bf16x2);
        sums(g, k, format, brain);
        fused(g, k, format, brain);
        extremes(g, k, format, brain);
        signs(g, k, format, brain);
        approximations(g, k, format, brain);
    }
}

type Operation = fn(&[Number]) -> Number;

fn sums(g: &mut Grammar, k: Kind, f: Format, brain: bool) {
    let operations: [(&str, Operation); 3] = [
        ("add", |x| sum(x[0], x[1], Mode::Nearest)),
        ("sub", |x| sum(x[0], negate(x[1]), Mode::Nearest)),
        ("mul", |x| multiply(x[0], x[1])),
    ];
    for (name, op) in operations {
        for rounding in ["", ".rn"] {
            for (ftz, flushes) in switch(".ftz") {
                for (sat, saturates) in switch(".sat") {
                    if brain && (flushes || saturates) {
                        continue;
                    }
                    let made = small(
                        format!("{name}{rounding}{ftz}{sat}.{k}"),
                        k,
                        2,
                        wrapped(f, flushes, saturates, move |x| (op(x), Mode::Nearest)),
                    );
                    g.add(if brain { made.needs(90, 78) } else { made });
                }
            }
        }
    }
}

fn fused(g: &mut Grammar, k: Kind, f: Format, brain: bool) {
    let product = |x: &[Number]| (sum(multiply(x[0], x[1]), x[2], Mode::Nearest), Mode::Nearest);
    for (ftz, flushes) in switch(".ftz") {
        for (last, saturates, positive) in [("", false, false), (".sat", true, false), (".relu", false, true)] {
            if brain && (flushes || saturates) {
                continue;
            }
            let value = wrapped(f, flushes, saturates, product);
            let made = small(format!("fma.rn{ftz}{last}.{k}"), k, 3, move |x| {
                let value = value(x);
                if positive { f.relu(value) } else { value }
            });
            g.add(if brain || positive { made.needs(80, 70) } else { made });
        }
    }
    // `.oob` concerns the NaN with which tensor copies fill elements out of bounds; the ISA does not define its bits.
    for relu in ["", ".relu"] {
        let made = small(format!("fma.rn.oob{relu}.{k}"), k, 3, |_| 0);
        g.add(made.needs(90, 81).open());
    }
}

fn extremes(g: &mut Grammar, k: Kind, f: Format, brain: bool) {
    for (name, greater) in [("min", false), ("max", true)] {
        for (ftz, flushes) in switch(".ftz") {
            for (nan, keeps) in switch(".NaN") {
                for (xorsign, sign) in switch(".xorsign.abs") {
                    if brain && flushes {
                        continue;
                    }
                    let made = small(format!("{name}{ftz}{nan}{xorsign}.{k}"), k, 2, move |x| {
                        let x: Vec<u64> = x.iter().map(|x| if flushes { f.flush(*x) } else { *x }).collect();
                        if !sign {
                            return extreme(f, greater, keeps, &x);
                        }
                        let plain: Vec<u64> = x.iter().map(|x| x & !f.sign()).collect();
                        let result = extreme(f, greater, keeps, &plain);
                        if f.is_nan(result) { result } else { result | (x[0] ^ x[1]) & f.sign() }
                    });
                    g.add(if sign { made.needs(86, 72) } else { made.needs(80, 70) });
                }
            }
        }
    }
}

fn signs(g: &mut Grammar, k: Kind, f: Format, brain: bool) {
    for (ftz, flushes) in switch(".ftz") {
        if brain && flushes {
            continue;
        }
        let flushed = move |x: u64| if flushes { f.flush(x) } else { x };
        let abs = small(format!("abs{ftz}.{k}"), k, 1, move |x| flushed(x[0]) & !f.sign()).composed();
        let neg = small(format!("neg{ftz}.{k}"), k, 1, move |x| flushed(x[0]) ^ f.sign()).composed();
        g.add(if brain { abs.needs(80, 70) } else { abs.needs(70, 65) });
        g.add(if brain { neg.needs(80, 70) } else { neg.needs(70, 60) });
    }
}

/// Approximate functions with their tolerances, from the ISA's text on each instruction.
fn approximations(g: &mut Grammar, k: Kind, f: Format, brain: bool) {
    let tanh = move |x: &[u64]| nearest(f, approximate(f, x[0]).tanh());
    let tolerance = Absolute(if brain { -8.0 } else { -10.987 });
    let made = small(format!("tanh.approx.{k}"), k, 1, tanh).within(tolerance);
    g.add(if brain { made.needs(90, 78) } else { made.needs(75, 70) });
    if brain {
        // The only form for bf16 always flushes and has to say so.
        let power = move |x: &[u64]| f.flush(nearest(f, approximate(f, f.flush(x[0])).exp2()));
        g.add(small(format!("ex2.approx.ftz.{k}"), k, 1, power).within(Relative(-7.0)).needs(90, 78));
    } else {
        let power = move |x: &[u64]| nearest(f, approximate(f, x[0]).exp2());
        g.add(small(format!("ex2.approx.{k}"), k, 1, power).within(Relative(-9.9)).needs(75, 70));
    }
}
