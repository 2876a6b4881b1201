//! The deadline of each test. If a test misses it, the test fails and its program is stopped, because nothing else ends a hanging thread.

use std::time::Duration;

/// The deadline of most tests. They take far less than a second, but many times as long on a busy machine.
const USUAL: Duration = Duration::from_secs(120);

/// Longer deadlines, each with a part of the program's name and a part of the test's name. The first match counts.
const LONGER: [(&str, &str, Duration); 5] = [
    // These tests move gigabytes.
    ("worker/executor", "leaving::", Duration::from_secs(400)),
    // One wait of a scenario may take 90 s, and few scenarios wait that long even once.
    ("tests/scenarios", "nemesis::", Duration::from_secs(600)),
    ("tests/scenarios", "", Duration::from_secs(400)),
    // The examples of a page are one test.
    ("tests/documentation", "", Duration::from_secs(900)),
    // This test fills a table with 240,000 jobs and plans every query.
    ("ledger/postgres", "", Duration::from_secs(400)),
];

pub fn of(program: &str, test: &str) -> Duration {
    let fits = |(of, named, _): &&(&str, &str, Duration)| program.contains(of) && test.contains(named);
    LONGER.iter().find(fits).map_or(USUAL, |(_, _, deadline)| *deadline)
}
