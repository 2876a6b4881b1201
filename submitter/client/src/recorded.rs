//! The result of a job from the ledger and its kept outputs, for a client whose reply was taken before.

use std::time::{Duration, Instant};

use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{AttemptRow, DatabaseUrl, FailureRow, JobDetail, Ledger, LedgerError};
use gpufleet_schema::{AttemptState, Failure, FailureCode, JobId, RanOn, Verdict};
use tokio::{sync::OnceCell, time::sleep};
use tracing::warn;

use crate::{
    FailedJob, JobError, JobResult, StoredArray, UnreadOutput,
    kept::{KeptResult, ResultError},
};

/// Time between queries of the ledger.
const POLL: Duration = Duration::from_millis(500);
/// Maximum age of a job that the ledger may not have yet, because the recorder writes a moment later.
const NEW: chrono::TimeDelta = chrono::TimeDelta::seconds(10);
/// Time limit for a new job to appear in the ledger. The recorder writes events at least every 100 ms, unless it is behind.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);
const POLL_NEW: Duration = Duration::from_millis(50);
/// Time to wait for the reply of a job that has ended in the ledger. A reply that is in the queue arrives sooner.
const REPLY_WITHIN: Duration = Duration::from_secs(2);

/// The ledger of a client, which connects when it is used first.
#[derive(Debug)]
pub(crate) struct ClientLedger {
    url: DatabaseUrl,
    ledger: OnceCell<Ledger>,
}

impl ClientLedger {
    pub(crate) fn new(url: DatabaseUrl) -> Self {
        Self { url, ledger: OnceCell::new() }
    }

    pub(crate) async fn get(&self) -> Result<&Ledger, LedgerError> {
        self.ledger.get_or_try_init(|| Ledger::connect(self.url.clone())).await
    }

    pub(crate) async fn close(&self) {
        if let Some(ledger) = self.ledger.get() {
            ledger.close().await;
        }
    }
}

/// Waits up to [`RECORDED_WITHIN`] for a new job, and returns its kept outputs.
pub(crate) async fn kept(
    job_id: JobId,
    ledger: &ClientLedger,
    store: Option<&BlobStore>,
) -> Result<KeptResult, ResultError> {
    let ledger = ledger.get().await?;
    let deadline = Instant::now() + RECORDED_WITHIN;
    let detail = loop {
        match ledger.job(job_id).await? {
            Some(detail) => break detail,
            None if is_new(job_id) && Instant::now() < deadline => sleep(POLL_NEW).await,
            None => return Err(ResultError::UnknownJob { job_id }),
        }
    };
    KeptResult::of(detail, ledger, store)
}

/// Whether the job may have been submitted so lately that the ledger does not have it yet.
fn is_new(job_id: JobId) -> bool {
    let made = job_id.made_ms().and_then(chrono::DateTime::from_timestamp_millis);
    made.is_some_and(|made| (chrono::Utc::now() - made).abs() < NEW)
}

/// Waits until the ledger has a job's outcome and no reply has come, and returns the result.
pub(crate) async fn result(
    job_id: JobId,
    ledger: &ClientLedger,
    store: Option<&BlobStore>,
    since: Instant,
) -> Result<JobResult<UnreadOutput>, JobError> {
    let detail = ended(ledger, job_id).await?;
    sleep(REPLY_WITHIN).await;
    let ledger = ledger.get().await.map_err(|error| unavailable(job_id, &error))?;
    outcome(detail, ledger, store, since).await
}

async fn ended(ledger: &ClientLedger, job_id: JobId) -> Result<JobDetail, JobError> {
    loop {
        match look(ledger, job_id).await {
            Ok(Some(detail)) => return Ok(detail),
            Ok(None) => {}
            Err(error) if error.may_pass() => warn!(%error, "could not read the ledger; trying again"),
            Err(error) => return Err(unavailable(job_id, &error)),
        }
        sleep(POLL).await;
    }
}

async fn look(ledger: &ClientLedger, job_id: JobId) -> Result<Option<JobDetail>, LedgerError> {
    let ledger = ledger.get().await?;
    match ledger.job_states(&[job_id]).await?.get(&job_id) {
        Some(state) if state.is_final() => ledger.job(job_id).await,
        _ => Ok(None),
    }
}

/// The outcome that the ledger has, in the form of a reply.
async fn outcome(
    detail: JobDetail,
    ledger: &Ledger,
    store: Option<&BlobStore>,
    since: Instant,
) -> Result<JobResult<UnreadOutput>, JobError> {
    let job_id = detail.job.job_id;
    let decisive = detail.attempts.iter().find(|attempt| Some(attempt.attempt) == detail.job.attempt).cloned();
    let Some(decisive) = decisive else {
        let problem = "the ledger has its outcome without the attempt".to_owned();
        return Err(JobError::Unavailable { job_id, problem });
    };
    let ran_on = place(&decisive);
    let AttemptRow { attempt, state, timings, printf_output, .. } = decisive;
    let timings = timings.unwrap_or_default();
    if state != AttemptState::Succeeded {
        let (failure, round_trip) = (decisive.failure.map(failure), since.elapsed());
        let session = detail.job.is_host_program().then_some(decisive.session).flatten().map(Box::new);
        let outputs = Vec::new();
        let failed =
            FailedJob { job_id, state, attempt, failure, timings, ran_on, printf_output, session, round_trip, outputs };
        return Err(JobError::Failed(Box::new(failed)));
    }
    let kept = KeptResult::of(detail, ledger, store).map_err(|error| unavailable(job_id, &error))?;
    let mut outputs = Vec::with_capacity(kept.outputs.len());
    for output in &kept.outputs {
        let found = match output.digest() {
            Some(digest) => StoredArray::new(digest, output.dtype(), output.shape().to_vec())
                .map(UnreadOutput::Stored)
                .map_err(|error| unavailable(job_id, &error))?,
            None => output.read().await.map(UnreadOutput::Array).map_err(|error| unavailable(job_id, &error))?,
        };
        outputs.push((output.name().to_owned(), found));
    }
    let round_trip = since.elapsed();
    Ok(JobResult { job_id, state, attempt, timings, ran_on, printf_output, round_trip, outputs })
}

fn unavailable(job_id: JobId, error: &(dyn std::error::Error + 'static)) -> JobError {
    let mut problem = error.to_string();
    if let Some(source) = error.source() {
        problem.push_str(&format!(": {source}"));
    }
    JobError::Unavailable { job_id, problem }
}

fn place(attempt: &AttemptRow) -> Option<RanOn> {
    Some(RanOn {
        worker: attempt.worker.parse().ok()?,
        device: attempt.device?,
        device_name: attempt.device_name.clone()?,
        emulated: attempt.emulated?,
    })
}

fn failure(row: FailureRow) -> Failure {
    let failure = Failure::new(Verdict::of(&row.verdict), FailureCode::of(&row.code), row.message);
    Failure { detail: row.detail, line: row.line, source: row.source, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_of_the_last_seconds_may_be_unrecorded() {
        assert!(is_new(JobId::new()));
        for old in ["01990f3e-0000-7000-8000-000000000001", "4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa"] {
            assert!(!is_new(old.parse().unwrap()), "{old}");
        }
    }
}
