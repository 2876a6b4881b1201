//! The ledger as a scenario reads it, and the checker that every scenario ends with.

use gpufleet_ledger::{FailureRow, HistoryFilter, JobDetail, JobRow, WorkerRow};
use gpufleet_schema::{AttemptState, JobId, JobState};

use crate::{
    Ground,
    poll::{poll_some, poll_until},
};

impl Ground {
    /// Waits until the ledger shows the job like this.
    pub async fn poll_job(&self, what: &str, job_id: JobId, mut like: impl FnMut(&JobRow) -> bool) {
        poll_until(what, async || self.ledger.job(job_id).await.unwrap().is_some_and(|detail| like(&detail.job))).await;
    }

    /// Waits for the job's final outcome.
    pub async fn final_job(&self, job_id: JobId) -> JobDetail {
        poll_some(&format!("job {job_id} has a final outcome in the ledger"), async || {
            self.ledger.job(job_id).await.unwrap().filter(|detail| detail.job.state.is_final())
        })
        .await
    }

    /// Waits until at least `count` jobs are in this state.
    pub async fn poll_count(&self, what: &str, state: JobState, count: u64) {
        poll_until(what, async || {
            // The database may be on its way back.
            let counts = self.ledger.count_by_state().await.unwrap_or_default();
            counts.iter().any(|counted| counted.state == state && counted.jobs >= count)
        })
        .await;
    }

    pub async fn poll_worker(&self, what: &str, name: &str, mut like: impl FnMut(&WorkerRow) -> bool) {
        poll_until(what, async || {
            self.ledger.workers().await.unwrap().iter().any(|worker| worker.worker == name && like(worker))
        })
        .await;
    }

    /// The history checker: exactly these many jobs are known; each has exactly one final outcome, which is that of one attempt;
    /// nothing ended before it began; and what was final stays as it is.
    pub async fn check_history(&self, jobs: usize) {
        poll_until(&format!("{jobs} jobs in the ledger, all final"), async || {
            let known = self.all_jobs().await;
            known.len() >= jobs && known.iter().all(|job| job.state.is_final())
        })
        .await;
        let known = self.all_jobs().await;
        assert_eq!(known.len(), jobs, "no job is known twice or unasked");
        for job in &known {
            let detail = self.ledger.job(job.job_id).await.unwrap().expect("it was just listed");
            check_job(&detail);
        }
        // Attempts that were superseded may still be on their way into the record; outcomes may not change.
        for (before, now) in known.iter().zip(self.all_jobs().await) {
            assert_eq!(outcome(before), outcome(&now), "a final outcome stays");
        }
    }

    async fn all_jobs(&self) -> Vec<JobRow> {
        let mut filter = HistoryFilter { limit: HistoryFilter::LIMIT_MAX, ..HistoryFilter::default() };
        let mut all = Vec::new();
        loop {
            let page = self.ledger.history(&filter).await.unwrap();
            all.extend(page.jobs);
            match page.next {
                Some(next) => filter.before = Some(next),
                None => return all,
            }
        }
    }
}

fn outcome(job: &JobRow) -> (JobId, JobState, Option<u32>, Option<&FailureRow>) {
    (job.job_id, job.state, job.attempt, job.failure.as_ref())
}

fn check_job(detail: &JobDetail) {
    let job = &detail.job;
    let id = job.job_id;
    let finals: Vec<_> = detail
        .attempts
        .iter()
        .filter(|attempt| !attempt.superseded && !matches!(attempt.state, AttemptState::Running | AttemptState::Lost))
        .collect();
    assert_eq!(finals.len(), 1, "{id} has one final outcome: {:?}", detail.attempts);
    assert_eq!(finals[0].state.job_state(), job.state, "{id}");
    assert_ne!(job.state, JobState::Running, "{id}");
    assert!(job.finished_at.is_some(), "{id}");
    for attempt in &detail.attempts {
        if let (Some(started), Some(finished)) = (attempt.started_at, attempt.finished_at) {
            assert!(started <= finished, "{id}: attempt {} ended before it began", attempt.attempt);
        }
        if attempt.device.is_some() {
            let label = (attempt.device_name.is_some(), attempt.emulated);
            assert_eq!(label, (true, Some(true)), "{id}: attempt {} says that its device is emulated", attempt.attempt);
        }
    }
}
