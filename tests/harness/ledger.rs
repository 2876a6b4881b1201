//! Reads the ledger, and waits for its state.

use gpufleet_ledger::{HistoryFilter, JobDetail, JobRow, LedgerError, WorkerFilter, WorkerRow};
use gpufleet_schema::{JobId, JobState};

use crate::{
    Ground,
    poll::{poll_some, poll_until},
};

impl Ground {
    /// Waits until the job's row meets the condition.
    pub async fn poll_job(&self, what: &str, job_id: JobId, mut like: impl FnMut(&JobRow) -> bool) {
        self.poll_attempts(what, job_id, |detail| like(&detail.job)).await;
    }

    /// Waits for the job's final outcome.
    pub async fn final_job(&self, job_id: JobId) -> JobDetail {
        poll_some(&format!("job {job_id} has a final outcome in the ledger"), async || {
            self.look(job_id).await.filter(|detail| detail.job.state.is_final())
        })
        .await
    }

    /// Waits until the job with its attempts meets the condition.
    pub async fn poll_attempts(&self, what: &str, job_id: JobId, mut like: impl FnMut(&JobDetail) -> bool) {
        poll_until(what, async || self.look(job_id).await.is_some_and(|detail| like(&detail))).await;
    }

    /// Returns the job as the ledger has it now. The history checker records its outcome.
    pub async fn look(&self, job_id: JobId) -> Option<JobDetail> {
        let detail = self.ledger.job(job_id).await.unwrap();
        detail.inspect(|detail| self.sightings.saw(&detail.job))
    }

    /// Waits until at least `count` jobs are in this state.
    pub async fn poll_count(&self, what: &str, state: JobState, count: u64) {
        poll_until(what, async || {
            // The database may be restarting.
            let in_state = HistoryFilter { states: vec![state], ..HistoryFilter::default() };
            self.jobs(in_state).await.is_ok_and(|jobs| jobs.len() as u64 >= count)
        })
        .await;
    }

    pub async fn poll_worker(&self, what: &str, name: &str, mut like: impl FnMut(&WorkerRow) -> bool) {
        poll_until(what, async || {
            let named = WorkerFilter { name: Some(name.to_owned()), ..WorkerFilter::default() };
            self.ledger.workers(&named).await.unwrap().first().is_some_and(&mut like)
        })
        .await;
    }

    pub(crate) async fn all_jobs(&self) -> Result<Vec<JobRow>, LedgerError> {
        self.jobs(HistoryFilter::default()).await
    }

    /// Returns the jobs that the filter selects, of all pages.
    pub async fn jobs(&self, filter: HistoryFilter) -> Result<Vec<JobRow>, LedgerError> {
        let mut filter = HistoryFilter { limit: HistoryFilter::LIMIT_MAX, ..filter };
        let mut all = Vec::new();
        loop {
            let page = self.ledger.history(&filter).await?;
            all.extend(page.jobs);
            match page.next {
                Some(next) => filter.before = Some(next),
                None => break,
            }
        }
        all.iter().for_each(|job| self.sightings.saw(job));
        Ok(all)
    }

    /// Returns every job with its attempts.
    pub(crate) async fn all_details(&self) -> Vec<JobDetail> {
        let mut details = Vec::new();
        for job in self.all_jobs().await.unwrap() {
            details.push(self.ledger.job(job.job_id).await.unwrap().expect("the job was listed above"));
        }
        details
    }
}
