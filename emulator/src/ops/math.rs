//! Approximate functions (`sin`, `ex2`, `rsqrt` and so on). They are computed in f64 and rounded once, which is more
//! exact than a device, and by `libm`, so that every machine gives the same bits.

use super::float::{Modifiers, canonical64, sparse32, unary32};
use super::lanes::{Lanes, unary};

/// Returns an f32 function of one argument.
pub fn single(name: &str, m: Modifiers) -> Option<Lanes> {
    Some(match name {
        "sin" => sparse32(m, |a| libm::sin(a.into()) as f32),
        "cos" => sparse32(m, |a| libm::cos(a.into()) as f32),
        "lg2" => sparse32(m, |a| libm::log2(a.into()) as f32),
        "ex2" => sparse32(m, |a| libm::exp2(a.into()) as f32),
        "tanh" => sparse32(m, |a| libm::tanh(a.into()) as f32),
        "rsqrt" => unary32(m, |a| (1.0 / f64::from(a).sqrt()) as f32),
        _ => return None,
    })
}

/// Returns an f64 function. With `flush` it returns only the upper half of the result, as devices do.
pub fn double(name: &str, flush: bool) -> Option<Lanes> {
    #[inline(always)]
    fn upper(value: f64) -> f64 {
        f64::from_bits(flush64(canonical64(value)).to_bits() & !0xffff_ffff)
    }
    #[inline(always)]
    fn flush64(value: f64) -> f64 {
        if value.is_subnormal() { 0f64.copysign(value) } else { value }
    }
    Some(match (name, flush) {
        ("rsqrt", false) => unary(|a: f64| canonical64(1.0 / a.sqrt())),
        ("rsqrt", true) => unary(|a: f64| upper(1.0 / flush64(a).sqrt())),
        ("rcp", true) => unary(|a: f64| upper(1.0 / flush64(a))),
        _ => return None,
    })
}
