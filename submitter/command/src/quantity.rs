//! Durations and sizes for people.

use gpufleet::schema::Size;

/// A time in microseconds with three digits: `950 µs`, `1.23 ms`, `45.6 s`. From two minutes on it is in minutes.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", three_digits(us as f64 / 1e3)),
        1_000_000..120_000_000 => format!("{} s", three_digits(us as f64 / 1e6)),
        _ => format!("{} min {} s", us / 60_000_000, us % 60_000_000 / 1_000_000),
    }
}

/// Bytes in powers of 1024.
pub fn bytes(bytes: u64) -> String {
    Size(bytes).to_string()
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let durations = [0, 999, 1_000, 45_678, 999_499, 1_500_000, 119_000_000, 150_000_000].map(micros);
        assert_eq!(durations, ["0 µs", "999 µs", "1.00 ms", "45.7 ms", "999 ms", "1.50 s", "119 s", "2 min 30 s"]);
    }
}
