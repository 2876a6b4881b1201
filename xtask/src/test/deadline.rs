//! The deadline of each test. A test that misses it fails, and its program is stopped: nothing else ends a thread that hangs.

use std::time::Duration;

/// Most tests take far less than a second. On a machine with other work they may take many times as long.
const USUAL: Duration = Duration::from_secs(120);

/// Longer deadlines, by a part of the program's name and a part of the test's. The first that fits counts.
const LONGER: [(&str, &str, Duration); 5] = [
    // They move gigabytes.
    ("worker/executor", "leaving::", Duration::from_secs(400)),
    // One wait of a scenario may take 90 s, and few scenarios wait that long even once.
    ("tests/scenarios", "nemesis::", Duration::from_secs(600)),
    ("tests/scenarios", "", Duration::from_secs(400)),
    // The examples of a page are one test.
    ("tests/documentation", "", Duration::from_secs(900)),
    // Fills a table with 240,000 jobs and plans every query.
    ("ledger/postgres", "", Duration::from_secs(400)),
];

pub fn of(program: &str, test: &str) -> Duration {
    let fits = |(of, named, _): &&(&str, &str, Duration)| program.contains(of) && test.contains(named);
    LONGER.iter().find(fits).map_or(USUAL, |(_, _, deadline)| *deadline)
}
