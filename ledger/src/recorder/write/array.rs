//! Arrays in arrays.

/// Formats numbers as a Postgres array, because `unnest` would flatten an array of arrays.
pub(super) fn array_literal(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}
