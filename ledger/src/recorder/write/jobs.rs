//! Writes rows of `jobs`.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::keys::Keys;
use crate::recorder::{
    change::{Info, JobChange},
    merge::Changes,
};

/// The attempt that decided the outcome of each job of a batch, for jobs with an outcome.
pub(super) type FinalAttempts = HashMap<JobId, i32>;

/// The rows of the jobs after the write.
pub(super) struct Written {
    pub(super) outcomes: FinalAttempts,
    pub(super) described: HashMap<JobId, Described>,
}

/// The facts by which a job is counted. Unknown texts are empty.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) pool: String,
    pub(super) program: String,
    pub(super) kernel: String,
    pub(super) user_id: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) input_bytes: i64,
    /// The time of the submission whose outcome counts, or else of the first submission.
    pub(super) submitted_at: Option<DateTime<Utc>>,
}

/// Merges the changes into the table by the rules in [`crate::recorder`]. Returns the resulting rows, because a separate query for them
/// would join with the whole month. A job that belongs to another user does not change, and its row is not returned.
pub(super) async fn write(
    changes: &Changes,
    keys: &Keys,
    connection: &mut PgConnection,
) -> Result<Written, sqlx::Error> {
    let columns = Columns::of(changes, keys);
    let written = sqlx::query!(
        r#"/* recorder::write::jobs */
        insert into jobs as known
            (job_id, id_at, created_at, state, pool, priority, name, labels, program, kernel, input_bytes, client,
             submitted_at, confirmed_at, attempt, attempt_ended, started_at, final_attempt, finished_at, user_id, worker,
             lease_bytes, host_program)
        select * from unnest(
            $1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
            $9::text[], $10::text[], $11::bigint[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::int[],
            $16::bool[], $17::timestamptz[], $18::int[], $19::timestamptz[], $20::text[], $21::text[],
            $22::bigint[], $23::jsonb[])
        on conflict (job_id, id_at) do update set
            created_at = case when known.user_id is distinct from excluded.user_id then excluded.created_at else least(known.created_at, excluded.created_at) end,
            state = case
                when known.final_attempt is not null then known.state
                when excluded.final_attempt is not null then excluded.state
                when (excluded.attempt, excluded.attempt_ended) > (known.attempt, known.attempt_ended) then excluded.state
                else known.state
            end,
            pool = case when known.user_id is distinct from excluded.user_id then excluded.pool else coalesce(known.pool, excluded.pool) end,
            priority = case when known.user_id is distinct from excluded.user_id then excluded.priority else coalesce(known.priority, excluded.priority) end,
            name = case when known.user_id is distinct from excluded.user_id then excluded.name else coalesce(known.name, excluded.name) end,
            labels = case when known.user_id is distinct from excluded.user_id then excluded.labels else coalesce(known.labels, excluded.labels) end,
            program = case when known.user_id is distinct from excluded.user_id then excluded.program else coalesce(known.program, excluded.program) end,
            kernel = case when known.user_id is distinct from excluded.user_id then excluded.kernel else coalesce(known.kernel, excluded.kernel) end,
            input_bytes = case when known.user_id is distinct from excluded.user_id then excluded.input_bytes else coalesce(known.input_bytes, excluded.input_bytes) end,
            lease_bytes = case when known.user_id is distinct from excluded.user_id then excluded.lease_bytes else coalesce(known.lease_bytes, excluded.lease_bytes) end,
            host_program = case when known.user_id is distinct from excluded.user_id then excluded.host_program else coalesce(known.host_program, excluded.host_program) end,
            client = case when known.user_id is distinct from excluded.user_id then excluded.client else coalesce(known.client, excluded.client) end,
            user_id = excluded.user_id,
            submitted_at = case when known.user_id is distinct from excluded.user_id then excluded.submitted_at else coalesce(known.submitted_at, excluded.submitted_at) end,
            confirmed_at = case when known.user_id is distinct from excluded.user_id then excluded.confirmed_at else least(known.confirmed_at, excluded.confirmed_at) end,
            attempt = greatest(known.attempt, excluded.attempt),
            attempt_ended = case
                when excluded.attempt > known.attempt then excluded.attempt_ended
                when excluded.attempt = known.attempt then known.attempt_ended or excluded.attempt_ended
                else known.attempt_ended
            end,
            started_at = case
                when least(known.started_at, excluded.started_at) <= coalesce(known.finished_at, excluded.finished_at, 'infinity')
                then least(known.started_at, excluded.started_at)
            end,
            worker = case when known.final_attempt is null then excluded.worker else known.worker end,
            final_attempt = coalesce(known.final_attempt, excluded.final_attempt),
            finished_at = coalesce(known.finished_at, excluded.finished_at)
        -- A worker's event, which has an attempt, takes a job over from another client's submission.
        where known.user_id is not distinct from excluded.user_id or (known.attempt = 0 and excluded.attempt > 0)
        returning job_id, final_attempt, pool, program, kernel, user_id, labels as "labels: Json<BTreeMap<String, String>>", input_bytes,
                  submitted_at, started_at > finished_at as started_late"#,
        &columns.job_id,
        &columns.id_at,
        &columns.created_at,
        &columns.state as &[&str],
        &columns.pool as &[Option<&str>],
        &columns.priority as &[Option<&str>],
        &columns.name as &[Option<&str>],
        &columns.labels as &[Option<Value>],
        &columns.program as &[Option<&str>],
        &columns.kernel as &[Option<&str>],
        &columns.input_bytes as &[Option<i64>],
        &columns.client as &[Option<&str>],
        &columns.submitted_at as &[Option<DateTime<Utc>>],
        &columns.confirmed_at as &[Option<DateTime<Utc>>],
        &columns.attempt,
        &columns.attempt_ended,
        &columns.started_at as &[Option<DateTime<Utc>>],
        &columns.final_attempt as &[Option<i32>],
        &columns.finished_at as &[Option<DateTime<Utc>>],
        &columns.user_id as &[Option<&str>],
        &columns.worker as &[Option<&str>],
        &columns.lease_bytes as &[Option<i64>],
        &columns.host_program as &[Option<Value>],
    )
    .fetch_all(&mut *connection)
    .await?;
    let late: Vec<Uuid> = written.iter().filter(|row| row.started_late == Some(true)).map(|row| row.job_id).collect();
    if !late.is_empty() {
        forget_starts(&late, connection).await?;
    }
    let outcomes = written.iter().filter_map(|row| Some((JobId::from_uuid(row.job_id), row.final_attempt?))).collect();
    let described = written.into_iter().map(|row| {
        let described = Described {
            pool: row.pool.unwrap_or_default(),
            program: row.program.unwrap_or_default(),
            kernel: row.kernel.unwrap_or_default(),
            user_id: row.user_id.unwrap_or_default(),
            labels: row.labels.map(|labels| labels.0).unwrap_or_default(),
            input_bytes: row.input_bytes.unwrap_or_default(),
            submitted_at: row.submitted_at,
        };
        (JobId::from_uuid(row.job_id), described)
    });
    Ok(Written { outcomes, described: described.collect() })
}

/// Clears the start of new rows if it is later than the outcome, because a redelivered message can run after its job was cancelled in the
/// queue. For existing rows, the upsert ignores such a start.
async fn forget_starts(jobs: &[Uuid], connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "/* recorder::write::forget_starts */ update jobs set started_at = null where job_id = any($1) and started_at > finished_at",
        jobs
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(Default)]
struct Columns<'a> {
    job_id: Vec<Uuid>,
    id_at: Vec<DateTime<Utc>>,
    created_at: Vec<DateTime<Utc>>,
    state: Vec<&'a str>,
    pool: Vec<Option<&'a str>>,
    priority: Vec<Option<&'a str>>,
    name: Vec<Option<&'a str>>,
    labels: Vec<Option<Value>>,
    program: Vec<Option<&'a str>>,
    kernel: Vec<Option<&'a str>>,
    input_bytes: Vec<Option<i64>>,
    client: Vec<Option<&'a str>>,
    submitted_at: Vec<Option<DateTime<Utc>>>,
    confirmed_at: Vec<Option<DateTime<Utc>>>,
    attempt: Vec<i32>,
    attempt_ended: Vec<bool>,
    started_at: Vec<Option<DateTime<Utc>>>,
    final_attempt: Vec<Option<i32>>,
    finished_at: Vec<Option<DateTime<Utc>>>,
    user_id: Vec<Option<&'a str>>,
    /// The worker that reported the outcome.
    worker: Vec<Option<&'a str>>,
    lease_bytes: Vec<Option<i64>>,
    host_program: Vec<Option<Value>>,
}

