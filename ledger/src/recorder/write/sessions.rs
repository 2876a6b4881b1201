//! Writes what open sessions have done so far to their attempts, and finds how much of their device time the statistics have counted.
//!
//! A worker reports a session every ten seconds at most, so the reports are written one by one. The caller's transaction has locked the
//! rows of the jobs, so nothing changes an attempt between two statements.

use std::collections::HashMap;

use serde_json::json;
use sqlx::PgConnection;

use super::{
    attempts::{AttemptKey, Attempts},
    keys::Keys,
};
use crate::recorder::change::{OpenSession, Place};

/// Device time by attempt, in microseconds.
pub(super) type CountedTimes = HashMap<AttemptKey, i64>;

/// A report that changed the table.
pub(super) struct WrittenReport<'a> {
    pub(super) key: AttemptKey,
    pub(super) open: &'a OpenSession,
    pub(super) place: &'a Place,
    /// The device time since the report before it, in microseconds.
    pub(super) more_us: i64,
}

/// Returns the device time of the open sessions that end with these changes, as far as reports have counted it.
pub(super) async fn counted(
    attempts: &Attempts,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<CountedTimes, sqlx::Error> {
    let mut counted = CountedTimes::new();
    let ends = attempts.iter().filter(|(_, change)| change.end.as_ref().is_some_and(|end| end.session.is_some()));
    for ((job_id, attempt), _) in ends {
        let found = sqlx::query_scalar!(
            r#"/* recorder::write::sessions::counted */
            select charged_us as "charged_us!" from attempts
            where job_id = $1 and id_at = $2 and attempt = $3 and state = 'running' and charged_us is not null"#,
            job_id.as_uuid(),
            keys[job_id],
            attempt,
        )
        .fetch_optional(&mut *connection)
        .await?;
        counted.extend(found.map(|us| ((*job_id, *attempt), us)));
    }
    Ok(counted)
}

/// Writes the reports that are newer than those of the table to attempts that have not ended.
pub(super) async fn write<'a>(
    attempts: &'a Attempts,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<Vec<WrittenReport<'a>>, sqlx::Error> {
    let mut written = Vec::new();
    for (key, change) in attempts {
        if let (Some(open), Some(place)) = (&change.open, change.place())
            && let Some(more_us) = write_report(*key, open, keys, connection).await?
        {
            written.push(WrittenReport { key: *key, open, place, more_us });
        }
    }
    Ok(written)
}

/// Writes a report. Returns the device time since the one before it; `None` if the report comes too late.
async fn write_report(
    (job_id, attempt): AttemptKey,
    open: &OpenSession,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"/* recorder::write::sessions::report */
        with before as (
            select charged_us from attempts where job_id = $1 and id_at = $2 and attempt = $3
        )
        update attempts set session = $4, charged_us = $5, session_sequence = $6
        where job_id = $1 and id_at = $2 and attempt = $3 and state = 'running' and coalesce(session_sequence, 0) < $6
        returning greatest($5 - coalesce((select charged_us from before), 0), 0) as "more_us!""#,
        job_id.as_uuid(),
        keys[&job_id],
        attempt,
        json!(open.used),
        open.charged_us,
        open.sequence,
    )
    .fetch_optional(connection)
    .await
}
