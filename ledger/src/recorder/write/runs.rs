//! Writes the attempts of jobs that were submitted again under their id.
//!
//! Workers number the attempts of each submission from one, so a later submission has the same numbers again. Its attempts get the next free
//! numbers, and their device time counts. The outcome of the latest submission is that of the job, as its producer saw it; within a
//! submission the first outcome stays. Submissions differ by their time, which a producer without `submitted_ms` does not give.
//!
//! This is rare, so the attempts are written one by one.

use std::{borrow::Cow, collections::HashMap};

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;

use super::{
    attempts::{self, Attempts},
    jobs::{Described, FinalAttempts},
    keys::Keys,
};
use crate::recorder::change::{AttemptChange, End};

/// An attempt that has ended, of a later submission than the one whose outcome its job has.
pub(super) struct Run {
    job_id: JobId,
    started_at: Option<DateTime<Utc>>,
    end: End,
}

/// Attempts under their new numbers, and the jobs that they decided.
#[derive(Default)]
pub(super) struct Written {
    pub(super) attempts: Attempts,
    pub(super) outcomes: FinalAttempts,
}

/// An attempt that decides no job.
const NONE: i32 = 0;

/// Separates the attempts of later submissions from the others.
pub(super) fn split<'a>(
    attempts: &'a Attempts,
    described: &HashMap<JobId, Described>,
) -> (Cow<'a, Attempts>, Vec<Run>) {
    let is_later = |job_id: &JobId, change: &AttemptChange| {
        let known = described.get(job_id).and_then(|job| job.submitted_at);
        change.end.as_ref().is_some_and(|end| end.is_of_later_run(known))
    };
    if !attempts.iter().any(|((job_id, _), change)| !change.later_runs.is_empty() || is_later(job_id, change)) {
        return (Cow::Borrowed(attempts), Vec::new());
    }
    let mut own = attempts.clone();
    let mut runs = Vec::new();
    own.retain(|(job_id, _), change| {
        let later = is_later(job_id, change);
        let of_later = std::mem::take(&mut change.later_runs).into_iter().chain(later.then(|| change.clone()));
        runs.extend(
            of_later.filter_map(|AttemptChange { started_at, end, .. }| {
                Some(Run { job_id: *job_id, started_at, end: end? })
            }),
        );
        !later
    });
    (Cow::Owned(own), runs)
}

pub(super) async fn write(
    mut runs: Vec<Run>,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<Written, sqlx::Error> {
    runs.sort_by_key(|run| (run.job_id, run.end.submitted_at, run.end.at));
    let mut written = Written::default();
    for run in runs {
        let id_at = keys[&run.job_id];
        let Some(number) = free_number(&run, id_at, connection).await? else { continue };
        let decides = run.end.is_final() && decide(&run, number, id_at, connection).await?;
        let outcome = FinalAttempts::from([(run.job_id, if decides { number } else { NONE })]);
        let change = AttemptChange { started_at: run.started_at, end: Some(run.end), ..AttemptChange::default() };
        let attempt = Attempts::from([((run.job_id, number), change)]);
        attempts::write(&attempt, keys, &outcome, connection).await?;
        written.attempts.extend(attempt);
        if decides {
            written.outcomes.extend(outcome);
        }
    }
    Ok(written)
}

/// The number behind those of all attempts at the job. None if the ledger has the attempt. The job's row is locked by this transaction.
async fn free_number(
    run: &Run,
    id_at: DateTime<Utc>,
    connection: &mut PgConnection,
) -> Result<Option<i32>, sqlx::Error> {
    let known = sqlx::query!(
        r#"/* recorder::write::runs::number */
        select coalesce(max(attempt), 0) + 1 as "number!",
               coalesce(bool_or(worker = $3 and finished_at = $4), false) as "is_known!"
        from attempts where job_id = $1 and id_at = $2"#,
        run.job_id.as_uuid(),
        id_at,
        run.end.place.worker.as_str(),
        run.end.at,
    )
    .fetch_one(connection)
    .await?;
    Ok((!known.is_known).then_some(known.number))
}

/// Gives the job the outcome of a later submission. Returns whether it has it.
async fn decide(
    run: &Run,
    number: i32,
    id_at: DateTime<Utc>,
    connection: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    let state = run.end.state.job_state();
    let decided = sqlx::query!(
        "/* recorder::write::runs::decide */
        update jobs set
            state = $3, final_attempt = $4, finished_at = $5, worker = $6, submitted_at = $7,
            attempt = greatest(attempt, $4), attempt_ended = attempt_ended or attempt < $4
        where job_id = $1 and id_at = $2 and submitted_at < $7",
        run.job_id.as_uuid(),
        id_at,
        state.name(),
        number,
        run.end.at,
        run.end.place.worker.as_str(),
        run.end.submitted_at,
    )
    .execute(&mut *connection)
    .await?;
    if decided.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!(
        "/* recorder::write::runs::supersede */
        update attempts set superseded = true
        where job_id = $1 and id_at = $2 and state not in ('running', 'lost') and not superseded",
        run.job_id.as_uuid(),
        id_at,
    )
    .execute(&mut *connection)
    .await?;
    let job_id = run.job_id.as_uuid();
    sqlx::query!("/* recorder::write::runs::outputs */ delete from job_outputs where job_id = $1", job_id)
        .execute(connection)
        .await?;
    Ok(true)
}
