//! How far running jobs are, as their workers publish it, for the pages that show them.
//!
//! A page that shows running jobs follows their pools; the page of one job follows that job alone, and has its printed text. Viewers share
//! what is followed, so their number costs neither workers nor the broker anything. What no page has asked for in a while is not followed.

mod follow;
mod running;
mod seen;
mod text;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use serde::Serialize;

use self::{
    follow::{Follow, Key},
    running::running_jobs,
    seen::Shown,
};
use crate::broker::Broker;

/// What pages follow at the broker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follows(Arc<Mutex<HashMap<Key, Arc<Follow>>>>);

/// How far the running jobs of a page are.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct PageProgress {
    /// Why it is not known for some jobs.
    problem: Option<String>,
    /// By the jobs' ids. Jobs of which no worker has reported yet are left out.
    jobs: BTreeMap<String, Shown>,
}

impl Follows {
    /// Returns how far the running jobs are on a page of the read API, and follows them from now on.
    pub(crate) fn of_page(&self, page: &[u8], broker: &Broker) -> PageProgress {
        let mut progress = PageProgress::default();
        for (key, jobs) in running_jobs(page) {
            let looked = self.follow(key, broker).map(|follow| follow.look(&jobs));
            let (problem, shown) = looked.unwrap_or_else(|problem| (Some(problem), Vec::new()));
            progress.problem = progress.problem.or(problem);
            progress.jobs.extend(shown.into_iter().map(|(job, shown)| (job.to_string(), shown)));
        }
        progress
    }

    /// Returns what is followed under this key, or why nothing is.
    fn follow(&self, key: Key, broker: &Broker) -> Result<Arc<Follow>, String> {
        let mut follows = self.lock();
        if let Some(follow) = follows.get(&key) {
            follow.touch();
            return Ok(Arc::clone(follow));
        }
        let fleet = broker.fleet().map_err(|problem| problem.detail.into_owned())?;
        let follow = Arc::new(Follow::new(key.clone()));
        follows.insert(key, Arc::clone(&follow));
        let (all, following) = (self.clone(), Arc::clone(&follow));
        tokio::spawn(async move {
            while !all.end(&following) {
                following.run(&fleet).await;
            }
        });
        Ok(follow)
    }

    /// Forgets what no page asks for any more. Returns whether that was the case.
    fn end(&self, follow: &Follow) -> bool {
        let mut follows = self.lock();
        let is_unused = follow.is_unused();
        if is_unused {
            follows.remove(&follow.key);
        }
        is_unused
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Follow>>> {
        self.0.lock().expect("no panic happens under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_broker_a_page_of_running_jobs_says_so_and_others_are_silent() {
        let follows = Follows::default();
        let page = br#"{"jobs":[{"job_id":"01990f3e-0000-7000-8000-000000000001","pool":"a","state":"running"}]}"#;
        let problem = follows.of_page(page, &Broker::absent()).problem;
        assert_eq!(problem.as_deref(), Some("the console was started without a broker"));
        assert_eq!(follows.of_page(br#"{"jobs":[]}"#, &Broker::absent()), PageProgress::default());
    }
}
