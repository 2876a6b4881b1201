//! Renders dead letters for people and programs.

use chrono::{DateTime, Utc};
use gpufleet::{DeadLetter, schema::Encoding};
use serde_json::{Value, json};

use crate::{
    output, quantity,
    table::{Column, fit},
    time,
};
use gpufleet_ledger::age;

/// The largest body that is shown: longer arrays are not readable as JSON.
const SHOWN_BYTES: usize = 64 << 10;

const COLUMNS: [Column; 5] =
    [Column::Left("JOB"), Column::Left("FROM"), Column::Right("AGE"), Column::Right("SIZE"), Column::Left("REASON")];

pub fn table<'a>(letters: impl Iterator<Item = &'a DeadLetter>, now: DateTime<Utc>, width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = letters
        .map(|letter| {
            let first_line = letter.reason.lines().next().unwrap_or_default();
            vec![
                name(letter),
                output::visible(&letter.origin).into_owned(),
                submitted_at(letter).map_or_else(|| "-".to_owned(), |time| age(now - time)),
                quantity::bytes(letter.bytes),
                output::visible(first_line).into_owned(),
            ]
        })
        .collect();
    fit(&COLUMNS, &rows, width, &["SIZE", "FROM", "AGE"])
}

pub fn name(letter: &DeadLetter) -> String {
    match letter.jobs.as_slice() {
        [] => output::visible(letter.message_id.as_deref().unwrap_or("unknown")).into_owned(),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

pub fn to_json(letter: &DeadLetter) -> Value {
    json!({
        "jobs": letter.jobs,
        "message_id": letter.message_id,
        "reason": letter.reason,
        "origin": letter.origin,
        "user": letter.user,
        "type": letter.kind,
        "bytes": letter.bytes,
        "kept_bytes": letter.kept_bytes,
        "submitted_at": submitted_at(letter),
    })
}

pub fn with_body(letter: &DeadLetter, body: Option<(&[u8], Option<&str>)>) -> Value {
    let mut shown = to_json(letter);
    shown["body"] = body.and_then(|(body, content_type)| readable(body, content_type)).unwrap_or_default();
    shown
}

/// The tasks of a body that is short enough to read.
fn readable(body: &[u8], content_type: Option<&str>) -> Option<Value> {
    let encoding = content_type.and_then(Encoding::of_content_type).filter(|_| body.len() <= SHOWN_BYTES)?;
    let tasks = encoding.decode_tasks(body).ok()?;
    serde_json::to_value(tasks.into_vec()).ok()
}

/// Names and values in two columns, without unknown values.
pub fn describe(letter: &DeadLetter) -> String {
    let jobs: Vec<String> = letter.jobs.iter().map(ToString::to_string).collect();
    let size = match letter.is_cut() {
        true => format!("{}, of which {} are kept", quantity::bytes(letter.bytes), quantity::bytes(letter.kept_bytes)),
        false => quantity::bytes(letter.bytes),
    };
    let lines = [
        ("job", Some(jobs.join("\n"))),
        ("message", letter.message_id.clone()),
        ("from", Some(letter.origin.clone())),
        ("user", letter.user.clone()),
        ("type", letter.kind.clone()),
        ("submitted", submitted_at(letter).map(time::exact)),
        ("size", Some(size)),
        ("reason", Some(letter.reason.clone())),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        for (index, line) in value.iter().flat_map(|value| value.lines()).enumerate() {
            let name = if index == 0 { name } else { "" };
            text.push_str(&format!("{name:<10} {line}\n"));
        }
    }
    text
}

/// The time of the message, or else that of its first job.
fn submitted_at(letter: &DeadLetter) -> Option<DateTime<Utc>> {
    let of_message = letter.timestamp.and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000));
    let of_job = || letter.jobs.first()?.made_ms();
    DateTime::from_timestamp_millis(of_message.or_else(of_job)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn letter() -> DeadLetter {
        DeadLetter {
            jobs: vec!["01990f3e-0000-7000-8000-000000000001".parse().unwrap()],
            message_id: Some("m".to_owned()),
            reason: "gave up after 3 lost executors; the last one: signal 9\nmore".to_owned(),
            origin: "default.normal".to_owned(),
            user: Some("anna".to_owned()),
            kind: None,
            bytes: 1234,
            kept_bytes: 1234,
            timestamp: None,
        }
    }

    fn letters() -> [DeadLetter; 4] {
        let one = letter();
        let job = one.jobs[0];
        let list = DeadLetter { jobs: vec![job; 3], timestamp: Some(1_800_000_000), ..one.clone() };
        let unreadable = DeadLetter { jobs: Vec::new(), ..one.clone() };
        let cut = DeadLetter { bytes: 20 << 20, kept_bytes: 64 << 10, ..list.clone() };
        [one, list, unreadable, cut]
    }

    #[test]
    fn the_table_of_dead_letters() {
        let now = DateTime::from_timestamp(1_800_007_300, 0).unwrap();
        insta::assert_snapshot!(table(letters().iter(), now, None));
    }

    #[test]
    fn a_letter_in_full() {
        insta::assert_snapshot!(letters().map(|letter| describe(&letter)).join("\n"));
    }

    #[test]
    fn json_of_a_letter() {
        let [_, list, ..] = letters();
        let shown = to_json(&list);
        assert_eq!(shown["submitted_at"], "2027-01-15T08:00:00Z");
        json::check(json::DEAD_LIST, &shown);
        // The fields inside the body are those of the task.
        let whole = with_body(&list, Some((b"nonsense", Some("application/json"))));
        assert_eq!(whole["body"], Value::Null);
        let own: Vec<&String> = whole.as_object().unwrap().keys().filter(|name| shown.get(name).is_none()).collect();
        assert_eq!(own, ["body"]);
        assert!(json::DEAD_SHOW.contains("body "));
    }
}
