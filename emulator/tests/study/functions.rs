//! The math library in single and double precision.

use super::builds::{HEAVY, check};
use super::close::assert_close;
use super::device::args;

#[test]
fn the_math_library_is_right_in_both_precisions() {
    check("functions.cu", include_str!("../../cases/study/functions.cu"), &HEAVY, |device, build| {
        let x: Vec<f32> = (-90..90).map(|i| i as f32 * 0.0331 + 0.0071).collect();
        let out = device.zeros::<f32>(x.len() * 44);
        device.run("functions_float", 2, 128, args![device.upload(&x), out, x.len() as i32]);
        // CUDA guarantees a few units in the last place, fast math some 2^-21 for most functions and 2^-11 for `tanh`.
        let tolerance = build.choose(3e-6, 2e-3);
        for (got, x) in device.download(&out).chunks(44).zip(&x) {
            assert_close(got, &expected((*x).into(), (x.abs() + 0.125).into()), tolerance, tolerance);
        }
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x) * 1.01).collect();
        let out = device.zeros::<f64>(x.len() * 44);
        device.run("functions_double", 2, 128, args![device.upload(&x), out, x.len() as i32]);
        for (got, x) in device.download(&out).chunks(44).zip(&x) {
            assert_close(got, &expected(*x, x.abs() + 0.125), 2e-13, 2e-13);
        }
    });
}

fn expected(x: f64, p: f64) -> [f64; 44] {
    let (significand, exponent) = libm::frexp(x);
    let quotient = (x / 0.75).round_ties_even();
    let rest = x - 0.75 * quotient;
    [
        x.exp(),
        x.exp2(),
        libm::exp10(x),
        x.exp_m1(),
        p.ln(),
        p.log2(),
        p.log10(),
        p.ln_1p(),
        x.sin(),
        x.cos(),
        x.tan(),
        (x / 8.0).asin(),
        (x / 8.0).acos(),
        x.atan(),
        x.sinh(),
        x.cosh(),
        x.tanh(),
        x.asinh(),
        (p + 1.0).acosh(),
        (x / 8.0).atanh(),
        p.powf(x),
        x.cbrt(),
        x.hypot(p),
        1.0 / x.hypot(p),
        libm::erf(x),
        libm::erfc(x),
        inverse_erf(x / 8.0),
        libm::tgamma(p),
        libm::lgamma(p),
        (x * std::f64::consts::PI).sin(),
        (x * std::f64::consts::PI).cos(),
        libm::j0(p),
        x % p,
        rest,
        (x - 1.0).max(0.0),
        x,
        significand + f64::from(exponent),
        x * 32.0,
        x.fract() + x.trunc() * 2.0,
        p.log2().floor(),
        x.sin() + 2.0 * x.cos(),
        rest + f64::from(quotient as i32 & 7),
        0.5 * libm::erfc(-x / 2f64.sqrt()),
        1.0 / p.sqrt(),
    ]
}

/// Computes it by Newton's method.
fn inverse_erf(y: f64) -> f64 {
    let slope = |x: f64| 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
    (0..30).fold(y, |x, _| x - (libm::erf(x) - y) / slope(x))
}
