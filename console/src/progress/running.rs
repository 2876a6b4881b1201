//! The running jobs of a page.

use std::collections::BTreeMap;

use gpufleet::schema::{JobId, JobState, PoolName};
use serde::Deserialize;

use super::follow::Key;

/// A page of the read API: a list of jobs, or one job.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    jobs: Vec<Job>,
    job: Option<Job>,
}

#[derive(Deserialize)]
struct Job {
    job_id: JobId,
    pool: Option<String>,
    state: JobState,
    #[serde(default)]
    is_unheard: bool,
}

impl Job {
    /// Its pool and id, if it runs. A worker that is unheard publishes nothing.
    fn running(self) -> Option<(PoolName, JobId)> {
        let runs = self.state == JobState::Running && !self.is_unheard;
        let pool = self.pool.filter(|_| runs)?.parse().ok()?;
        Some((pool, self.job_id))
    }
}

/// Returns the running jobs, by what is to be followed for them.
pub(super) fn running_jobs(page: &[u8]) -> BTreeMap<Key, Vec<JobId>> {
    let Ok(page) = serde_json::from_slice::<Page>(page) else { return BTreeMap::new() };
    let mut running: BTreeMap<Key, Vec<JobId>> = BTreeMap::new();
    for (pool, job) in page.jobs.into_iter().filter_map(Job::running) {
        running.entry(Key::Pool(pool)).or_default().push(job);
    }
    let single = page.job.and_then(Job::running);
    running.extend(single.map(|(pool, job)| (Key::Job(pool, job), vec![job])));
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 2] = ["01990f3e-0000-7000-8000-000000000001", "01990f3e-0000-7000-8000-000000000002"];

    #[test]
    fn lists_follow_the_pools_of_their_running_jobs_and_a_job_follows_itself() {
        let job = |id: &str, rest: &str| format!(r#"{{"job_id":"{id}","state":"running","pool":"a"{rest}}}"#);
        let [first, second] = IDS.map(|id| id.parse::<JobId>().unwrap());
        let pool: PoolName = "a".parse().unwrap();
        let list = format!(r#"{{"jobs":[{},{}],"next":null}}"#, job(IDS[0], ""), job(IDS[1], r#","is_unheard":false"#));
        assert_eq!(running_jobs(list.as_bytes()), [(Key::Pool(pool.clone()), vec![first, second])].into());
        let single = format!(r#"{{"job":{},"attempts":[]}}"#, job(IDS[0], ""));
        assert_eq!(running_jobs(single.as_bytes()), [(Key::Job(pool, first), vec![first])].into());
        let unheard = format!(r#"{{"jobs":[{}]}}"#, job(IDS[0], r#","is_unheard":true"#));
        for none in [&unheard, &unheard.replace("running", "queued"), r#"{"jobs":[{"state":"running"}]}"#, "no JSON"] {
            assert_eq!(running_jobs(none.as_bytes()), [].into(), "{none}");
        }
    }
}
