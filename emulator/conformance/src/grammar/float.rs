//! Floating-point arithmetic on f32 and f64.

use super::Grammar;
use crate::{
    compare::Tolerance::{self, Absolute, Relative, Ulp},
    kind::Kind::*,
    recipe::{Form, form},
    scalar::float::{
        DOUBLE, Format, MODES, Mode, Number, SINGLE, approximate, decode, divide, encode, multiply, nearest, root, sum,
    },
};

pub fn add(g: &mut Grammar) {
    sums(g);
    quotients(g);
    signs(g);
    extremes(g);
    classes(g);
    approximations(g);
}

/// Returns the rounding modes with their spellings; no modifier means `.rn`.
fn spelled_modes() -> Vec<(String, Mode)> {
    let named = MODES.iter().map(|(name, mode)| (format!(".{name}"), *mode));
    std::iter::once((String::new(), Mode::Nearest)).chain(named).collect()
}

/// Returns both settings of a modifier, with its spelling.
pub fn switch(text: &'static str) -> [(&'static str, bool); 2] {
    [("", false), (text, true)]
}

/// Wraps an operation: applies `.ftz` to the inputs, and `.ftz` and `.sat` to the result.
pub fn wrapped(
    f: Format,
    ftz: bool,
    sat: bool,
    op: impl Fn(&[Number]) -> (Number, Mode) + 'static,
) -> impl Fn(&[u64]) -> u64 {
    move |x| {
        let inputs: Vec<Number> = x.iter().map(|bits| decode(f, if ftz { f.flush(*bits) } else { *bits })).collect();
        let (result, mode) = op(&inputs);
        let result = encode(f, result, mode);
        let result = if ftz { f.flush(result) } else { result };
        if sat { f.saturate(result) } else { result }
    }
}

fn sums(g: &mut Grammar) {
    for (k, f) in [(F32, SINGLE), (F64, DOUBLE)] {
        for (ftz, flushes) in switch(".ftz") {
            for (sat, saturates) in switch(".sat") {
                if k == F64 && (flushes || saturates) {
                    continue;
                }
                for (rounding, mode) in spelled_modes() {
                    let rest = format!("{rounding}{ftz}{sat}.{k}");
                    let file = format!("{ftz}{sat}.{k}").trim_start_matches('.').to_owned();
                    let mut add = |form: Form| g.add(form.file(&file));
                    add(form(
                        format!("add{rest}"),
                        k,
                        &[k, k],
                        wrapped(f, flushes, saturates, move |x| (sum(x[0], x[1], mode), mode)),
                    ));
                    add(form(
                        format!("sub{rest}"),
                        k,
                        &[k, k],
                        wrapped(f, flushes, saturates, move |x| {
                            (sum(x[0], crate::scalar::float::negate(x[1]), mode), mode)
                        }),
                    ));
                    add(form(
                        format!("mul{rest}"),
                        k,
                        &[k, k],
                        wrapped(f, flushes, saturates, move |x| (multiply(x[0], x[1]), mode)),
                    ));
                    if rounding.is_empty() {
                        continue;
                    }
                    for name in ["fma", "mad"] {
                        add(form(
                            format!("{name}{rest}"),
                            k,
                            &[k; 3],
                            wrapped(f, flushes, saturates, move |x| (sum(multiply(x[0], x[1]), x[2], mode), mode)),
                        ));
                    }
                }
            }
        }
    }
}

fn quotients(g: &mut Grammar) {
    for (k, f) in [(F32, SINGLE), (F64, DOUBLE)] {
        for (ftz, flushes) in switch(".ftz") {
            if k == F64 && flushes {
                continue;
            }
            for (rounding, mode) in MODES {
                let rest = format!("{rounding}{ftz}.{k}");
                let file = format!("{ftz}.{k}").trim_start_matches('.').to_owned();
                let mut add = |form: Form| g.add(form.file(&file));
                add(form(
                    format!("div.{rest}"),
                    k,
                    &[k, k],
                    wrapped(f, flushes, false, move |x| (divide(x[0], x[1]), mode)),
                ));
                let one = decode(f, f.one());
                add(form(
                    format!("rcp.{rest}"),
                    k,
                    &[k],
                    wrapped(f, flushes, false, move |x| (divide(one, x[0]), mode)),
                ));
                add(form(format!("sqrt.{rest}"), k, &[k], wrapped(f, flushes, false, move |x| (root(x[0]), mode))));
            }
        }
    }
}

