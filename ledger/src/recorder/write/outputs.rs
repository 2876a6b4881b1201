//! Writes rows of `job_outputs`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{array::array_literal, jobs::FinalAttempts, keys::Keys};
use crate::recorder::change::{AttemptChange, KeptRow};

/// Writes the outputs that the deciding attempts have kept: those of jobs that succeeded, and of host programs that failed. Existing rows do
/// not change, because all events of an attempt have the same outputs.
pub(super) async fn write(
    attempts: &BTreeMap<(JobId, i32), AttemptChange>,
    keys: &Keys,
    outcomes: &FinalAttempts,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let columns = Columns::of(attempts, keys, outcomes);
    if columns.job_id.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"/* recorder::write::outputs */
        insert into job_outputs (job_id, position, name, dtype, shape, digest, data, expires_at)
        select new.job_id, new.position, new.name, new.dtype, new.shape::bigint[], new.digest, new.data, new.expires_at
        from unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::timestamptz[], $9::int[],
                    $10::timestamptz[])
            as new (job_id, position, name, dtype, shape, digest, data, expires_at, attempt, id_at)
        join attempts a on a.job_id = new.job_id and a.id_at = new.id_at and a.attempt = new.attempt
            and a.state in ('succeeded', 'failed')
        on conflict (job_id, position) do nothing"#,
        &columns.job_id,
        &columns.position,
        &columns.name as &[&str],
        &columns.dtype as &[&str],
        &columns.shape,
        &columns.digest as &[Option<&str>],
        &columns.data as &[Option<&[u8]>],
        &columns.expires_at,
        &columns.attempt,
        &columns.id_at,
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(Default)]
struct Columns<'a> {
    job_id: Vec<Uuid>,
    position: Vec<i32>,
    name: Vec<&'a str>,
    dtype: Vec<&'static str>,
    shape: Vec<String>,
    digest: Vec<Option<&'a str>>,
    data: Vec<Option<&'a [u8]>>,
    expires_at: Vec<DateTime<Utc>>,
    attempt: Vec<i32>,
    id_at: Vec<DateTime<Utc>>,
}

impl<'a> Columns<'a> {
    fn of(attempts: &'a BTreeMap<(JobId, i32), AttemptChange>, keys: &Keys, outcomes: &FinalAttempts) -> Self {
        let mut columns = Self::default();
        for ((job_id, attempt), change) in attempts {
            let kept = change.end.as_ref().map_or(&[][..], |end| &end.kept);
            if !kept.is_empty() && outcomes.get(job_id) == Some(attempt) {
                for (output, position) in kept.iter().zip(0..) {
                    columns.id_at.push(keys[job_id]);
                    columns.push(*job_id, *attempt, position, output);
                }
            }
        }
        columns
    }

    fn push(&mut self, job_id: JobId, attempt: i32, position: i32, output: &'a KeptRow) {
        self.job_id.push(job_id.as_uuid());
        self.position.push(position);
        self.name.push(&output.name);
        self.dtype.push(output.dtype.name());
        self.shape.push(array_literal(&output.shape));
        self.digest.push(output.digest.as_deref());
        self.data.push(output.data.as_deref());
        self.expires_at.push(output.expires_at);
        self.attempt.push(attempt);
    }
}
