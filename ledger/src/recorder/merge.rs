//! Merges the events of a batch into one change for each row, because one statement can't change a row twice.
//!
//! Merging follows the same rules as the upserts in [`super::write`], so the result does not depend on the batches:
//! - A job keeps the final outcome that arrived first. Nothing else depends on the order of arrival.
//! - A job without an outcome has the state of its highest attempt: running, or queued again if that attempt was lost.
//! - An attempt keeps its first outcome, but an outcome replaces a loss. Its start is the earliest of its events, including its end's: an
//!   attempt that is redelivered under its old number may report a start after its end. Its place is that of its end, and before that of
//!   its earliest start.
//! - An attempt whose session is open has the numbers of the report with the highest sequence. Its end replaces them.
//! - If a job is submitted again under its id, its attempt numbers repeat. The attempts after a later submission are kept apart: see
//!   [`super::write::runs`].
//! - A job belongs to the user of its first event, but a worker's event takes it over from another client's submission. Events of other
//!   users are merged into separate changes, which the table drops unless the job belongs to that user.
//! - A job's description is that of its first event that has one. Later events fill its gaps.
//! - A worker's state is that of its latest heartbeat by the worker's clock. The order of arrival matters only after the clock was set
//!   back: see [`CLOCK_STEP_MIN`].

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_schema::{
    Action, AttemptFinished, Event, JobId, JobInfo, LaterEvent, SessionProgress, Started, Submitted, WorkerSeen,
    text::recordable,
};
use uuid::Uuid;

use super::change::{
    ActionChange, AttemptChange, CLOCK_STEP_MIN, Claim, DeviceChange, End, Info, JobChange, OpenSession, Outcome,
    Owner, Place, Progress, Unrecordable, WorkerChange, int, time,
};
use super::samples::{self, Sample};
use crate::job_time::time_in_id;

/// The maximum length of the text of an event that this release does not know.
const LATER_EVENT_BYTES_MAX: usize = 2 << 10;

/// The changes of a batch of events. They are sorted by key, because transactions that lock rows in the same order do not deadlock.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Changes {
    pub(super) jobs: BTreeMap<JobId, JobChange>,
    pub(super) attempts: BTreeMap<(JobId, i32), AttemptChange>,
    pub(super) workers: BTreeMap<String, WorkerChange>,
    pub(super) devices: BTreeMap<(String, i32), DeviceChange>,
    pub(super) samples: BTreeMap<samples::Key, Sample>,
    pub(super) actions: BTreeMap<Uuid, ActionChange>,
    /// The latest unknown event of each kind that this release does not know, as text.
    pub(super) later: BTreeMap<String, String>,
}