fn signs(g: &mut Grammar) {
    for (k, f) in [(F32, SINGLE), (F64, DOUBLE)] {
        for (ftz, flushes) in switch(".ftz") {
            if k == F64 && flushes {
                continue;
            }
            let flushed = move |x: u64| if flushes { f.flush(x) } else { x };
            // The ISA does not define which NaN results from a NaN.
            g.add(form(format!("abs{ftz}.{k}"), k, &[k], move |x| flushed(x[0]) & !f.sign()).composed());
            g.add(form(format!("neg{ftz}.{k}"), k, &[k], move |x| flushed(x[0]) ^ f.sign()).composed());
        }
        g.add(form(format!("copysign.{k}"), k, &[k, k], move |x| x[0] & f.sign() | x[1] & !f.sign()));
    }
}

/// Returns the lesser or greater of two, where −0 is less than +0.
pub fn extreme(f: Format, greater: bool, nan: bool, x: &[u64]) -> u64 {
    let (a, b) = (x[0], x[1]);
    match (f.is_nan(a), f.is_nan(b)) {
        (true, true) => return f.nan,
        (true, false) | (false, true) if nan => return f.nan,
        (true, false) => return b,
        (false, true) => return a,
        _ => {}
    }
    let less = (f.place(a), !f.is_negative(a)) < (f.place(b), !f.is_negative(b));
    if less == greater { b } else { a }
}

fn extremes(g: &mut Grammar) {
    for (name, greater) in [("min", false), ("max", true)] {
        for (ftz, flushes) in switch(".ftz") {
            for (nan, keeps) in switch(".NaN") {
                for (xorsign, sign) in switch(".xorsign.abs") {
                    let value = move |x: &[u64]| {
                        let x: Vec<u64> = x.iter().map(|x| if flushes { SINGLE.flush(*x) } else { *x }).collect();
                        if !sign {
                            return extreme(SINGLE, greater, keeps, &x);
                        }
                        let plain: Vec<u64> = x.iter().map(|x| x & !SINGLE.sign()).collect();
                        let result = extreme(SINGLE, greater, keeps, &plain);
                        if SINGLE.is_nan(result) { result } else { result | (x[0] ^ x[1]) & SINGLE.sign() }
                    };
                    let text = format!("{name}{ftz}{nan}{xorsign}.f32");
                    let made = form(text, F32, &[F32, F32], value);
                    g.add(match (keeps, sign) {
                        (_, true) => made.needs(86, 72),
                        (true, _) => made.needs(80, 70),
                        _ => made,
                    });
                }
            }
        }
        g.add(form(format!("{name}.f64"), F64, &[F64, F64], move |x| extreme(DOUBLE, greater, false, x)));
    }
}

/// Reports whether bits are of a class (`testp`).
type Test = Box<dyn Fn(u64) -> bool>;

fn classes(g: &mut Grammar) {
    for (k, f) in [(F32, SINGLE), (F64, DOUBLE)] {
        let special = move |x: u64| f.is_nan(x) || f.is_infinite(x);
        let all: [(&str, Test); 6] = [
            ("finite", Box::new(move |x| !special(x))),
            ("infinite", Box::new(move |x| f.is_infinite(x))),
            ("number", Box::new(move |x| !f.is_nan(x))),
            ("notanumber", Box::new(move |x| f.is_nan(x))),
            // The ISA: "zeros are considered normal numbers".
            ("normal", Box::new(move |x| !special(x) && !f.is_subnormal(x))),
            ("subnormal", Box::new(move |x| f.is_subnormal(x))),
        ];
        for (class, test) in all {
            g.add(form(format!("testp.{class}.{k}"), Pred, &[k], move |x| test(x[0]).into()));
        }
    }
}

/// A function that no device rounds correctly, with the error that the ISA allows.
struct Approximation {
    text: &'static str,
    function: fn(f64) -> f64,
    tolerance: Tolerance,
    /// The inputs for which the tolerance holds, in addition to zeros, infinities and NaN.
    holds: fn(f64) -> bool,
    /// Distinguishes the file from those for other inputs.
    inputs: &'static str,
}

