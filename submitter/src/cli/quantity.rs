//! Durations and sizes as people read them.

/// Microseconds with three digits: `950 µs`, `1.23 ms`, `45.6 s`; from two minutes on, minutes.
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
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{} {unit}", three_digits(value)) }
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        let durations = [0, 999, 1_000, 45_678, 999_499, 1_500_000, 119_000_000, 150_000_000].map(micros);
        assert_eq!(durations, ["0 µs", "999 µs", "1.00 ms", "45.7 ms", "999 ms", "1.50 s", "119 s", "2 min 30 s"]);
        let sizes = [0, 1023, 1024, 4 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 KiB", "4.00 MiB", "16.0 EiB"]);
    }
}
