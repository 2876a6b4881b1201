//! Formats time spans for people.

use chrono::TimeDelta;

/// Formats a span in its largest useful unit: `45s`, `12m`, `3h`, `40d`. A negative span, which clocks that differ can
/// cause, becomes `0s`.
pub fn age(span: TimeDelta) -> String {
    match span.num_seconds() {
        ..0 => "0s".to_owned(),
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
