//! The rules of the history checker, one function each.

use std::collections::{BTreeMap, BTreeSet};

use gpufleet_ledger::{AttemptRow, JobDetail};
use gpufleet_schema::{AttemptFinished, AttemptState, Event, JobId, WorkerName};

use super::{History, Violation};

/// The events of one job.
#[derive(Default)]
struct JobEvents<'a> {
    starts: Vec<Start<'a>>,
    ends: Vec<&'a AttemptFinished>,
}

/// The start of an attempt, from an event of its own or from the event of its end.
struct Start<'a> {
    attempt: u32,
    worker: &'a WorkerName,
    at_ms: i64,
    /// The time of submission in the task. It differs from the ledger's if the job was submitted again.
    submitted_ms: Option<i64>,
}

impl JobEvents<'_> {
    /// Returns whether a producer has submitted the job again under its id. Then the outcome of the latest submission counts, and the
    /// ledger gives the runs new attempt numbers.
    fn is_resubmitted(&self) -> bool {
        let submissions: BTreeSet<i64> = self.starts.iter().filter_map(|start| start.submitted_ms).collect();
        submissions.len() > 1
    }
}

pub(super) fn violations(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    empty(history, &mut found);
    lost(history, &mut found);
    let events = by_job(&history.events);
    changed(history, &events, &mut found);
    waits(history, &mut found);
    replies(history, &mut found);
    for detail in &history.known {
        let events = events.get(&detail.job.job_id);
        decided_once(detail, &mut found);
        ends(history, detail, events, &mut found);
        starts(detail, events, &mut found);
        labels(detail, &mut found);
    }
    let known: BTreeSet<JobId> = history.known.iter().map(|detail| detail.job.job_id).collect();
    let unknown = events.iter().filter(|(job, _)| !known.contains(job)).flat_map(|(_, events)| events.ends.iter());
    found.extend(unknown.map(|end| Violation::UnrecordedEnd { job: end.job_id, attempt: end.attempt }));
    found
}

fn by_job(events: &[Event]) -> BTreeMap<JobId, JobEvents<'_>> {
    let mut jobs: BTreeMap<JobId, JobEvents<'_>> = BTreeMap::new();
    for event in events {
        match event {
            Event::Started(start) => jobs.entry(start.job.job_id).or_default().starts.push(Start {
                attempt: start.attempt,
                worker: &start.worker,
                at_ms: start.at_ms,
                submitted_ms: start.job.submitted_ms,
            }),
            Event::AttemptFinished(end) => {
                let events = jobs.entry(end.job_id).or_default();
                events.starts.extend(end.started_ms.map(|at_ms| Start {
                    attempt: end.attempt,
                    worker: &end.worker,
                    at_ms,
                    submitted_ms: end.job.as_ref().and_then(|job| job.submitted_ms),
                }));
                events.ends.push(end);
            }
            Event::Submitted(_)
            | Event::WorkerSeen(_)
            | Event::Action(_)
            | Event::SessionProgress(_)
            | Event::Later(_) => {}
        }
    }
    jobs
}

fn empty(history: &History, found: &mut Vec<Violation>) {
    let mut missing = |what| found.push(Violation::EmptyHistory { what });
    if history.expected == 0 || history.known.is_empty() {
        missing("job");
    }
    if !history.events.iter().any(|event| matches!(event, Event::AttemptFinished(_))) {
        missing("final event");
    }
    if !history.producers.confirmed.is_empty() && history.replies.is_empty() {
        missing("reply");
    }
    if history.known.iter().any(|detail| !history.outcomes.contains_key(&detail.job.job_id)) {
        missing("outcome");
    }
}

/// Returns the jobs whose submission a producer knows to be confirmed, or has reported with a `submitted` event.
fn confirmed(history: &History) -> BTreeSet<JobId> {
    let reported = history.events.iter().filter_map(|event| match event {
        Event::Submitted(submitted) => Some(submitted.job.job_id),
        _ => None,
    });
    reported.chain(history.producers.confirmed.iter().copied()).collect()
}

