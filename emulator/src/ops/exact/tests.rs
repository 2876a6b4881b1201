use proptest::prelude::{any, proptest};

use super::{DOUBLE, Down, Rounding, SINGLE, Up, Zero, add, div, fma, fma_single, mul, sqrt};

/// Compares bits; all NaNs are equal.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]

    #[test]
    fn rounding_to_nearest_agrees_with_the_processor(a in any::<f64>(), b in any::<f64>(), c in any::<f64>()) {
        let n = Rounding::Nearest;
        assert!(same(fma(a, b, c, n, DOUBLE), a.mul_add(b, c)));
        assert!(same(add(a, b, n, DOUBLE), a + b));
        assert!(same(mul(a, b, n, DOUBLE), a * b));
        assert!(same(div(a, b, n, DOUBLE), a / b));
        assert!(same(sqrt(a, n, DOUBLE), a.sqrt()));
    }

    #[test]
    fn near_operands_agree_with_the_processor_too(a in any::<u32>(), b in any::<u32>(), shift in 0u64..2000) {
        let scale = f64::from_bits((shift.clamp(1, 2000)) << 52);
        let (a, b) = (f64::from(a) * scale, -f64::from(b) / 7.0 * scale);
        let n = Rounding::Nearest;
        assert!(same(add(a, b, n, DOUBLE), a + b));
        assert!(same(fma(a, 0.5, b, n, DOUBLE), a.mul_add(0.5, b)));
        assert!(same(div(a, b, n, DOUBLE), a / b));
    }

    #[test]
    fn the_quick_single_sum_agrees_with_the_slow_one(a in any::<f32>(), b in any::<f32>(), c in any::<f32>()) {
        let (x, y, z) = (f64::from(a), f64::from(b), f64::from(c));
        assert!(same(fma_single::<Zero>(a, b, c).into(), fma(x, y, z, Rounding::Zero, SINGLE)));
        assert!(same(fma_single::<Down>(a, b, c).into(), fma(x, y, z, Rounding::Down, SINGLE)));
        assert!(same(fma_single::<Up>(a, b, c).into(), fma(x, y, z, Rounding::Up, SINGLE)));
    }

    #[test]
    fn down_and_up_enclose_the_nearest(a in any::<f64>(), b in any::<f64>()) {
        let (down, up) = (div(a, b, Rounding::Down, DOUBLE), div(a, b, Rounding::Up, DOUBLE));
        if !(a / b).is_nan() {
            assert!(down <= a / b && a / b <= up);
            assert!(down == up || down.next_up() == up);
        }
    }
}

#[test]
fn known_cases_round_as_the_modes_say() {
    let third = 1.0 / 3.0f32;
    assert_eq!(div(1.0, 3.0, Rounding::Zero, SINGLE) as f32, third.next_down());
    assert_eq!(div(1.0, 3.0, Rounding::Up, SINGLE) as f32, third);
    assert_eq!(sqrt(2.0, Rounding::Down, DOUBLE), 2f64.sqrt().next_down());
    assert_eq!(add(f64::MAX, f64::MAX, Rounding::Zero, DOUBLE), f64::MAX);
    assert_eq!(add(f64::MAX, f64::MAX, Rounding::Up, DOUBLE), f64::INFINITY);
    assert!(add(1.0, -1.0, Rounding::Down, DOUBLE).is_sign_negative());
    assert_eq!(mul(f64::MIN_POSITIVE, f64::MIN_POSITIVE, Rounding::Up, DOUBLE), f64::from_bits(1));
}
