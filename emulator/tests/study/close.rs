//! Comparison with results in double precision.

/// Checks each result against `expected`, with a relative or an absolute tolerance.
#[track_caller]
pub fn assert_close<T: Into<f64> + Copy>(got: &[T], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(got.len(), expected.len());
    for (index, (got, want)) in got.iter().zip(expected).enumerate() {
        let got: f64 = (*got).into();
        let near = (got - want).abs() <= relative * want.abs() + absolute;
        assert!(near || got.is_nan() && want.is_nan() || got == *want, "element {index} is {got}, not {want}");
    }
}

/// Checks results with several valid roundings: the compiler decides whether a product and a sum are fused.
#[track_caller]
pub fn assert_either<T: PartialEq + std::fmt::Debug>(got: &[T], expected: &[&[T]]) {
    for (index, got) in got.iter().enumerate() {
        let choices: Vec<&T> = expected.iter().map(|list| &list[index]).collect();
        assert!(choices.contains(&got), "element {index} is {got:?}, not one of {choices:?}");
    }
}
