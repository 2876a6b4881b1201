//! One job, by its id or a prefix of it.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use gpufleet_schema::{JobId, JobState};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    Ledger, ask, outputs,
    record::{AttemptRecord, JobRecord, job_state},
};
use crate::{AttemptRow, JobDetail, JobRow, LedgerError, PrefixMatch, job_time::id_at};

/// Digits in a UUID without its hyphens.
const DIGITS: usize = 32;

impl Ledger {
    /// A job and its attempts, or `None` if no event has named it.
    pub async fn job(&self, job_id: JobId) -> Result<Option<JobDetail>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let job = ask("reading a job", read_job(lease.connection(), job_id)).await?;
        let Some(job) = job else {
            lease.keep();
            return Ok(None);
        };
        let attempts = ask("reading a job's attempts", read_attempts(lease.connection(), job_id)).await?;
        let outputs = ask("reading a job's outputs", outputs::read(lease.connection(), job_id)).await?;
        lease.keep();
        Ok(Some(JobDetail { job, attempts, outputs }))
    }

    /// The states of the recorded ones of these jobs, for a caller that polls.
    pub async fn job_states(&self, job_ids: &[JobId]) -> Result<HashMap<JobId, JobState>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let states = ask("reading the states of jobs", read_states(lease.connection(), job_ids)).await?;
        lease.keep();
        Ok(states)
    }

    /// The job whose id begins with this prefix, with or without hyphens. A text that can't begin an id matches none.
    pub async fn job_by_prefix(&self, prefix: &str) -> Result<PrefixMatch, LedgerError> {
        let Some((first, last)) = range_of(prefix) else { return Ok(PrefixMatch::None) };
        let mut lease = self.connection.lease().await?;
        let ids = ask(
            "looking for a job",
            sqlx::query_scalar!(
                "/* queries::job_by_prefix */
                select job_id from jobs where job_id between $1 and $2 order by job_id desc limit $3",
                first,
                last,
                i64::from(PrefixMatch::SHOWN_MAX),
            )
            .fetch_all(lease.connection()),
        )
        .await?;
        lease.keep();
        match ids.as_slice() {
            [] => Ok(PrefixMatch::None),
            // The ledger deletes no rows, so the row normally still exists.
            [one] => Ok(self
                .job(JobId::from_uuid(*one))
                .await?
                .map_or(PrefixMatch::None, |job| PrefixMatch::One(Box::new(job)))),
            many => Ok(PrefixMatch::Many(many.iter().copied().map(JobId::from_uuid).collect())),
        }
    }
}

async fn read_job(connection: &mut PgConnection, job_id: JobId) -> Result<Option<JobRow>, sqlx::Error> {
    let noted =
        sqlx::query_scalar!("/* queries::job_key */ select id_at from job_keys where job_id = $1", job_id.as_uuid())
            .fetch_optional(&mut *connection)
            .await?;
    let record = sqlx::query_as!(
        JobRecord,
        r#"/* queries::job */
            select j.job_id as "job_id!", j.state as "state!", j.name, j.labels as "labels: Json<BTreeMap<String, String>>",
                   j.pool, j.priority, j.program, j.kernel, j.client, j.user_id, j.created_at as "created_at!", j.submitted_at,
                   j.started_at, j.finished_at, (select count(*) from attempts where job_id = j.job_id) as "attempts!",
                   a.attempt as "attempt?", a.worker as "worker?",
                   (j.state = 'running' and a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.verdict, a.failure_code, a.failure_message, a.failure_line, j.input_bytes, a.output_bytes, a.queue_us,
                   (select sum(us)::bigint from unnest(a.launches_us) as us) as kernel_us, a.total_us
            from jobs j
            left join attempts a on a.job_id = j.job_id and a.attempt = coalesce(j.final_attempt, j.attempt)
            left join worker_hearing h on h.worker = a.worker
            where j.job_id = $1 and j.id_at = $2"#,
        job_id.as_uuid(),
        noted.unwrap_or_else(|| id_at(job_id)),
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
    let times: Vec<DateTime<Utc>> = job_ids.iter().map(|job_id| id_at(*job_id)).collect();
    let records = sqlx::query!(
        r#"/* queries::job_states */
            select j.job_id as "job_id!", j.state as "state!"
            from unnest($1::uuid[], $2::timestamptz[]) as wanted (job_id, id_at)
            left join job_keys k on k.job_id = wanted.job_id
            join jobs j on j.job_id = wanted.job_id and j.id_at = coalesce(k.id_at, wanted.id_at)"#,
        &uuids,
        &times,
    )
    .fetch_all(connection)
    .await?;
    let states = records.into_iter().map(|record| (JobId::from_uuid(record.job_id), job_state(&record.state)));
    Ok(states.collect())
}

async fn read_attempts(connection: &mut PgConnection, job_id: JobId) -> Result<Vec<AttemptRow>, sqlx::Error> {
    let records = sqlx::query_as!(
        AttemptRecord,
        r#"/* queries::attempts */
            select a.attempt, a.state, a.superseded, a.worker,
                   (a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.started_at, a.finished_at, a.verdict, a.failure_code, a.failure_message, a.failure_detail,
                   a.failure_line, a.output_bytes, a.queue_us, a.wait_us, a.fetch_us, a.compile_us, a.load_us,
                   a.copy_in_us, a.launches_us, a.copy_out_us, a.total_us, a.device_bytes_peak, a.module_cached, a.retry_at,
                   a.printf_output, a.printf_dropped_bytes
            from attempts a
            left join worker_hearing h on h.worker = a.worker
            where a.job_id = $1
            order by a.attempt"#,
        job_id.as_uuid(),
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(AttemptRow::from).collect())
}

/// The lowest and the highest id that begin with `prefix`.
fn range_of(prefix: &str) -> Option<(Uuid, Uuid)> {
    let digits: String = prefix.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || digits.len() > DIGITS || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let padded = |digit: char| {
        let mut text = digits.clone();
        text.extend(std::iter::repeat_n(digit, DIGITS - digits.len()));
        Uuid::try_parse(&text).ok()
    };
    Some((padded('0')?, padded('f')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_spans_the_ids_that_begin_with_it() {
        let (first, last) = range_of("0193-A").unwrap();
        assert_eq!(first.to_string(), "0193a000-0000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0193afff-ffff-ffff-ffff-ffffffffffff");
        let whole = "0193a000-0000-7000-8000-000000000001";
        assert_eq!(range_of(whole).map(|(first, last)| first == last), Some(true));
        for text in ["", "-", "xyz", "ü", &"0".repeat(33)] {
            assert_eq!(range_of(text), None, "{text:?}");
        }
    }
}
