//! One job, by its id.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use gpufleet_schema::{HostProgramInfo, JobId, JobState, SessionUse};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    ledger::{Ledger, ask},
    outputs,
    record::{AttemptRecord, JobRecord},
};
use crate::{AttemptRow, JobDetail, JobRow, LedgerError, job_time::id_at};

impl Ledger {
    /// Returns a job and its attempts, or `None` if no event has named it.
    pub async fn job(&self, job_id: JobId) -> Result<Option<JobDetail>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let key = ask("reading a job's key", key(lease.connection(), job_id)).await?;
        let job = ask("reading a job", read_job(lease.connection(), job_id, key)).await?;
        let Some(job) = job else {
            lease.keep();
            return Ok(None);
        };
        let mut attempts = ask("reading a job's attempts", read_attempts(lease.connection(), job_id, key)).await?;
        if job.is_host_program() {
            attempts
                .iter_mut()
                .filter_map(|attempt| attempt.printf_output.as_mut())
                .for_each(|output| output.is_tail = true);
        }
        let outputs = ask("reading a job's outputs", outputs::read(lease.connection(), job_id)).await?;
        lease.keep();
        Ok(Some(JobDetail { job, attempts, outputs }))
    }

    /// Returns the states of those of these jobs that are recorded, for a caller that polls.
    pub async fn job_states(&self, job_ids: &[JobId]) -> Result<HashMap<JobId, JobState>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let states = ask("reading the states of jobs", read_states(lease.connection(), job_ids)).await?;
        lease.keep();
        Ok(states)
    }
}

/// Returns the time by which a job's rows are partitioned. `job_keys` has it for ids that do not determine it.
pub(super) async fn key(connection: &mut PgConnection, job_id: JobId) -> Result<DateTime<Utc>, sqlx::Error> {
    let noted =
        sqlx::query_scalar!("/* queries::job_key */ select id_at from job_keys where job_id = $1", job_id.as_uuid())
            .fetch_optional(connection)
            .await?;
    Ok(noted.unwrap_or_else(|| id_at(job_id)))
}

async fn read_job(
    connection: &mut PgConnection,
    job_id: JobId,
    key: DateTime<Utc>,
) -> Result<Option<JobRow>, sqlx::Error> {
    let record = sqlx::query_as!(
        JobRecord,
        r#"/* queries::job */
            select j.job_id as "job_id!", j.id_at as "id_at!", j.state as "state!", j.name, j.labels as "labels: Json<BTreeMap<String, String>>",
                   j.pool, j.priority, j.program, j.kernel, j.client, j.user_id, j.created_at as "created_at!", j.submitted_at,
                   j.started_at, j.finished_at, coalesce(a.attempts, 0) as "attempts!",
                   a.attempt as "attempt?", a.worker as "worker?",
                   (j.state = 'running' and a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.verdict, a.failure_code, a.failure_message, a.failure_line, j.input_bytes, j.lease_bytes, a.output_bytes, a.queue_us,
                   j.host_program as "host_program: Json<HostProgramInfo>",
                   a.launches_us, a.total_us
            from jobs j
            left join (select *, count(*) over () as attempts from attempts where job_id = $1 and id_at = $2) a
                on a.attempt = coalesce(j.final_attempt, j.attempt)
            left join worker_hearing h on h.worker = a.worker
            where j.job_id = $1 and j.id_at = $2"#,
        job_id.as_uuid(),
        key,
    )
    .fetch_optional(connection)
    .await?;
    Ok(record.map(JobRow::from))
}

async fn read_states(
    connection: &mut PgConnection,
    job_ids: &[JobId],
) -> Result<HashMap<JobId, JobState>, sqlx::Error> {
    let uuids: Vec<Uuid> = job_ids.iter().map(|job_id| job_id.as_uuid()).collect();
    let noted =
        sqlx::query!("/* queries::job_keys */ select job_id, id_at from job_keys where job_id = any($1)", &uuids)
            .fetch_all(&mut *connection)
            .await?;
    let noted: HashMap<Uuid, DateTime<Utc>> = noted.into_iter().map(|row| (row.job_id, row.id_at)).collect();
    let keys: Vec<DateTime<Utc>> =
        job_ids.iter().map(|job_id| noted.get(&job_id.as_uuid()).copied().unwrap_or_else(|| id_at(*job_id))).collect();
    let records = sqlx::query!(
        r#"/* queries::job_states */
            select j.job_id as "job_id!", j.state as "state!"
            from unnest($1::uuid[], $2::timestamptz[]) as wanted (job_id, id_at)
            join jobs j on j.job_id = wanted.job_id and j.id_at = wanted.id_at
            where j.id_at between $3 and $4"#,
        &uuids,
        &keys,
        keys.iter().min(),
        keys.iter().max(),
    )
    .fetch_all(connection)
    .await?;
    let states = records.into_iter().map(|record| (JobId::from_uuid(record.job_id), JobState::of(&record.state)));
    Ok(states.collect())
}

async fn read_attempts(
    connection: &mut PgConnection,
    job_id: JobId,
    key: DateTime<Utc>,
) -> Result<Vec<AttemptRow>, sqlx::Error> {
    let records = sqlx::query_as!(
        AttemptRecord,
        r#"/* queries::attempts */
            select a.attempt, a.state, a.superseded, a.worker,
                   (a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.started_at, a.finished_at, a.verdict, a.failure_code, a.failure_message, a.failure_detail,
                   a.failure_line, a.failure_source, a.output_bytes, a.queue_us, a.wait_us, a.fetch_us, a.compile_us, a.load_us,
                   a.copy_in_us, a.launches_us, a.copy_out_us, a.total_us, a.device_bytes_peak, a.module_cached, a.charged_us, a.retry_at,
                   a.printf_output, a.printf_dropped_bytes, a.session as "session: Json<SessionUse>"
            from attempts a
            left join worker_hearing h on h.worker = a.worker
            where a.job_id = $1 and a.id_at = $2
            order by a.attempt"#,
        job_id.as_uuid(),
        key,
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(AttemptRow::from).collect())
}
