//! Waits until the ledger knows what this user knows. A command that follows `gpufleet submit` finds the job that the other one reported.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use gpufleet::schema::{JobId, JobState};
use gpufleet_ledger::JobMatch;
use tokio::time::{Instant, sleep};

use super::{
    complaint::Complaint,
    output,
    recent::{self, Recent, Seen},
    source::Source,
};

/// The recorder writes events every 100 ms at the most, so it is down or behind if this is not enough.
const WITHIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);
/// The latest jobs that a list waits for. Earlier ones were recorded before them.
const LISTED_MAX: usize = 16;

/// What this user knows of the job that a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// The id was made a moment ago, perhaps by another program of the user.
    Fresh,
    Recent(Recent),
}

/// Looks for a job until the ledger knows what this user knows of it, for up to two seconds.
pub async fn job(id: &str, look: impl AsyncFnMut() -> Result<JobMatch, Complaint>) -> Result<JobMatch, Complaint> {
    let known = Known::of(id, &recent::all(), Utc::now());
    until(look, |found| known.is_in(found)).await
}

/// Asks again, for up to two seconds, until the answer suffices.
pub async fn until<T>(
    mut ask: impl AsyncFnMut() -> Result<T, Complaint>,
    suffices: impl Fn(&T) -> bool,
) -> Result<T, Complaint> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let answer = ask().await?;
        if suffices(&answer) || Instant::now() >= deadline {
            return Ok(answer);
        }
        sleep(POLL).await;
    }
}

/// Waits for up to two seconds until the ledger has the jobs that this user submitted a moment ago, so that a list has them too.
pub async fn all(source: &Source) -> Result<(), Complaint> {
    let now = Utc::now();
    let mut fresh: Vec<Recent> = recent::of_fleet().into_iter().filter(|job| job.is_fresh(now)).collect();
    fresh.drain(..fresh.len().saturating_sub(LISTED_MAX));
    if fresh.is_empty() {
        return Ok(());
    }
    let ids: Vec<JobId> = fresh.iter().map(|job| job.job_id).collect();
    let missing = |states: &HashMap<JobId, JobState>| fresh.iter().filter(|job| !job.is_in(states)).count();
    let states = until(async || source.job_states(&ids).await, |states| missing(states) == 0).await?;
    match missing(&states) {
        0 => {}
        missing => output::warn(&format!(
            "the ledger does not have the latest state of {missing} of your latest jobs yet; if that stays so, check the recorder with `gpufleet doctor`"
        )),
    }
    Ok(())
}

/// Whether this state of a job in the ledger, or its absence, is as new as what this user knows.
pub fn is_current(id: JobId, state: Option<JobState>) -> bool {
    match Known::of(&id.to_string(), &recent::all(), Utc::now()) {
        Known::Nothing => true,
        Known::Fresh => state.is_some(),
        Known::Recent(known) => state.is_some_and(|state| known.is_state(state)),
    }
}

impl Known {
    fn of(id: &str, recent: &[Recent], now: DateTime<Utc>) -> Self {
        if let Some(job) = recent::named(id, recent).rev().find(|job| job.is_fresh(now)) {
            return Self::Recent(*job);
        }
        let made = id.parse().ok().and_then(|id: JobId| DateTime::from_timestamp_millis(id.made_ms()?));
        if made.is_some_and(|made| recent::is_fresh(made, now)) { Self::Fresh } else { Self::Nothing }
    }

    fn is_in(self, found: &JobMatch) -> bool {
        match (self, found) {
            (Self::Nothing, _) | (_, JobMatch::Many(_)) => true,
            (_, JobMatch::None) => false,
            (Self::Fresh, JobMatch::One(_)) => true,
            (Self::Recent(known), JobMatch::One(detail)) => {
                let is_latest = known.seen == Seen::Submitted || known.is_of_latest(detail.job.submitted_at);
                known.job_id == detail.job.job_id && known.is_state(detail.job.state) && is_latest
            }
        }
    }
}

impl Recent {
    fn is_in(&self, states: &HashMap<JobId, JobState>) -> bool {
        states.get(&self.job_id).is_some_and(|state| self.is_state(*state))
    }

    /// Whether the ledger's state is as new as what was seen.
    fn is_state(&self, state: JobState) -> bool {
        self.seen == Seen::Submitted || state.is_final()
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use gpufleet_ledger::JobDetail;

    use super::*;
    use crate::history::tests::job as row;

    fn now() -> DateTime<Utc> {
        "2026-11-20T09:00:00Z".parse().unwrap()
    }

    fn one(id: JobId, state: JobState) -> JobMatch {
        let mut job = row(&id.to_string());
        job.state = state;
        JobMatch::One(Box::new(JobDetail { job, attempts: Vec::new(), outputs: Vec::new() }))
    }

    /// The number of looks until the job is found in this state.
    async fn looks(known: Known, answers: impl Fn(u32) -> JobMatch) -> u32 {
        let mut looks = 0;
        let look = async || {
            looks += 1;
            Ok(answers(looks))
        };
        until(look, |found| known.is_in(found)).await.unwrap();
        looks
    }

    #[tokio::test]
    async fn a_job_whose_outcome_was_seen_is_looked_for_until_the_ledger_has_the_outcome() {
        let id: JobId = "01990f3e-0000-7000-8000-000000000001".parse().unwrap();
        let ended = Known::Recent(Recent::seen_at(id, Seen::Ended, now()));
        let in_steps = |look| match look {
            1 => JobMatch::None,
            2 => one(id, JobState::Running),
            _ => one(id, JobState::Succeeded),
        };
        assert_eq!(looks(ended, in_steps).await, 3);
        let submitted = Known::Recent(Recent::seen_at(id, Seen::Submitted, now()));
        assert_eq!(looks(submitted, in_steps).await, 2);
        assert_eq!(looks(Known::Fresh, in_steps).await, 2);
        assert_eq!(looks(Known::Nothing, in_steps).await, 1, "any other job is looked for once");
    }

    #[tokio::test]
    async fn the_wait_for_a_recorder_that_is_down_ends() {
        let started = Instant::now();
        let looks = looks(Known::Fresh, |_| JobMatch::None).await;
        assert!(looks > 2 && started.elapsed() >= WITHIN, "{looks}");
    }

    #[test]
    fn an_id_or_a_part_of_it_names_a_job_of_this_user_for_a_few_seconds() {
        let job_id: JobId = "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e5f".parse().unwrap();
        let job = Recent::seen_at(job_id, Seen::Submitted, now() - TimeDelta::seconds(3));
        for text in ["01990F3E", "0a1b2c3d4e5f", "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e5f"] {
            assert_eq!(Known::of(text, &[job], now()), Known::Recent(job), "{text}");
            assert_eq!(Known::of(text, &[job], now() + TimeDelta::minutes(1)), Known::Nothing, "{text}");
        }
        for text in ["", "-", "0199aaaa", "saxpy"] {
            assert_eq!(Known::of(text, &[job], now()), Known::Nothing, "{text:?}");
        }
        assert_eq!(Known::of(&JobId::new().to_string(), &[], Utc::now()), Known::Fresh);
    }
}