impl Changes {
    /// Adds an event, or returns an error and changes nothing. Returns false, and changes nothing, if the job already has changes of
    /// another user: only the table knows whose job it is, so such changes are written one after the other.
    pub(super) fn add(&mut self, event: &Event) -> Result<bool, Unrecordable> {
        match event {
            Event::Submitted(event) => return self.submitted(event),
            Event::Started(event) => return self.started(event),
            Event::AttemptFinished(event) => return self.finished(event),
            Event::SessionProgress(event) => return self.progressed(event),
            Event::WorkerSeen(event) => self.worker_seen(event)?,
            Event::Action(event) => self.action(event)?,
            Event::Later(event) => self.later(event),
        }
        Ok(true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.workers.is_empty() && self.actions.is_empty() && self.later.is_empty()
    }

    fn submitted(&mut self, event: &Submitted) -> Result<bool, Unrecordable> {
        let at = time("at_ms", event.at_ms)?;
        let change = JobChange { confirmed_at: Some(at), ..JobChange::described(&event.job, at)? };
        Ok(self.job(event.job.job_id, change))
    }

    fn started(&mut self, event: &Started) -> Result<bool, Unrecordable> {
        let attempt = int("attempt", event.attempt)?;
        let at = time("at_ms", event.at_ms)?;
        let place = Place::of_start(event)?;
        let change = JobChange {
            progress: Progress { attempt, ended: false },
            started_at: Some(at),
            ..JobChange::described(&event.job, at)?.by_worker()
        };
        let added = self.job(event.job.job_id, change);
        if added {
            self.attempt(event.job.job_id, attempt).begin(at, place);
        }
        Ok(added)
    }

    fn progressed(&mut self, event: &SessionProgress) -> Result<bool, Unrecordable> {
        let open = OpenSession::of(event)?;
        let Started { job, attempt, .. } = &event.started;
        let added = self.started(&event.started)?;
        if added {
            self.attempt(job.job_id, int("attempt", *attempt)?).progress(open);
        }
        Ok(added)
    }

    fn finished(&mut self, event: &AttemptFinished) -> Result<bool, Unrecordable> {
        let attempt = int("attempt", event.attempt)?;
        let end = End::of(event)?;
        let started_at = event.started_ms.map(|ms| time("started_ms", ms)).transpose()?;
        let first_at = earlier(started_at, Some(end.at)).unwrap_or(end.at);
        let outcome = end.is_final().then(|| Outcome { state: end.state.job_state(), attempt, finished_at: end.at });
        let known = match event.job.as_deref().filter(|job| job.job_id == event.job_id) {
            Some(job) => JobChange::described(job, first_at)?,
            None => JobChange::named(event.job_id, event.user_id.as_deref(), first_at),
        };
        let change =
            JobChange { progress: Progress { attempt, ended: true }, started_at, outcome, ..known.by_worker() };
        let added = self.job(event.job_id, change);
        if added {
            self.attempt(event.job_id, attempt).finish(started_at, end);
        }
        Ok(added)
    }

    fn worker_seen(&mut self, event: &WorkerSeen) -> Result<(), Unrecordable> {
        let change = WorkerChange::of(event)?;
        let at = change.last_seen_at;
        let devices: Vec<(i32, DeviceChange)> = event
            .devices
            .iter()
            .map(|device| Ok((int("device", device.index)?, DeviceChange::of(device, at)?)))
            .collect::<Result<_, Unrecordable>>()?;
        let today = Utc::now().date_naive();
        for ((device, change), seen) in devices.iter().zip(&event.devices) {
            let declared = seen.pools.iter().fold(0_u64, |sum, pool| sum.saturating_add(pool.memory_bytes));
            let declared = i64::try_from(declared).unwrap_or(i64::MAX);
            if let Some(key) = samples::Key::of(event.worker.as_str(), *device, at, today) {
                self.samples.entry(key).or_insert_with(|| Sample::of(change, declared));
            }
        }
        let is_latest = match self.workers.get_mut(event.worker.as_str()) {
            Some(known) => known.merge(change),
            None => {
                self.workers.insert(event.worker.to_string(), change);
                true
            }
        };
        for (index, device) in devices {
            let known = self.devices.entry((event.worker.to_string(), index)).or_insert_with(|| device.clone());
            if is_latest || device.last_seen_at > known.last_seen_at {
                *known = device;
            }
        }
        Ok(())
    }

    fn action(&mut self, event: &Action) -> Result<(), Unrecordable> {
        let change = ActionChange::of(event)?;
        self.actions.entry(event.action_id.as_uuid()).or_insert(change);
        Ok(())
    }

    fn later(&mut self, event: &LaterEvent) {
        self.later.insert(event.kind.clone(), event.text(LATER_EVENT_BYTES_MAX));
    }

    /// Adds a change of a job. Returns false if the job has changes of another user.
    fn job(&mut self, job_id: JobId, change: JobChange) -> bool {
        let Some(known) = self.jobs.get_mut(&job_id) else {
            self.jobs.insert(job_id, change);
            return true;
        };
        match known.owner.claim(&change.owner) {
            Claim::SameOwner => known.merge(change),
            Claim::TakesOver => *known = change,
            Claim::Foreign => return false,
        }
        true
    }

    /// Returns the changes of the jobs with these ids, and all changes that concern no job.
    pub(super) fn of_jobs(&self, is_kept: impl Fn(&JobId) -> bool) -> Self {
        let mut kept = self.clone();
        kept.jobs.retain(|job_id, _| is_kept(job_id));
        kept.attempts.retain(|(job_id, _), _| is_kept(job_id));
        kept
    }

    fn attempt(&mut self, job_id: JobId, attempt: i32) -> &mut AttemptChange {
        self.attempts.entry((job_id, attempt)).or_default()
    }
}

impl JobChange {
    /// Returns the change of a job of which only the id is known.
    fn named(job_id: JobId, user: Option<&str>, at: DateTime<Utc>) -> Self {
        Self {
            owner: Owner { user: user.map(recordable), by_worker: false },
            created_at: time_in_id(job_id).unwrap_or(at),
            info: None,
            confirmed_at: None,
            progress: Progress::default(),
            started_at: None,
            outcome: None,
        }
    }

