//! Writes rows of `attempts`. One statement writes ends together with their starts. Another one writes starts without an end, which have
//! other columns. [`super::sessions`] adds what open sessions have done.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    array::array_literal,
    jobs::FinalAttempts,
    keys::Keys,
    sessions::{self, CountedTimes, WrittenReport},
};
use crate::recorder::change::{AttemptChange, End, Place};

/// A job and the number of an attempt at it.
pub(super) type AttemptKey = (JobId, i32);
pub(super) type Attempts = BTreeMap<AttemptKey, AttemptChange>;

/// What a write has changed, for the statistics.
pub(super) struct Written<'a> {
    /// The ends that changed the table, so that each outcome, and each loss before it, is here once.
    pub(super) ends: Vec<(AttemptKey, &'a End)>,
    /// The device time of these ends that reports of their sessions have counted before.
    pub(super) counted_us: CountedTimes,
    pub(super) reports: Vec<WrittenReport<'a>>,
}

/// Writes the replaced losses, then the ends, then the other starts: those without an end, or all of them if the table rejected an end.
pub(super) async fn write<'a>(
    attempts: &'a Attempts,
    keys: &Keys,
    outcomes: &FinalAttempts,
    connection: &mut PgConnection,
) -> Result<Written<'a>, sqlx::Error> {
    let counted_us = sessions::counted(attempts, keys, connection).await?;
    let losses = EndColumns::of(attempts, |change| change.replaced.as_ref(), keys, outcomes);
    let mut written = Vec::new();
    for key in write_ends(&losses, connection).await? {
        written.extend(attempts[&key].replaced.as_ref().map(|loss| (key, loss)));
    }
    let ends = EndColumns::of(attempts, |change| change.end.as_ref(), keys, outcomes);
    let keys_of_ends = write_ends(&ends, connection).await?;
    let all_written = keys_of_ends.len() == ends.job_id.len();
    written.extend(keys_of_ends.into_iter().filter_map(|key| Some((key, attempts[&key].end.as_ref()?))));
    let starts = StartColumns::of(attempts.iter().filter(|(_, change)| !all_written || change.end.is_none()), keys);
    if !starts.job_id.is_empty() {
        write_starts(&starts, connection).await?;
    }
    let reports = sessions::write(attempts, keys, connection).await?;
    Ok(Written { ends: written, counted_us, reports })
}

/// Keeps the earlier of two starts, because the later one may have followed the end. An attempt that has ended keeps the place of its end.
async fn write_starts(columns: &StartColumns<'_>, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"/* recorder::write::attempts::starts */
        insert into attempts as known (job_id, attempt, state, worker, device, device_name, emulated, started_at, id_at)
        select job_id, attempt, 'running', worker, device, device_name, emulated, started_at, id_at
        from unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::text[], $6::bool[], $7::timestamptz[], $8::timestamptz[])
            as new (job_id, attempt, worker, device, device_name, emulated, started_at, id_at)
        on conflict (job_id, id_at, attempt) do update set
            worker = case when known.state = 'running' then excluded.worker else known.worker end,
            device = case when known.state = 'running' then excluded.device else known.device end,
            device_name = case when known.state = 'running' then excluded.device_name else known.device_name end,
            emulated = case when known.state = 'running' then excluded.emulated else known.emulated end,
            started_at = excluded.started_at
        where known.started_at is null or known.started_at > excluded.started_at"#,
        &columns.job_id,
        &columns.attempt,
        &columns.worker as &[&str],
        &columns.device as &[Option<i32>],
        &columns.device_name as &[Option<&str>],
        &columns.emulated as &[Option<bool>],
        &columns.started_at,
        &columns.id_at,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps the first outcome, and replaces a loss by an outcome. Returns the keys of the ends that were written.
