//! Compares the output on a page with the real output, except for parts that differ in every run.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The text that stands for any number of lines if it is a line of its own, and for the rest of a line at its end.
const ELISION: &str = "…";

/// Patterns of texts that differ in every run, and their replacements on both sides. The order matters, because a UUID
/// contains digits that match later patterns.
static VOLATILE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        ("\x1b\\[[0-9;]*m", ""),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
        (r"\b[0-9a-f]{64}\b", "DIGEST"),
        (r"\b0x[0-9a-f]{6,}\b", "ADDRESS"),
        (r"\bjob [0-9a-f]{12}\b", "job ID"),
        (r"\b\d+ calls, \d+ waits, [^,]+ sent, [^,]+ received\b", "COUNTERS"),
        (r"\b(amqps?|postgres)://\S+", "URL"),
        (r"\b(127\.0\.0\.1|localhost):\d+", "$1:PORT"),
        (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC|[+-]\d\d:\d\d)?)?", "TIME"),
        (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
        (r"(\b\d+(\.\d+)?\s?(ns|µs|us|ms|s|m|min|h|d)\b\s?)+", "DURATION "),
        (r"\b(pid|process) \d+\b", "$1 PID"),
        (r"\b[a-z][a-z0-9-]*-w\d+\b", "WORKER"),
        (r"emulator \(CPU[^)]*\)", "emulator (CPU)"),
        (r"[─═┄-]{3,}", "---"),
        (r"\s+", " "),
    ]
    .map(|(pattern, replacement)| (Regex::new(pattern).expect("the pattern is correct"), replacement))
    .into()
});

/// The character of bars. Lines with bars are not compared: their stages depend on caches, and their lengths on the
/// machine.
const BAR: char = '█';

/// Returns whether the output matches the page.
pub fn fits(shown: &str, got: &str, language: &str) -> bool {
    if language == "json" {
        let (Ok(shown), Ok(got)) = (serde_json::from_str(shown), serde_json::from_str(got)) else { return false };
        return has_shape(&shown, &got);
    }
    let lines = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains(BAR)).map(normal);
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    lines_fit(&lines(shown), &lines(got))
}

fn normal(line: &str) -> String {
    let line = VOLATILE.iter().fold(line.to_owned(), |line, (regex, by)| regex.replace_all(&line, *by).into_owned());
    line.trim().to_owned()
}

fn lines_fit(shown: &[String], got: &[String]) -> bool {
    match shown.split_first() {
        None => got.is_empty(),
        Some((first, rest)) if first == ELISION => (0..=got.len()).any(|at| lines_fit(rest, &got[at..])),
        Some((first, rest)) => {
            got.split_first().is_some_and(|(line, got)| line_fits(first, line) && lines_fit(rest, got))
        }
    }
}

fn line_fits(shown: &str, got: &str) -> bool {
    shown == got || shown.strip_suffix(ELISION).is_some_and(|beginning| got.starts_with(beginning.trim_end()))
}

/// Returns whether both have the same keys and the same kinds of values. The values may differ. A null matches every
/// value.
fn has_shape(shown: &Value, got: &Value) -> bool {
    match (shown, got) {
        (Value::Null, _) | (_, Value::Null) => true,
        (Value::Object(shown), Value::Object(got)) => {
            shown.len() == got.len()
                && shown.iter().all(|(key, value)| got.get(key).is_some_and(|got| has_shape(value, got)))
        }
        (Value::Array(shown), Value::Array(got)) => shown.iter().zip(got).all(|(shown, got)| has_shape(shown, got)),
        _ => std::mem::discriminant(shown) == std::mem::discriminant(got),
    }
}

#[test]
fn texts_that_differ_in_every_run_are_not_compared_and_others_are() {
    let shown = "job 01a20400-0b90-71cc-952e-7d6002819b6b succeeded on demo-0-w2\n  queue  29.0 ms  ████\n…\nlast …";
    let got =
        "job 01a20400-0b90-71cc-952e-000000000000 succeeded on fleet-3-w1\n  queue   352 µs  █\na\nb\nlast of all\n";
    assert!(fits(shown, got, "text"));
    assert!(!fits(shown, &got.replace("succeeded", "failed"), "text"));
    assert!(!fits(shown, &got.replace("last", "first"), "text"));
    assert!(!fits("one\n", "one\ntwo\n", "text"));
}

#[test]
fn json_is_compared_by_its_keys_and_kinds() {
    let shown = r#"[{ "id": "a", "took": 1, "error": null }]"#;
    assert!(fits(shown, r#"[{ "took": 2, "id": "b", "error": "c" }]"#, "json"));
    assert!(!fits(shown, r#"[{ "took": 2, "id": "b" }]"#, "json"));
    assert!(!fits(shown, r#"[{ "took": "2", "id": "b", "error": null }]"#, "json"));
}