    fn described(job: &JobInfo, at: DateTime<Utc>) -> Result<Self, Unrecordable> {
        let info = Info::of(job)?;
        let earliest = info.submitted_at.map_or(at, |submitted_at| submitted_at.min(at));
        Ok(Self { info: Some(info), ..Self::named(job.job_id, job.user_id.as_deref(), earliest) })
    }

    fn by_worker(mut self) -> Self {
        self.owner.by_worker = true;
        self
    }

    fn merge(&mut self, later: Self) {
        self.owner.by_worker |= later.owner.by_worker;
        self.created_at = self.created_at.min(later.created_at);
        self.confirmed_at = earlier(self.confirmed_at, later.confirmed_at);
        self.started_at = earlier(self.started_at, later.started_at);
        self.progress = self.progress.max(later.progress);
        self.outcome = self.outcome.or(later.outcome);
        match (&mut self.info, later.info) {
            (Some(info), Some(later)) => info.fill(later),
            (info @ None, later) => *info = later,
            (Some(_), None) => {}
        }
    }
}

impl Info {
    fn fill(&mut self, later: Self) {
        self.name = self.name.take().or(later.name);
        self.client = self.client.take().or(later.client);
        self.submitted_at = self.submitted_at.or(later.submitted_at);
        if self.blobs.is_empty() {
            self.blobs = later.blobs;
        }
    }
}

impl AttemptChange {
    fn begin(&mut self, at: DateTime<Utc>, place: Place) {
        if self.end.is_none() && self.started_at.is_none_or(|known| at < known) {
            self.runs_on = Some(place);
        }
        self.started_at = earlier(self.started_at, Some(at));
    }

    fn progress(&mut self, open: OpenSession) {
        if self.end.is_none() && self.open.as_ref().is_none_or(|known| open.sequence > known.sequence) {
            self.open = Some(open);
        }
    }

    fn finish(&mut self, started_at: Option<DateTime<Utc>>, end: End) {
        if self.end.as_ref().is_some_and(|known| end.run(known.submitted_at).is_ne()) {
            let is_repeated = |run: &Self| run.end.as_ref().is_some_and(|known| known.is_same_as(&end));
            if !self.other_runs.iter().any(is_repeated) {
                self.other_runs.push(Self { started_at, end: Some(end), ..Self::default() });
            }
            return;
        }
        self.started_at = earlier(self.started_at, started_at);
        (self.runs_on, self.open) = (None, None);
        if self.end.as_ref().is_none_or(|known| end.is_final() && !known.is_final()) {
            self.replaced = self.end.replace(end);
        }
    }
}

impl WorkerChange {
    /// Merges another heartbeat. Returns whether it is the latest one.
    fn merge(&mut self, other: Self) -> bool {
        self.first_seen_at = self.first_seen_at.min(other.first_seen_at);
        let back = self.last_seen_at.signed_duration_since(other.last_seen_at).to_std().unwrap_or_default();
        // The final heartbeat may have the same millisecond as the previous one.
        let is_latest =
            (other.last_seen_at, other.seen.leaving) > (self.last_seen_at, self.seen.leaving) || back > CLOCK_STEP_MIN;
        if is_latest {
            self.last_seen_at = other.last_seen_at;
            self.seen = other.seen;
        }
        is_latest
    }
}

fn earlier(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
