//! Turns the columns of a query into the rows in [`crate::model`].

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_schema::{AttemptState, Excerpt, HostProgramInfo, JobId, JobState, PrintfOutput, SessionUse, Timings};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{AttemptRow, FailureRow, JobRow, PageKey};

/// A job with the attempt that its row describes.
pub(super) struct JobRecord {
    pub(super) job_id: Uuid,
    pub(super) id_at: DateTime<Utc>,
    pub(super) state: String,
    pub(super) name: Option<String>,
    pub(super) labels: Option<Json<BTreeMap<String, String>>>,
    pub(super) pool: Option<String>,
    pub(super) priority: Option<String>,
    pub(super) program: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) client: Option<String>,
    pub(super) user_id: Option<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) submitted_at: Option<DateTime<Utc>>,
    pub(super) started_at: Option<DateTime<Utc>>,
    pub(super) finished_at: Option<DateTime<Utc>>,
    pub(super) attempts: i64,
    pub(super) attempt: Option<i32>,
    pub(super) worker: Option<String>,
    pub(super) is_unheard: bool,
    pub(super) device: Option<i32>,
    pub(super) device_name: Option<String>,
    pub(super) emulated: Option<bool>,
    pub(super) verdict: Option<String>,
    pub(super) failure_code: Option<String>,
    pub(super) failure_message: Option<String>,
    pub(super) failure_line: Option<i32>,
    pub(super) input_bytes: Option<i64>,
    pub(super) lease_bytes: Option<i64>,
    pub(super) host_program: Option<Json<HostProgramInfo>>,
    pub(super) output_bytes: Option<i64>,
    pub(super) queue_us: Option<i64>,
    pub(super) launches_us: Option<Vec<i64>>,
    pub(super) total_us: Option<i64>,
}

pub(super) struct AttemptRecord {
    pub(super) attempt: i32,
    pub(super) state: String,
    pub(super) superseded: bool,
    pub(super) worker: String,
    pub(super) is_unheard: bool,
    pub(super) device: Option<i32>,
    pub(super) device_name: Option<String>,
    pub(super) emulated: Option<bool>,
    pub(super) started_at: Option<DateTime<Utc>>,
    pub(super) finished_at: Option<DateTime<Utc>>,
    pub(super) verdict: Option<String>,
    pub(super) failure_code: Option<String>,
    pub(super) failure_message: Option<String>,
    pub(super) failure_detail: Option<String>,
    pub(super) failure_line: Option<i32>,
    pub(super) failure_source: Option<String>,
    pub(super) output_bytes: Option<i64>,
    pub(super) queue_us: Option<i64>,
    pub(super) wait_us: Option<i64>,
    /// 0 until the attempt has ended. The other timings are `None` until then.
    pub(super) fetch_us: i64,
    pub(super) compile_us: Option<i64>,
    pub(super) load_us: Option<i64>,
    pub(super) copy_in_us: Option<i64>,
    pub(super) launches_us: Option<Vec<i64>>,
    pub(super) copy_out_us: Option<i64>,
    pub(super) total_us: Option<i64>,
    pub(super) device_bytes_peak: Option<i64>,
    pub(super) module_cached: Option<bool>,
    pub(super) charged_us: Option<i64>,
    pub(super) retry_at: Option<DateTime<Utc>>,
    pub(super) printf_output: Option<String>,
    pub(super) printf_dropped_bytes: Option<i64>,
    pub(super) session: Option<Json<SessionUse>>,
}

impl JobRecord {
    pub(super) fn key(&self) -> PageKey {
        PageKey { id_at: self.id_at, job_id: JobId::from_uuid(self.job_id) }
    }
}

