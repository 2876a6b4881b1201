//! Directed rounding, of a value and its error term.

#[derive(Clone, Copy)]
pub enum Direction {
    Zero,
    Up,
    Down,
}

/// Returns the single-precision number next to `value + error`, where `error` is less than the last bit of `value`.
pub fn directed(value: f64, error: f64, direction: Direction) -> f32 {
    let near = value as f32;
    let beyond = (value - f64::from(near)) + error;
    let down = if beyond < 0.0 { near.next_down() } else { near };
    let up = if beyond > 0.0 { near.next_up() } else { near };
    match direction {
        Direction::Up => up,
        Direction::Down => down,
        Direction::Zero if value > 0.0 => down,
        Direction::Zero => up,
    }
}

/// Returns the rounded sum and its error.
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    (sum, (a - (sum - other)) + (b - other))
}