async fn write_ends(columns: &EndColumns<'_>, connection: &mut PgConnection) -> Result<Vec<AttemptKey>, sqlx::Error> {
    if columns.job_id.is_empty() {
        return Ok(Vec::new());
    }
    let written = sqlx::query!(
        r#"/* recorder::write::attempts::ends */
        insert into attempts as known
            (job_id, attempt, state, superseded, worker, device, device_name, emulated, finished_at, verdict, failure_code,
             failure_message, failure_detail, failure_line, output_bytes, queue_us, wait_us, fetch_us, compile_us, load_us,
             copy_in_us, launches_us, copy_out_us, total_us, device_bytes_peak, module_cached, retry_at, printf_output,
             printf_dropped_bytes, started_at, id_at, failure_source, charged_us, session)
        select new.job_id, new.attempt, new.state, new.superseded, new.worker,
               new.device, new.device_name, new.emulated, new.finished_at, new.verdict, new.failure_code,
               new.failure_message, new.failure_detail, new.failure_line, new.output_bytes, new.queue_us, new.wait_us,
               new.fetch_us, new.compile_us, new.load_us, new.copy_in_us, new.launches_us::bigint[], new.copy_out_us, new.total_us,
               new.device_bytes_peak, new.module_cached, new.retry_at, new.printf_output, new.printf_dropped_bytes,
               new.started_at, new.id_at, new.failure_source, new.charged_us, new.session
        from unnest(
            $1::uuid[], $2::bool[], $3::int[], $4::text[], $5::text[], $6::int[], $7::timestamptz[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::int[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],
            $17::bigint[], $18::bigint[], $19::text[], $20::bigint[], $21::bigint[], $22::bigint[], $23::bool[],
            $24::text[], $25::bool[], $26::timestamptz[], $27::bigint[], $28::text[], $29::bigint[], $30::timestamptz[],
            $31::timestamptz[], $32::text[], $33::bigint[], $34::jsonb[])
            as new (job_id, superseded, attempt, state, worker, device, finished_at, verdict, failure_code, failure_message,
                    failure_detail, failure_line, output_bytes, queue_us, wait_us, compile_us, load_us, copy_in_us,
                    launches_us, copy_out_us, total_us, device_bytes_peak, module_cached, device_name, emulated, retry_at,
                    fetch_us, printf_output, printf_dropped_bytes, started_at, id_at, failure_source, charged_us,
                    session)
        on conflict (job_id, id_at, attempt) do update set
            state = excluded.state,
            superseded = excluded.superseded,
            worker = excluded.worker,
            device = excluded.device,
            device_name = excluded.device_name,
            emulated = excluded.emulated,
            started_at = least(known.started_at, excluded.started_at),
            finished_at = excluded.finished_at,
            verdict = excluded.verdict,
            failure_code = excluded.failure_code,
            failure_message = excluded.failure_message,
            failure_detail = excluded.failure_detail,
            failure_line = excluded.failure_line,
            failure_source = excluded.failure_source,
            output_bytes = excluded.output_bytes,
            queue_us = excluded.queue_us,
            wait_us = excluded.wait_us,
            fetch_us = excluded.fetch_us,
            compile_us = excluded.compile_us,
            load_us = excluded.load_us,
            copy_in_us = excluded.copy_in_us,
            launches_us = excluded.launches_us,
            copy_out_us = excluded.copy_out_us,
            total_us = excluded.total_us,
            device_bytes_peak = excluded.device_bytes_peak,
            module_cached = excluded.module_cached,
            charged_us = excluded.charged_us,
            session = excluded.session,
            session_sequence = null,
            retry_at = excluded.retry_at,
            printf_output = excluded.printf_output,
            printf_dropped_bytes = excluded.printf_dropped_bytes
        where known.state = 'running' or (known.state = 'lost' and excluded.state <> 'lost')
        returning job_id, attempt"#,
        &columns.job_id,
        &columns.superseded,
        &columns.attempt,
        &columns.state as &[&str],
        &columns.worker as &[&str],
        &columns.device as &[Option<i32>],
        &columns.finished_at,
        &columns.verdict as &[Option<&str>],
        &columns.failure_code as &[Option<&str>],
        &columns.failure_message as &[Option<&str>],
        &columns.failure_detail as &[Option<&str>],
        &columns.failure_line as &[Option<i32>],
        &columns.output_bytes,
        &columns.queue_us,
        &columns.wait_us,
        &columns.compile_us,
        &columns.load_us,
        &columns.copy_in_us,
        &columns.launches_us,
        &columns.copy_out_us,
        &columns.total_us,
        &columns.device_bytes_peak,
        &columns.module_cached,
        &columns.device_name as &[Option<&str>],
        &columns.emulated as &[Option<bool>],
        &columns.retry_at as &[Option<DateTime<Utc>>],
        &columns.fetch_us,
        &columns.printf_output as &[Option<&str>],
        &columns.printf_dropped_bytes as &[Option<i64>],
        &columns.started_at as &[Option<DateTime<Utc>>],
        &columns.id_at,
        &columns.failure_source as &[Option<&str>],
        &columns.charged_us as &[Option<i64>],
        &columns.session as &[Option<Value>],
    )
    .fetch_all(connection)
    .await?;
    Ok(written.into_iter().map(|row| (JobId::from_uuid(row.job_id), row.attempt)).collect())
}

#[derive(Default)]
struct StartColumns<'a> {
    job_id: Vec<Uuid>,
    id_at: Vec<DateTime<Utc>>,
    attempt: Vec<i32>,
    worker: Vec<&'a str>,
    device: Vec<Option<i32>>,
    device_name: Vec<Option<&'a str>>,
    emulated: Vec<Option<bool>>,
    started_at: Vec<DateTime<Utc>>,
}