/// Approximate functions with their tolerances, from the ISA's text on each instruction.
const APPROXIMATIONS: [Approximation; 9] = [
    Approximation { text: "rcp.approx", function: |x| 1.0 / x, tolerance: Ulp(1), holds: |_| true, inputs: "" },
    Approximation { text: "sqrt.approx", function: f64::sqrt, tolerance: Relative(-23.0), holds: |_| true, inputs: "" },
    Approximation {
        text: "rsqrt.approx",
        function: |x| 1.0 / x.sqrt(),
        tolerance: Relative(-22.9),
        holds: |_| true,
        inputs: "",
    },
    Approximation {
        text: "sin.approx",
        function: f64::sin,
        tolerance: Absolute(-20.5),
        holds: |x| x.abs() <= std::f64::consts::TAU,
        inputs: "",
    },
    Approximation {
        text: "cos.approx",
        function: f64::cos,
        tolerance: Absolute(-20.5),
        holds: |x| x.abs() <= std::f64::consts::TAU,
        inputs: "",
    },
    Approximation {
        text: "lg2.approx",
        function: f64::log2,
        tolerance: Absolute(-22.0),
        holds: |x| x > 0.5 && x < 2.0,
        inputs: ".near.one",
    },
    Approximation {
        text: "lg2.approx",
        function: f64::log2,
        tolerance: Relative(-22.0),
        holds: |x| x <= 0.5 || x >= 2.0,
        inputs: "",
    },
    Approximation { text: "ex2.approx", function: f64::exp2, tolerance: Ulp(2), holds: |_| true, inputs: "" },
    Approximation { text: "tanh.approx", function: f64::tanh, tolerance: Relative(-11.0), holds: |_| true, inputs: "" },
];

fn approximations(g: &mut Grammar) {
    for approximation in APPROXIMATIONS {
        for (ftz, flushes) in switch(".ftz") {
            let Approximation { text, function, tolerance, holds, inputs } = approximation;
            let is_tanh = text == "tanh.approx";
            if is_tanh && flushes {
                continue;
            }
            let made = form(format!("{text}{ftz}.f32"), F32, &[F32], move |x| {
                let x = if flushes { SINGLE.flush(x[0]) } else { x[0] };
                let result = nearest(SINGLE, function(approximate(SINGLE, x)));
                if flushes { SINGLE.flush(result) } else { result }
            });
            let made = made.within(tolerance).given(arguments(holds));
            let made = made.file(format!("approx{ftz}.f32{inputs}"));
            g.add(if is_tanh { made.needs(75, 70) } else { made });
        }
    }
    for (ftz, flushes) in switch(".ftz") {
        for (name, powers) in [("approx", 126), ("full", 126)] {
            let rows = quotient_rows(powers);
            g.add(
                form(format!("div.{name}{ftz}.f32"), F32, &[F32, F32], move |x| {
                    let part = |x: u64| approximate(SINGLE, if flushes { SINGLE.flush(x) } else { x });
                    let result = nearest(SINGLE, part(x[0]) / part(x[1]));
                    if flushes { SINGLE.flush(result) } else { result }
                })
                .within(Ulp(2))
                .given(rows),
            );
        }
    }
    g.add(high_word("rcp.approx.ftz.f64", |x| 1.0 / x));
    g.add(high_word("rsqrt.approx.ftz.f64", |x| 1.0 / x.sqrt()).file("approx.f64"));
    g.add(
        form("rsqrt.approx.f64", F64, &[F64], |x| nearest(DOUBLE, 1.0 / approximate(DOUBLE, x[0]).sqrt()))
            .within(Relative(-22.9))
            .file("approx.f64.plain"),
    );
}

/// A coarse approximation: it reads the upper 32 bits of an f64 and returns 20 bits of fraction; the lower word is
/// zero.
fn high_word(text: &str, function: fn(f64) -> f64) -> Form {
    form(text, F64, &[F64], move |x| {
        let top = DOUBLE.flush(x[0]) & 0xffff_ffff_0000_0000;
        let top = if DOUBLE.is_nan(x[0]) { DOUBLE.nan } else { top };
        let result = DOUBLE.flush(nearest(DOUBLE, function(approximate(DOUBLE, top))));
        if DOUBLE.is_nan(result) { DOUBLE.nan } else { result & 0xffff_ffff_0000_0000 }
    })
    .within(Relative(-18.0))
}

fn arguments(holds: fn(f64) -> bool) -> Vec<Vec<u64>> {
    let special = |x: u64| SINGLE.is_nan(x) || SINGLE.is_infinite(x) || SINGLE.is_zero(x);
    let mut random = crate::inputs::Random::named("arguments");
    let edges = crate::inputs::edges(F32);
    let more = (0..24).map(|_| random.value(F32));
    let all = edges.into_iter().chain(more);
    all.filter(|x| special(*x) || holds(approximate(SINGLE, *x))).map(|x| vec![x]).collect()
}

/// Returns rows with divisors in the range for which the ISA guarantees two units.
fn quotient_rows(power: i32) -> Vec<Vec<u64>> {
    let rows =
        crate::inputs::rows(&[F32, F32], &crate::recipe::Rows::Edges { count: 48, and: Vec::new() }, "quotients");
    let limits = (2f64.powi(-power), 2f64.powi(power));
    rows.into_iter()
        .filter(|row| {
            let b = approximate(SINGLE, row[1]).abs();
            b >= limits.0 && b <= limits.1 && !SINGLE.is_subnormal(row[0])
        })
        .collect()
}
