//! The memory of processes. Each shared page counts once: every process is charged its proportional share.

use std::fs;

/// Returns the sum over the processes that still run, as far as this user may read it.
pub fn mebibytes(pids: &[u32]) -> f64 {
    let kibibytes: u64 = pids
        .iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok())
        .filter_map(|text| proportional(&text))
        .sum();
    kibibytes as f64 / 1024.0
}

/// Returns the `Pss` line, in KiB.
fn proportional(smaps_rollup: &str) -> Option<u64> {
    let line = smaps_rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_share_is_read_and_nothing_like_it() {
        let text = "00400000-7ffd [rollup]\nRss:  100 kB\nPss_Dirty:  7 kB\nPss:        42 kB\n";
        assert_eq!(proportional(text), Some(42));
        assert_eq!(proportional("Rss: 1 kB\n"), None);
    }

    #[test]
    fn this_process_takes_some_memory() {
        assert!(mebibytes(&[std::process::id()]) > 0.1);
    }
}