#[derive(Default)]
struct EndColumns<'a> {
    job_id: Vec<Uuid>,
    id_at: Vec<DateTime<Utc>>,
    /// Whether the job has the outcome of another attempt. The job's row was written earlier in this transaction, and its outcome never
    /// changes.
    superseded: Vec<bool>,
    attempt: Vec<i32>,
    state: Vec<&'a str>,
    worker: Vec<&'a str>,
    device: Vec<Option<i32>>,
    device_name: Vec<Option<&'a str>>,
    emulated: Vec<Option<bool>>,
    started_at: Vec<Option<DateTime<Utc>>>,
    finished_at: Vec<DateTime<Utc>>,
    verdict: Vec<Option<&'a str>>,
    failure_code: Vec<Option<&'a str>>,
    failure_message: Vec<Option<&'a str>>,
    failure_detail: Vec<Option<&'a str>>,
    failure_line: Vec<Option<i32>>,
    failure_source: Vec<Option<&'a str>>,
    output_bytes: Vec<i64>,
    queue_us: Vec<i64>,
    wait_us: Vec<i64>,
    fetch_us: Vec<i64>,
    compile_us: Vec<i64>,
    load_us: Vec<i64>,
    copy_in_us: Vec<i64>,
    launches_us: Vec<String>,
    copy_out_us: Vec<i64>,
    total_us: Vec<i64>,
    device_bytes_peak: Vec<i64>,
    module_cached: Vec<bool>,
    charged_us: Vec<Option<i64>>,
    session: Vec<Option<Value>>,
    retry_at: Vec<Option<DateTime<Utc>>>,
    printf_output: Vec<Option<&'a str>>,
    printf_dropped_bytes: Vec<Option<i64>>,
}

impl<'a> StartColumns<'a> {
    fn of(attempts: impl Iterator<Item = (&'a (JobId, i32), &'a AttemptChange)>, keys: &Keys) -> Self {
        let mut columns = Self::default();
        for ((job_id, attempt), change) in attempts {
            if let (Some(started_at), Some(place)) = (change.started_at, change.place()) {
                columns.id_at.push(keys[job_id]);
                columns.push(*job_id, *attempt, started_at, place);
            }
        }
        columns
    }

    fn push(&mut self, job_id: JobId, attempt: i32, started_at: DateTime<Utc>, place: &'a Place) {
        self.job_id.push(job_id.as_uuid());
        self.attempt.push(attempt);
        self.worker.push(&place.worker);
        self.device.push(place.device);
        self.device_name.push(place.device_name.as_deref());
        self.emulated.push(place.emulated);
        self.started_at.push(started_at);
    }
}

impl<'a> EndColumns<'a> {
    fn of(
        attempts: &'a Attempts,
        end: impl Fn(&'a AttemptChange) -> Option<&'a End>,
        keys: &Keys,
        outcomes: &FinalAttempts,
    ) -> Self {
        let mut columns = Self::default();
        for ((job_id, attempt), change) in attempts {
            if let Some(end) = end(change) {
                let is_superseded = end.is_final() && outcomes.get(job_id).is_some_and(|known| known != attempt);
                columns.superseded.push(is_superseded);
                columns.id_at.push(keys[job_id]);
                columns.push(*job_id, *attempt, end);
                columns.started_at.push(change.started_at);
            }
        }
        columns
    }

    fn push(&mut self, job_id: JobId, attempt: i32, end: &'a End) {
        let failure = end.failure.as_ref();
        self.job_id.push(job_id.as_uuid());
        self.attempt.push(attempt);
        self.state.push(end.state.name());
        self.worker.push(&end.place.worker);
        self.device.push(end.place.device);
        self.device_name.push(end.place.device_name.as_deref());
        self.emulated.push(end.place.emulated);
        self.finished_at.push(end.at);
        self.verdict.push(failure.map(|failure| failure.verdict.name()));
        self.failure_code.push(failure.map(|failure| failure.code.name()));
        self.failure_message.push(failure.map(|failure| failure.message.as_str()));
        self.failure_detail.push(failure.and_then(|failure| failure.detail.as_deref()));
        self.failure_line.push(end.failure_line);
        self.failure_source
            .push(failure.and_then(|failure| failure.source.as_ref()).map(|source| source.text.as_str()));
        self.output_bytes.push(end.output_bytes);
        self.charged_us.push(end.charged_us);
        self.session.push(end.session.as_ref().map(|used| serde_json::json!(used)));
        self.retry_at.push(end.retry_at);
        self.printf_output.push(end.printed.as_ref().map(|printed| printed.text.as_str()));
        self.printf_dropped_bytes.push(end.printed.as_ref().map(|printed| printed.dropped_bytes));
        self.push_timings(end);
    }

    fn push_timings(&mut self, end: &End) {
        let timings = &end.timings;
        self.queue_us.push(timings.queue_us);
        self.wait_us.push(timings.wait_us);
        self.fetch_us.push(timings.fetch_us);
        self.compile_us.push(timings.compile_us);
        self.load_us.push(timings.load_us);
        self.copy_in_us.push(timings.copy_in_us);
        self.launches_us.push(array_literal(&timings.launches_us));
        self.copy_out_us.push(timings.copy_out_us);
        self.total_us.push(timings.total_us);
        self.device_bytes_peak.push(timings.device_bytes_peak);
        self.module_cached.push(timings.module_cached);
    }
}