fn lost(history: &History, found: &mut Vec<Violation>) {
    let known = history.known.len();
    if known != history.expected {
        found.push(Violation::JobCount { expected: history.expected, known });
    }
    let is_final = |detail: &&JobDetail| detail.job.state.is_final() && detail.job.finished_at.is_some();
    let ended: BTreeSet<JobId> = history.known.iter().filter(is_final).map(|detail| detail.job.job_id).collect();
    let mut wanted = confirmed(history);
    wanted.extend(history.known.iter().map(|detail| detail.job.job_id));
    found.extend(wanted.difference(&ended).map(|job| Violation::Lost { job: *job }));
}

fn changed(history: &History, events: &BTreeMap<JobId, JobEvents<'_>>, found: &mut Vec<Violation>) {
    let may_change = |job: &JobId| events.get(job).is_some_and(JobEvents::is_resubmitted);
    let twice = history.outcomes.iter().filter(|(job, outcomes)| outcomes.len() > 1 && !may_change(job));
    found.extend(twice.map(|(job, _)| Violation::Changed { job: *job }));
}

fn waits(history: &History, found: &mut Vec<Violation>) {
    for (job, wait) in &history.producers.waits {
        if wait.open > 0 || wait.outcomes.is_empty() {
            found.push(Violation::UnfinishedWait { job: *job });
        }
        if wait.outcomes.len() > 1 {
            found.push(Violation::TwoOutcomes { job: *job });
        }
    }
}

/// Checks that every outcome that a producer received equals the ledger's, and that every confirmed job has an outcome.
fn replies(history: &History, found: &mut Vec<Violation>) {
    let answered: BTreeSet<JobId> = history.replies.iter().map(|reply| reply.job_id).collect();
    let unanswered = history.producers.confirmed.difference(&answered);
    found.extend(unanswered.map(|job| Violation::NoReply { job: *job }));
    let jobs: BTreeMap<JobId, &JobDetail> = history.known.iter().map(|detail| (detail.job.job_id, detail)).collect();
    let waits = history.producers.waits.iter();
    let waits = waits.flat_map(|(job, wait)| wait.outcomes.iter().map(|outcome| (*job, *outcome)));
    let replies: BTreeSet<_> = history.replies.iter().map(|reply| (reply.job_id, reply.outcome)).collect();
    let fits = |job: &JobId, outcome: &super::ReplyOutcome| {
        jobs.get(job).is_some_and(|detail| {
            let is_known = detail.attempts.iter().any(|row| (1..=row.attempt).contains(&outcome.attempt));
            outcome.state.job_state() == detail.job.state && is_known
        })
    };
    let mut different: BTreeSet<JobId> =
        replies.iter().filter(|(job, outcome)| !fits(job, outcome)).map(|(job, _)| *job).collect();
    // Also checks that every outcome of a wait arrived in a reply.
    different.extend(waits.filter(|wait| !replies.contains(wait)).map(|(job, _)| job));
    found.extend(different.into_iter().map(|job| Violation::ReplyMismatch { job }));
}

fn is_final(state: AttemptState) -> bool {
    state.job_state().is_final()
}

fn deciding(detail: &JobDetail) -> impl Iterator<Item = &AttemptRow> {
    detail.attempts.iter().filter(|attempt| is_final(attempt.state) && !attempt.superseded)
}

fn decided_once(detail: &JobDetail, found: &mut Vec<Violation>) {
    let job = detail.job.job_id;
    let deciding: Vec<_> = deciding(detail).collect();
    let [attempt] = deciding.as_slice() else {
        found.push(Violation::DecidingAttempts { job, deciding: deciding.len() });
        return;
    };
    let of_attempt = (attempt.state.job_state(), Some(attempt.attempt), attempt.finished_at);
    if of_attempt != (detail.job.state, detail.job.attempt, detail.job.finished_at) {
        found.push(Violation::RowMismatch { job });
    }
}

