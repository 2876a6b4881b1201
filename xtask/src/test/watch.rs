//! Follows the tests of a running program by its output, and finds the first one that misses its deadline.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _},
    time::{Instant, timeout_at},
};

/// Arguments with which libtest prints a line of JSON when a test begins and when it ends. libtest accepts them only if unstable features
/// are allowed.
pub const ARGUMENTS: [&str; 5] = ["-Z", "unstable-options", "--format", "json", "--report-time"];
pub const ALLOW_UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// The maximum time without a running test: before the first test, between two tests, and after the last one.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A test that has ended.
#[derive(Debug, PartialEq)]
pub struct Ended {
    pub name: String,
    pub outcome: Outcome,
    pub took: Duration,
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Passed,
    Skipped,
    /// Has the test's output.
    Failed(String),
}

/// The reason why the program must be stopped.
#[derive(Debug, PartialEq)]
pub enum Overdue {
    Test {
        name: String,
        deadline: Duration,
    },
    /// No test has run for this long.
    Program {
        idle: Duration,
    },
}

/// The meaning of an output line.
#[derive(Debug, PartialEq)]
enum Line {
    Started(String),
    Ended(Ended),
    /// A line of libtest about all tests, or about a test that has run for a minute.
    Remark,
    Other,
}

impl Line {
    fn parse(line: &str) -> Self {
        let Ok(Value::Object(line)) = serde_json::from_str(line) else { return Self::Other };
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let outcome = match (&*text("type"), &*text("event")) {
            ("test", "started") => return Self::Started(text("name")),
            ("test", "ok") => Outcome::Passed,
            ("test", "ignored") => Outcome::Skipped,
            ("test", "failed") => Outcome::Failed(text("stdout") + &text("message")),
            ("test", "timeout") | ("suite", _) => return Self::Remark,
            _ => return Self::Other,
        };
        let seconds = line.get("exec_time").and_then(Value::as_f64).unwrap_or_default();
        let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Self::Ended(Ended { name: text("name"), outcome, took })
    }
}

/// Reads to the end of the output. Passes on each ended test and each line that is not libtest's.
pub async fn watch(
    output: impl AsyncBufRead + Unpin,
    deadline_of: impl Fn(&str) -> Duration,
    mut ended: impl FnMut(Ended),
    mut other: impl FnMut(&str),
) -> Result<(), Overdue> {
    let mut lines = output.lines();
    let mut running: HashMap<String, Instant> = HashMap::new();
    let mut idle_since = Instant::now();
    loop {
        let due = |(name, begun): (&String, &Instant)| (*begun + deadline_of(name), Some(name.clone()));
        let (at, name) = running.iter().map(due).min().unwrap_or((idle_since + IDLE_MAX, None));
        let line = match timeout_at(at, lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            // The program has ended, or printed a line that is not text.
            Ok(Ok(None) | Err(_)) => return Ok(()),
            Err(_) => {
                return Err(match name {
                    Some(name) => Overdue::Test { deadline: deadline_of(&name), name },
                    None => Overdue::Program { idle: IDLE_MAX },
                });
            }
        };
        match Line::parse(&line) {
            Line::Started(name) => drop(running.insert(name, Instant::now())),
            Line::Ended(test) => {
                running.remove(&test.name);
                idle_since = Instant::now();
                ended(test);
            }
            Line::Remark => {}
            Line::Other => other(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, BufReader, duplex};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    #[test]
    fn lines_of_libtest_are_told_from_what_a_test_prints() {
        let ended = |outcome, millis| {
            Line::Ended(Ended { name: "a::b".to_owned(), outcome, took: Duration::from_millis(millis) })
        };
        let cases = [
            (r#"{ "type": "suite", "event": "started", "test_count": 3 }"#, Line::Remark),
            (r#"{ "type": "test", "event": "started", "name": "a::b" }"#, Line::Started("a::b".to_owned())),
            (r#"{ "type": "test", "event": "timeout", "name": "a::b" }"#, Line::Remark),
            (r#"{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 0.25 }"#, ended(Outcome::Passed, 250)),
            (r#"{ "type": "test", "name": "a::b", "event": "ignored" }"#, ended(Outcome::Skipped, 0)),
            (
                r#"{ "type": "test", "name": "a::b", "event": "failed", "exec_time": 1, "stdout": "why\n" }"#,
                ended(Outcome::Failed("why\n".to_owned()), 1000),
            ),
            (r#"{"job": "printed by a test"}"#, Line::Other),
            ("plain", Line::Other),
        ];
        for (line, parsed) in cases {
            assert_eq!(Line::parse(line), parsed, "{line}");
        }
    }

    /// Returns what [`watch`] makes of a program that prints these lines and then hangs, and how long that takes.
    async fn watched(lines: &str) -> (Result<(), Overdue>, Duration) {
        let (mut program, output) = duplex(4096);
        program.write_all(lines.as_bytes()).await.unwrap();
        let begun = Instant::now();
        let result = watch(BufReader::new(output), |_| DEADLINE, |_| {}, |_| {}).await;
        drop(program);
        (result, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_test_that_does_not_end_is_named_at_its_deadline() {
        let begins = |name: &str| format!(r#"{{ "type": "test", "event": "started", "name": "{name}" }}"#) + "\n";
        let ends = |name: &str| format!(r#"{{ "type": "test", "event": "ok", "name": "{name}" }}"#) + "\n";
        let (result, after) = watched(&(begins("quick") + &begins("stuck") + &ends("quick"))).await;
        assert_eq!(result, Err(Overdue::Test { name: "stuck".to_owned(), deadline: DEADLINE }));
        assert_eq!(after.as_secs(), DEADLINE.as_secs());
        let (result, after) = watched(&(begins("quick") + &ends("quick"))).await;
        assert_eq!(result, Err(Overdue::Program { idle: IDLE_MAX }));
        assert_eq!(after.as_secs(), IDLE_MAX.as_secs());
    }
}
