use gpufleet_schema::Dtype;
use proptest::prelude::{any, prop_assert_eq, proptest};

use super::{Difference, Expected, compare};
use crate::manifest::Tolerance;

fn expected(values: &[f32], shape: &[u64], tolerance: Tolerance) -> Expected {
    let bytes = bytes(values);
    Expected { name: "y".to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes, tolerance }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn equal_bits_have_no_difference() {
    let values = [1.0, f32::NAN, f32::INFINITY, -0.0];
    let exact = expected(&values, &[4], Tolerance::default());
    assert_eq!(compare(&exact, &bytes(&values)), Ok(Difference::default()));
}

#[test]
fn a_wrong_element_is_reported_with_its_place() {
    let exact = expected(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], Tolerance::default());
    let wrong = compare(&exact, &bytes(&[1.0, 2.0, 3.0, 4.0, 5.5, 6.0])).unwrap_err();
    assert_eq!(wrong.to_string(), "y[1, 1] is 5.5, expected 5 (1048576 ulp, 5e-1 apart)");
    let short = compare(&exact, &[0; 8]).unwrap_err();
    assert_eq!(short.to_string(), "y has 8 bytes, expected 24");
}

#[test]
fn each_kind_of_tolerance_allows_its_difference_and_no_more() {
    let one_up = 1.0 + f32::EPSILON;
    let within = |want: f32, got: f32, tolerance| compare(&expected(&[want], &[1], tolerance), &bytes(&[got])).is_ok();
    let none = Tolerance::default();
    assert!(!within(1.0, one_up, none));
    assert!(within(1.0, one_up, Tolerance { ulp: 1, ..none }));
    assert!(!within(1.0, one_up + f32::EPSILON, Tolerance { ulp: 1, ..none }));
    assert!(within(0.0, 1e-6, Tolerance { abs: 1e-6_f32.into(), ..none }));
    assert!(within(1000.0, 1000.5, Tolerance { rel: 1e-3, ..none }));
    assert!(!within(1000.0, 1001.5, Tolerance { rel: 1e-3, ..none }));
    assert!(within(0.0, -0.0, none));
}

#[test]
fn special_values_are_near_nothing_but_themselves() {
    let wide = Tolerance { ulp: 0, abs: 1e30, rel: 1e30 };
    let within = |want: f32, got: f32| compare(&expected(&[want], &[1], wide), &bytes(&[got])).is_ok();
    assert!(!within(f32::INFINITY, 1.0) && !within(1.0, f32::INFINITY) && !within(f32::INFINITY, f32::NEG_INFINITY));
    assert!(!within(f32::NAN, 1.0) && !within(1.0, f32::NAN));
    assert!(within(f32::NAN, -f32::NAN));
}

#[test]
fn integers_are_compared_as_integers() {
    let bytes = |value: u64| value.to_le_bytes().to_vec();
    let tolerance = Tolerance { ulp: 2, ..Tolerance::default() };
    let exact = Expected { name: "hits".into(), dtype: Dtype::U64, shape: vec![1], bytes: bytes(u64::MAX), tolerance };
    assert_eq!(compare(&exact, &bytes(u64::MAX - 2)).unwrap().max_ulp, 2);
    assert!(compare(&exact, &bytes(u64::MAX - 3)).is_err());
}

proptest! {
    #[test]
    fn steps_between_floats_are_steps_of_next_up(value in any::<f32>(), steps in 0_u64..50) {
        proptest::prop_assume!(value.is_finite() && value.abs() < 1e38);
        let got = (0..steps).fold(value, |value, _| value.next_up());
        let tolerance = Tolerance { ulp: 50, ..Tolerance::default() };
        let difference = compare(&expected(&[value], &[1], tolerance), &bytes(&[got]));
        prop_assert_eq!(difference.map(|difference| difference.max_ulp), Ok(steps));
    }
}
