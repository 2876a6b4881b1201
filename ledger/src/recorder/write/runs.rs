//! Writes the attempts of jobs that were submitted again under their id.
//!
//! Workers number the attempts of each submission from one, so the numbers repeat. The attempts of a later submission get the next free
//! numbers, and their device time counts. The job has the outcome of its latest submission, as its producer saw it; within a submission the
//! first outcome stays. Submissions are distinguished by their time; a producer without `submitted_ms` gives none.
//!
//! This is rare, so the attempts are written one by one.

use std::{borrow::Cow, cmp::Ordering};

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;

use super::{
    attempts::{self, AttemptKey, Attempts},
    jobs::{self, FinalAttempts},
    keys::Keys,
};
use crate::recorder::change::{AttemptChange, End};

/// An ended attempt of another submission than the one that the ledger has recorded for its job.
pub(super) struct ResubmittedAttempt {
    job_id: JobId,
    /// The attempt number that the worker reported.
    number: i32,
    started_at: Option<DateTime<Utc>>,
    end: End,
}

/// Attempts under their new numbers, and the jobs that they decided.
#[derive(Default)]
pub(super) struct Written {
    pub(super) attempts: Attempts,
    pub(super) outcomes: FinalAttempts,
    /// The outcomes that are the first of their job. A job is counted once, by its first outcome.
    pub(super) first_outcomes: FinalAttempts,
}

/// The effect of an outcome of another submission on its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// The job keeps an outcome of the same or a later submission.
    Superseded,
    Replaces,
    First,
}

/// A number that no attempt has.
const NONE: i32 = 0;

/// Separates the attempts of other submissions from the rest, and drops those that the table already has under another number.
pub(super) async fn split<'a>(
    attempts: &'a Attempts,
    jobs: &jobs::Written,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<(Cow<'a, Attempts>, Vec<ResubmittedAttempt>), sqlx::Error> {
    let run_of = |job_id: &JobId, change: &AttemptChange| {
        let known = jobs.described.get(job_id).and_then(|job| job.submitted_at);
        change.end.as_ref().map_or(Ordering::Equal, |end| end.run(known))
    };
    let is_usual = |((job_id, number), change): (&AttemptKey, &AttemptChange)| {
        let has_other_outcome = jobs.outcomes.get(job_id).is_some_and(|decided| decided != number);
        change.other_runs.is_empty() && run_of(job_id, change).is_eq() && !has_other_outcome
    };
    if attempts.iter().all(is_usual) {
        return Ok((Cow::Borrowed(attempts), Vec::new()));
    }
    let (mut own, mut runs) = (Attempts::new(), Vec::new());
    for (key, change) in attempts {
        let mut change = change.clone();
        runs.extend(
            std::mem::take(&mut change.other_runs).into_iter().filter_map(|other| ResubmittedAttempt::of(*key, other)),
        );
        if let Some(end) = &change.end
            && !is_usual((key, &change))
            && is_recorded(*key, end, keys, connection).await?
        {
            continue;
        }
        match run_of(&key.0, &change) {
            Ordering::Equal => _ = own.insert(*key, change),
            Ordering::Greater | Ordering::Less => runs.extend(ResubmittedAttempt::of(*key, change)),
        }
    }
    Ok((Cow::Owned(own), runs))
}

impl ResubmittedAttempt {
    fn of((job_id, number): AttemptKey, AttemptChange { started_at, end, .. }: AttemptChange) -> Option<Self> {
        Some(Self { job_id, number, started_at, end: end? })
    }
}

pub(super) async fn write(
    mut runs: Vec<ResubmittedAttempt>,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<Written, sqlx::Error> {
    runs.sort_by_key(|run| (run.job_id, run.end.submitted_at, run.end.at));
    let mut written = Written::default();
    for run in runs {
        let id_at = keys[&run.job_id];
        if is_recorded((run.job_id, NONE), &run.end, keys, connection).await? {
            continue;
        }
        let number = free_number(&run, id_at, connection).await?;
        let decision = match run.end.is_final() {
            true => decide(&run, number, id_at, connection).await?,
            false => Decision::Superseded,
        };
        let decides = decision != Decision::Superseded;
        let outcome = FinalAttempts::from([(run.job_id, if decides { number } else { NONE })]);
        let change = AttemptChange { started_at: run.started_at, end: Some(run.end), ..AttemptChange::default() };
        let attempt = Attempts::from([((run.job_id, number), change)]);
        attempts::write(&attempt, keys, &outcome, connection).await?;
        written.attempts.extend(attempt);
        if decision == Decision::First {
            written.first_outcomes.extend(&outcome);
        }
        if decides {
            written.outcomes.extend(outcome);
        }
    }
    Ok(written)
}

/// Returns whether the table has the attempt under another number. An attempt is identified by its worker and the time of its end.
async fn is_recorded(
    (job_id, number): AttemptKey,
    end: &End,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"/* recorder::write::runs::is_recorded */
        select exists (
            select from attempts
            where job_id = $1 and id_at = $2 and attempt <> $3 and worker = $4 and finished_at = $5) as "is!""#,
        job_id.as_uuid(),
        keys[&job_id],
        number,
        end.place.worker.as_str(),
        end.at,
    )
    .fetch_one(connection)
    .await
}

/// Returns the run's own number, or the next free one if another run has ended under it. The caller's transaction has locked the job's row.
async fn free_number(
    run: &ResubmittedAttempt,
    id_at: DateTime<Utc>,
    connection: &mut PgConnection,
) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar!(
        r#"/* recorder::write::runs::number */
        select case when bool_or(attempt = $3 and finished_at is not null) then max(attempt) + 1 else $3 end as "number!"
        from attempts where job_id = $1 and id_at = $2"#,
        run.job_id.as_uuid(),
        id_at,
        run.number,
    )
    .fetch_one(connection)
    .await
}

/// Gives the job this outcome, unless the job has an outcome of the same or a later submission.
async fn decide(
    run: &ResubmittedAttempt,
    number: i32,
    id_at: DateTime<Utc>,
    connection: &mut PgConnection,
) -> Result<Decision, sqlx::Error> {
    let state = run.end.state.job_state();
    let decided = sqlx::query!(
        "/* recorder::write::runs::decide */
        update jobs set
            state = $3, final_attempt = $4, finished_at = $5, worker = $6, submitted_at = $7,
            started_at = least(started_at, $8), attempt = greatest(attempt, $4), attempt_ended = attempt_ended or attempt < $4
        where job_id = $1 and id_at = $2 and (submitted_at < $7 or not exists (
            select from attempts a
            where a.job_id = $1 and a.id_at = $2 and a.state not in ('running', 'lost') and not a.superseded))",
        run.job_id.as_uuid(),
        id_at,
        state.name(),
        number,
        run.end.at,
        run.end.place.worker.as_str(),
        run.end.submitted_at,
        run.started_at,
    )
    .execute(&mut *connection)
    .await?;
    if decided.rows_affected() == 0 {
        return Ok(Decision::Superseded);
    }
    let superseded = sqlx::query!(
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
    Ok(if superseded.rows_affected() == 0 { Decision::First } else { Decision::Replaces })
}