/// Checks that the ledger has exactly the ends that events reported.
fn ends(history: &History, detail: &JobDetail, events: Option<&JobEvents<'_>>, found: &mut Vec<Violation>) {
    let job = detail.job.job_id;
    let ends: &[&AttemptFinished] = events.map_or(&[], |events| &events.ends);
    let is_resubmitted = events.is_some_and(JobEvents::is_resubmitted);
    // A worker that was killed may have been waiting for the confirm of an end. Then each queue of the broker may or may not have a copy,
    // and the job runs again.
    let was_unconfirmed = |attempt: u32, worker: &str| history.killed.contains(worker) && detail.job.attempts > attempt;
    for row in detail.attempts.iter().filter(|row| row.state != AttemptState::Running) {
        let matches = |end: &&&AttemptFinished| {
            let is_run = is_resubmitted && row.finished_at.is_some_and(|at| at.timestamp_millis() == end.at_ms);
            let is_attempt = end.attempt == row.attempt || is_run;
            is_attempt && end.state == row.state && end.worker.as_str() == row.worker
        };
        if !ends.iter().any(|end| matches(&end)) && !was_unconfirmed(row.attempt, &row.worker) {
            found.push(Violation::EndWithoutEvent { job, attempt: row.attempt });
        }
    }
    for (index, end) in ends.iter().enumerate().filter(|(_, end)| is_final(end.state)) {
        let attempt = end.attempt;
        let is_recorded = detail.attempts.iter().any(|row| row.attempt == attempt && is_final(row.state));
        if !is_recorded && !was_unconfirmed(attempt, end.worker.as_str()) {
            found.push(Violation::UnrecordedEnd { job, attempt });
        }
        let same = |other: &&&AttemptFinished| {
            is_final(other.state) && (other.attempt, &other.worker) == (attempt, &end.worker)
        };
        // If a producer sent a message twice, the job runs twice as the same attempt, and both ends are equal.
        if ends[..index].iter().any(|other| same(&other) && other.state != end.state) {
            found.push(Violation::TwoEnds { job, attempt });
        }
    }
}

/// Checks that no attempt ends before it starts. All processes of a scenario share one clock.
fn starts(detail: &JobDetail, events: Option<&JobEvents<'_>>, found: &mut Vec<Violation>) {
    let job = detail.job.job_id;
    let starts: &[Start<'_>] = events.map_or(&[], |events| &events.starts);
    let is_resubmitted = events.is_some_and(JobEvents::is_resubmitted);
    let mut wrong = BTreeSet::new();
    for row in &detail.attempts {
        let began = starts.iter().any(|start| start.attempt == row.attempt || is_resubmitted);
        let lacks_start = row.state == AttemptState::Succeeded && !(began && row.started_at.is_some());
        let backwards = row.started_at.zip(row.finished_at).is_some_and(|(started, finished)| started > finished);
        if lacks_start || backwards {
            wrong.insert(row.attempt);
        }
    }
    let ends: &[&AttemptFinished] = events.map_or(&[], |events| &events.ends);
    for start in starts {
        if start.submitted_ms.is_some_and(|submitted_ms| start.at_ms < submitted_ms) {
            wrong.insert(start.attempt);
        }
    }
    for end in ends {
        let of_end = |start: &&Start<'_>| (start.attempt, start.worker) == (end.attempt, &end.worker);
        let first = starts.iter().filter(of_end).map(|start| start.at_ms).min();
        if first.max(end.started_ms).is_some_and(|started_ms| end.at_ms < started_ms) {
            wrong.insert(end.attempt);
        }
    }
    found.extend(wrong.into_iter().map(|attempt| Violation::EndBeforeStart { job, attempt }));
    let times = (detail.job.started_at, detail.job.finished_at);
    if times.0.zip(times.1).is_some_and(|(started, finished)| started > finished) {
        found.push(Violation::EndBeforeStart { job, attempt: 0 });
    }
}

fn labels(detail: &JobDetail, found: &mut Vec<Violation>) {
    let job = detail.job.job_id;
    let unlabelled =
        |row: &&AttemptRow| row.device.is_some() && (row.device_name.is_none() || row.emulated != Some(true));
    let attempts = detail.attempts.iter().filter(unlabelled);
    found.extend(attempts.map(|row| Violation::NotMarkedEmulated { job, attempt: row.attempt }));
}
