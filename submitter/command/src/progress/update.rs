//! Progress as JSON, for programs: an object for each update, with `null` for what is not known.

use chrono::{DateTime, Utc};
use gpufleet::schema::{Count, JobId, Printed, Progress};
use serde::Serialize;

/// One line of `--follow -o json`.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    progress: Update<'a>,
}

#[derive(Debug, Serialize)]
struct Update<'a> {
    job_id: JobId,
    attempt: u32,
    sequence: u64,
    at: Option<DateTime<Utc>>,
    started_at: Option<DateTime<Utc>>,
    stage: &'a str,
    launches: Option<Count>,
    counter: Option<Count>,
    bytes: Option<Count>,
    printed: Option<&'a Printed>,
}

impl<'a> Line<'a> {
    pub fn of(progress: &'a Progress) -> Self {
        let Progress {
            version: _,
            job_id,
            attempt,
            sequence,
            at_ms,
            started_ms,
            stage,
            launches,
            counter,
            bytes,
            printed,
            ran_on: _,
        } = progress;
        Self {
            progress: Update {
                job_id: *job_id,
                attempt: *attempt,
                sequence: *sequence,
                at: DateTime::from_timestamp_millis(*at_ms),
                started_at: DateTime::from_timestamp_millis(*started_ms),
                stage: stage.name(),
                launches: *launches,
                counter: *counter,
                bytes: *bytes,
                printed: printed.as_ref(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, progress::line::tests::progress};

    #[test]
    fn an_update_is_an_object_whose_fields_the_help_names() {
        let printed = Printed { offset: 2_048, text: "epoch 3\n".to_owned() };
        let progress = Progress { printed: Some(printed), ..progress() };
        let line = Line::of(&progress);
        insta::assert_snapshot!("json_of_an_update", serde_json::to_string(&line).unwrap());
        json::check(json::FOLLOW, &line);
    }
}
