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

/// A part of a number of bytes. The unit is there once if both have it: `12.0 of 40.0 GiB`.
pub fn bytes_of(part: u64, whole: u64) -> String {
    bytes_between(part, " of ", whole)
}

/// The same in short: `12.0/40.0 GiB`.
pub fn bytes_ratio(part: u64, whole: u64) -> String {
    bytes_between(part, "/", whole)
}

fn bytes_between(part: u64, sign: &str, whole: u64) -> String {
    let (part, whole) = (bytes(part), bytes(whole));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}{sign}{whole}"),
        _ => format!("{part}{sign}{whole}"),
    }
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

    #[test]
    fn a_part_of_a_size_has_the_unit_of_the_whole_or_its_own() {
        assert_eq!(bytes_of(12 << 30, 40 << 30), "12.0 of 40.0 GiB");
        assert_eq!(bytes_of(512 << 20, 4 << 30), "512 MiB of 4.00 GiB");
        assert_eq!(bytes_ratio(12 << 30, 40 << 30), "12.0/40.0 GiB");
    }
}
