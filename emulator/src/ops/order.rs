//! Comparison and classification of floats.

use half::{bf16, f16};

use super::float::{canonical, canonical64, flush};
use super::half::flush as flush_small;
use super::lanes::{Lanes, Pair, compare};
use crate::ptx::types::Type;

/// Defines the lesser or greater of two numbers: -0 is below +0. The result is a NaN if both are NaN, or with `NAN` if
/// either is.
macro_rules! extreme {
    ($name:ident, $t:ty, $canonical:ident, $less:tt, $zeros:tt) => {
        #[inline(always)]
        pub fn $name<const NAN: bool>(a: $t, b: $t) -> $t {
            let ordered = if a $less b {
                a
            } else if a == b {
                <$t>::from_bits(a.to_bits() $zeros b.to_bits())
            } else {
                b
            };
            if a.is_nan() {
                if NAN { $canonical(a) } else { $canonical(b) }
            } else if b.is_nan() {
                if NAN { $canonical(b) } else { a }
            } else {
                ordered
            }
        }
    };
}

extreme!(min32, f32, canonical, <, |);
extreme!(max32, f32, canonical, >, &);
extreme!(min64, f64, canonical64, <, |);
extreme!(max64, f64, canonical64, >, &);

/// Defines comparisons of floats: with a NaN the ordered ones (`lt`) are false, the unordered ones (`ltu`) true.
macro_rules! comparisons {
    ($name:expr, $t:ty => $float:ty, |$v:ident| $prepare:expr) => {{
        #[inline(always)]
        fn of($v: $t) -> $float {
            $prepare
        }
        #[inline(always)]
        fn unordered(a: $t, b: $t) -> bool {
            of(a).is_nan() || of(b).is_nan()
        }
        match $name {
            "eq" => compare(|a: $t, b: $t| of(a) == of(b)),
            "ne" => compare(|a: $t, b: $t| of(a) < of(b) || of(a) > of(b)),
            "lt" => compare(|a: $t, b: $t| of(a) < of(b)),
            "le" => compare(|a: $t, b: $t| of(a) <= of(b)),
            "gt" => compare(|a: $t, b: $t| of(a) > of(b)),
            "ge" => compare(|a: $t, b: $t| of(a) >= of(b)),
            "equ" => compare(|a: $t, b: $t| of(a) == of(b) || unordered(a, b)),
            "neu" => compare(|a: $t, b: $t| of(a) != of(b)),
            "ltu" => compare(|a: $t, b: $t| of(a) < of(b) || unordered(a, b)),
            "leu" => compare(|a: $t, b: $t| of(a) <= of(b) || unordered(a, b)),
            "gtu" => compare(|a: $t, b: $t| of(a) > of(b) || unordered(a, b)),
            "geu" => compare(|a: $t, b: $t| of(a) >= of(b) || unordered(a, b)),
            "num" => compare(|a: $t, b: $t| !unordered(a, b)),
            "nan" => compare(|a: $t, b: $t| unordered(a, b)),
            _ => return None,
        }
    }};
}

/// Returns the comparison of this name; bf16 and f64 have no flushing.
pub fn comparison(name: &str, ty: Type, flushing: bool) -> Option<Lanes> {
    Some(match (ty, flushing) {
        (Type::F32, false) => comparisons!(name, f32 => f32, |v| v),
        (Type::F32, true) => comparisons!(name, f32 => f32, |v| flush::<true>(v)),
        (Type::F64, false) => comparisons!(name, f64 => f64, |v| v),
        (Type::F16, false) => comparisons!(name, f16 => f16, |v| v),
        (Type::F16, true) => comparisons!(name, f16 => f16, |v| flush_small::<f16, true>(v)),
        (Type::Bf16, false) => comparisons!(name, bf16 => bf16, |v| v),
        _ => return None,
    })
}

/// Returns a comparison of the lower and one of the upper halves of two pairs.
pub fn paired_comparison(name: &str, ty: Type, flushing: bool) -> Option<[Lanes; 2]> {
    type Halves = Pair<f16>;
    type Brains = Pair<bf16>;
    Some(match (ty, flushing) {
        (Type::F16x2, false) => {
            [comparisons!(name, Halves => f16, |v| v.0), comparisons!(name, Halves => f16, |v| v.1)]
        }
        (Type::F16x2, true) => [
            comparisons!(name, Halves => f16, |v| flush_small::<f16, true>(v.0)),
            comparisons!(name, Halves => f16, |v| flush_small::<f16, true>(v.1)),
        ],
        (Type::Bf16x2, false) => {
            [comparisons!(name, Brains => bf16, |v| v.0), comparisons!(name, Brains => bf16, |v| v.1)]
        }
        _ => return None,
    })
}

/// Returns `testp`, which ignores the second operand.
pub fn classification(name: &str, bits: u32) -> Option<Lanes> {
    macro_rules! classes {
        ($t:ty) => {
            match name {
                "finite" => compare(|a: $t, _: $t| a.is_finite()),
                "infinite" => compare(|a: $t, _: $t| a.is_infinite()),
                "number" => compare(|a: $t, _: $t| !a.is_nan()),
                "notanumber" => compare(|a: $t, _: $t| a.is_nan()),
                // Zero counts as a normal number, unlike in Rust.
                "normal" => compare(|a: $t, _: $t| a.is_normal() || a == 0.0),
                "subnormal" => compare(|a: $t, _: $t| a.is_subnormal()),
                _ => return None,
            }
        };
    }
    Some(if bits == 64 { classes!(f64) } else { classes!(f32) })
}