impl From<JobRecord> for JobRow {
    fn from(record: JobRecord) -> Self {
        Self {
            job_id: JobId::from_uuid(record.job_id),
            state: JobState::of(&record.state),
            name: record.name,
            labels: record.labels.map(|labels| labels.0).unwrap_or_default(),
            pool: record.pool,
            priority: record.priority,
            program: record.program,
            kernel: record.kernel,
            client: record.client,
            user_id: record.user_id,
            created_at: record.created_at,
            submitted_at: record.submitted_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            attempts: u32::try_from(record.attempts).expect("a job has few attempts"),
            attempt: record.attempt.map(i32::unsigned_abs),
            worker: record.worker,
            is_unheard: record.is_unheard,
            device: record.device.map(i32::unsigned_abs),
            device_name: record.device_name,
            emulated: record.emulated,
            failure: failure(record.verdict, record.failure_code, record.failure_message, record.failure_line),
            input_bytes: record.input_bytes.map(i64::unsigned_abs),
            lease_bytes: record.lease_bytes.map(i64::unsigned_abs),
            host_program: record.host_program.map(|program| program.0),
            output_bytes: record.output_bytes.map(i64::unsigned_abs),
            queue_us: record.queue_us.map(i64::unsigned_abs),
            kernel_us: record.launches_us.and_then(|launches| kernel_us(&launches)),
            total_us: record.total_us.map(i64::unsigned_abs),
        }
    }
}

impl From<AttemptRecord> for AttemptRow {
    fn from(record: AttemptRecord) -> Self {
        Self {
            timings: timings(&record),
            attempt: record.attempt.unsigned_abs(),
            state: AttemptState::of(&record.state),
            superseded: record.superseded,
            worker: record.worker,
            is_unheard: record.is_unheard,
            device: record.device.map(i32::unsigned_abs),
            device_name: record.device_name,
            emulated: record.emulated,
            started_at: record.started_at,
            finished_at: record.finished_at,
            failure: failure(record.verdict, record.failure_code, record.failure_message, record.failure_line)
                .map(|failure| failure.with_details(record.failure_detail, record.failure_source)),
            retry_at: record.retry_at,
            output_bytes: record.output_bytes.map(i64::unsigned_abs),
            charged_us: record.charged_us.map(i64::unsigned_abs),
            printf_output: printed(record.printf_output, record.printf_dropped_bytes),
            session: record.session.map(|used| used.0),
        }
    }
}

fn timings(record: &AttemptRecord) -> Option<Timings> {
    Some(Timings {
        queue_us: record.queue_us?.unsigned_abs(),
        wait_us: record.wait_us?.unsigned_abs(),
        fetch_us: record.fetch_us.unsigned_abs(),
        compile_us: record.compile_us?.unsigned_abs(),
        load_us: record.load_us?.unsigned_abs(),
        copy_in_us: record.copy_in_us?.unsigned_abs(),
        launches_us: record.launches_us.as_ref()?.iter().map(|us| us.unsigned_abs()).collect(),
        copy_out_us: record.copy_out_us?.unsigned_abs(),
        total_us: record.total_us?.unsigned_abs(),
        device_bytes_peak: record.device_bytes_peak?.unsigned_abs(),
        module_cached: record.module_cached?,
    })
}

/// Returns the time of all launches together, or `None` for an attempt without launches.
fn kernel_us(launches_us: &[i64]) -> Option<u64> {
    (!launches_us.is_empty()).then(|| launches_us.iter().map(|us| us.unsigned_abs()).sum())
}

fn printed(text: Option<String>, dropped_bytes: Option<i64>) -> Option<PrintfOutput> {
    Some(PrintfOutput { text: text?, dropped_bytes: dropped_bytes?.unsigned_abs(), is_tail: false })
}

fn failure(
    verdict: Option<String>,
    code: Option<String>,
    message: Option<String>,
    line: Option<i32>,
) -> Option<FailureRow> {
    let line = line.map(i32::unsigned_abs);
    Some(FailureRow { verdict: verdict?, code: code?, message: message?, detail: None, line, source: None })
}

impl FailureRow {
    /// Adds the longer texts, which are read for a single job only.
    fn with_details(self, detail: Option<String>, source: Option<String>) -> Self {
        let source = self.line.zip(source).map(|(line, text)| Excerpt { first_line: Excerpt::first_line(line), text });
        Self { detail, source, ..self }
    }
}