impl<'a> Columns<'a> {
    fn of(changes: &'a Changes, keys: &Keys) -> Self {
        let mut columns = Self::default();
        for (job_id, change) in &changes.jobs {
            columns.push(*job_id, keys[job_id], change);
            let decided = change.outcome.and_then(|outcome| changes.attempts.get(&(*job_id, outcome.attempt)));
            columns.worker.push(decided.and_then(|attempt| attempt.place()).map(|place| place.worker.as_str()));
        }
        columns
    }

    fn push(&mut self, job_id: JobId, id_at: DateTime<Utc>, change: &'a JobChange) {
        let info = change.info.as_ref();
        let text = |of: fn(&Info) -> &str| info.map(of);
        self.job_id.push(job_id.as_uuid());
        self.id_at.push(id_at);
        self.created_at.push(change.created_at);
        self.state.push(change.state().name());
        self.pool.push(text(|info| &info.pool));
        self.priority.push(text(|info| info.priority));
        self.name.push(info.and_then(|info| info.name.as_deref()));
        self.labels.push(info.map(|info| serde_json::json!(info.labels)));
        self.program.push(text(|info| &info.program));
        self.kernel.push(text(|info| &info.kernel));
        self.input_bytes.push(info.map(|info| info.input_bytes));
        self.lease_bytes.push(info.and_then(|info| info.lease_bytes));
        self.host_program
            .push(info.and_then(|info| info.host_program.as_ref()).map(|program| serde_json::json!(program)));
        self.client.push(info.and_then(|info| info.client.as_deref()));
        self.submitted_at.push(info.and_then(|info| info.submitted_at));
        self.confirmed_at.push(change.confirmed_at);
        self.attempt.push(change.progress.attempt);
        self.attempt_ended.push(change.progress.ended);
        self.started_at.push(change.started_at);
        self.final_attempt.push(change.outcome.map(|outcome| outcome.attempt));
        self.user_id.push(change.owner.user.as_deref());
        self.finished_at.push(change.outcome.map(|outcome| outcome.finished_at));
    }
}
