//! Bounds the values that an executor reports, because user code runs on its device and, with the emulator, even in its process. The
//! supervisor calculates with these values and passes them on.

use std::time::Duration;

use gpufleet_schema::{Failure, Timings};

use crate::ipc::message::Poison;

/// Maximum length of a text, in bytes: longer than any error text of a driver, and short enough for a log line.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Limits the reported timings of a job to `held`, the time for which the executor held it.
pub(super) fn timings(said: Timings, held: Duration, launches: usize, device_bytes: u64) -> Timings {
    let held_us = held.as_micros() as u64;
    Timings {
        load_us: said.load_us.min(held_us),
        copy_in_us: said.copy_in_us.min(held_us),
        launches_us: said.launches_us.into_iter().take(launches).map(|us| us.min(held_us)).collect(),
        copy_out_us: said.copy_out_us.min(held_us),
        total_us: said.total_us.min(held_us),
        device_bytes_peak: said.device_bytes_peak.min(device_bytes),
        module_cached: said.module_cached,
        // The supervisor measures the remaining times.
        queue_us: 0,
        wait_us: 0,
        fetch_us: 0,
        compile_us: 0,
    }
}

/// Rebuilds the failure, which cuts its texts at their bounds. The supervisor adds the lines of the program.
pub(super) fn failure(said: Failure) -> Failure {
    let Failure { verdict, code, message, detail, line, source: _ } = said;
    Failure::new(verdict, code, message).with_detail(detail.unwrap_or_default()).at_line(line)
}

/// Cuts the short texts. The report becomes a failure's detail, which [`failure`] cuts.
pub(super) fn poison(said: Poison) -> Poison {
    Poison { name: text(&said.name), text: text(&said.text), ..said }
}

/// Returns a short text without control characters, for a log line.
pub(super) fn text(said: &str) -> String {
    said[..said.floor_char_boundary(TEXT_BYTES_MAX)].replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_taken_no_longer_than_its_executor_had_it() {
        const MOST: u64 = u64::MAX;
        let said = Timings {
            queue_us: MOST,
            wait_us: MOST,
            fetch_us: MOST,
            compile_us: MOST,
            load_us: MOST,
            copy_in_us: 7,
            launches_us: vec![MOST; 1000],
            copy_out_us: MOST,
            total_us: MOST,
            device_bytes_peak: MOST,
            module_cached: true,
        };
        let believed = timings(said, Duration::from_micros(10), 2, 100);
        let expected = Timings {
            load_us: 10,
            copy_in_us: 7,
            launches_us: vec![10, 10],
            copy_out_us: 10,
            total_us: 10,
            device_bytes_peak: 100,
            module_cached: true,
            ..Timings::default()
        };
        assert_eq!(believed, expected);
        assert_eq!(believed.kernel_us(), 20);
    }

    #[test]
    fn a_text_is_one_short_line() {
        assert_eq!(text("two\nlines\u{1b}[2J"), "two\u{fffd}lines\u{fffd}[2J");
        assert!(text(&"ä".repeat(TEXT_BYTES_MAX)).len() <= TEXT_BYTES_MAX);
    }
}
