//! Rounds a number once, to the nearest float of a dtype.
//!
//! A number that is rounded to 64 bits and then to fewer can miss the nearest float: the first step may put it at the midpoint of two
//! floats, and the second step then goes the wrong way. So the first step rounds to odd, which never ends at a midpoint.

use std::cmp::Ordering;

use half::{bf16, f16};

/// A number that may have more digits than a float.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    /// The nearest float of 64 bits.
    pub nearest: f64,
    /// Whether the number is less than that float, equal to it or greater.
    pub side: Ordering,
}

impl Exact {
    pub(super) fn f32(self) -> f32 {
        self.odd() as f32
    }

    pub(super) fn f16(self) -> f16 {
        f16::from_f32(odd_f32(self.odd()))
    }

    pub(super) fn bf16(self) -> bf16 {
        bf16::from_f32(odd_f32(self.odd()))
    }

    /// The number itself if a float of 64 bits has it, else the one of its two neighbours whose last bit is one.
    fn odd(self) -> f64 {
        let Self { nearest, side } = self;
        if side == Ordering::Equal || !nearest.is_finite() {
            return nearest;
        }
        let is_farther_from_zero = (side == Ordering::Greater) == nearest.is_sign_positive();
        let toward_zero = nearest.to_bits() - u64::from(!is_farther_from_zero);
        f64::from_bits(toward_zero | 1)
    }
}

/// Returns the value as a float of 32 bits, rounded to odd.
fn odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let is_farther_from_zero = f64::from(nearest).abs() < value.abs();
    let toward_zero = nearest.to_bits() - u32::from(!is_farther_from_zero);
    f32::from_bits(toward_zero | 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(nearest: f64) -> Exact {
        Exact { nearest, side: Ordering::Equal }
    }

    /// The finite float of 16 bits that is nearest, by comparing all of them. Of two, the even one.
    fn nearest_f16(value: f64) -> f16 {
        let all = (0..=u16::MAX).map(f16::from_bits).filter(|float| float.is_finite());
        let distance = |float: &f16| (float.to_f64() - value).abs();
        let order =
            |a: &f16, b: &f16| distance(a).total_cmp(&distance(b)).then((a.to_bits() & 1).cmp(&(b.to_bits() & 1)));
        all.min_by(order).unwrap()
    }

    #[test]
    fn a_number_just_beside_the_middle_of_two_floats_goes_to_its_own_side() {
        // 1 and the next float of 16 bits, and their middle.
        let (one, next, middle) = (f16::ONE, f16::from_bits(0x3c01), 1.0 + 2_f64.powi(-11));
        assert_eq!(exact(middle).f16(), one, "even");
        assert_eq!(exact(middle.next_up()).f16(), next, "half::f16::from_f64 gives 1");
        assert_eq!(exact(middle.next_down()).f16(), one);
        for (side, float) in [(Ordering::Less, one), (Ordering::Greater, next)] {
            assert_eq!(Exact { nearest: middle, side }.f16(), float, "{side:?}");
            let negative = Exact { nearest: -middle, side: side.reverse() };
            assert_eq!(negative.f16(), -float, "{side:?}");
        }
        let middle = 1.0 + 2_f64.powi(-24);
        assert_eq!(Exact { nearest: middle, side: Ordering::Greater }.f32(), 1_f32.next_up());
        assert_eq!(Exact { nearest: middle, side: Ordering::Less }.f32(), 1.0);
    }

    #[test]
    fn the_ends_of_the_range_are_kept() {
        assert_eq!(exact(65519.999).f16(), f16::MAX);
        assert!(
            exact(65520.0).f16().is_infinite()
                && exact(f64::MAX).bf16().is_infinite()
                && exact(1e39).f32().is_infinite()
        );
        assert_eq!(exact(-0.0).f16().to_bits(), 0x8000);
        assert_eq!(Exact { nearest: 0.0, side: Ordering::Greater }.f32(), 0.0);
        assert!(exact(f64::NAN).bf16().is_nan() && exact(f64::NEG_INFINITY).f16() == f16::NEG_INFINITY);
    }

    proptest! {
        #[test]
        fn sixteen_bits_are_the_nearest(bits in any::<u16>(), up in 0.0..=1.0_f64) {
            let float = f16::from_bits(bits);
            prop_assume!(float.is_finite() && float.to_f64().abs() < 65000.0);
            let next = f16::from_bits(bits + 1).to_f64();
            let value = float.to_f64() + (next - float.to_f64()) * up;
            prop_assert_eq!(exact(value).f16().to_f64(), nearest_f16(value).to_f64());
        }
    }
}
