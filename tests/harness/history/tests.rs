//! Tests of the history checker: a valid history passes, and each modification violates its rule.

use chrono::{DateTime, Utc};
use gpufleet_ledger::AttemptRow;
use gpufleet_schema::{AttemptFinished, JobInfo, Started, Submitted};

use super::*;

const SUBMITTED_MS: i64 = 1_763_622_000_000;
const STARTED_MS: i64 = SUBMITTED_MS + 10;
const FINISHED_MS: i64 = SUBMITTED_MS + 20;
const WORKER: &str = "w1";

fn at(ms: i64) -> Option<DateTime<Utc>> {
    Some(DateTime::from_timestamp_millis(ms).unwrap())
}

fn info(job_id: JobId) -> JobInfo {
    JobInfo { program: "ptx".to_owned(), submitted_ms: Some(SUBMITTED_MS), ..JobInfo::new(job_id, "k") }
}

fn started(job_id: JobId, attempt: u32) -> Event {
    Event::Started(Started {
        job: info(job_id),
        attempt,
        worker: WORKER.parse().unwrap(),
        device: 0,
        ran_on: None,
        at_ms: STARTED_MS,
    })
}

fn finished(job_id: JobId, attempt: u32, state: AttemptState) -> Event {
    let end = AttemptFinished::new(job_id, attempt, WORKER.parse().unwrap(), FINISHED_MS, state);
    Event::AttemptFinished(AttemptFinished { device: Some(0), ..end })
}

fn row(attempt: u32, state: AttemptState, superseded: bool) -> AttemptRow {
    AttemptRow {
        attempt,
        state,
        superseded,
        worker: WORKER.to_owned(),
        is_unheard: false,
        device: Some(0),
        device_name: Some("emulator".to_owned()),
        emulated: Some(true),
        started_at: at(STARTED_MS),
        finished_at: at(FINISHED_MS),
        failure: None,
        retry_at: None,
        output_bytes: Some(0),
        charged_us: None,
        timings: None,
        printf_output: None,
        session: None,
    }
}

/// Returns a job in the ledger, decided by its first final attempt that is not superseded.
fn detail(job_id: JobId, attempts: Vec<AttemptRow>) -> JobDetail {
    let deciding = attempts.iter().find(|row| row.state.job_state().is_final() && !row.superseded).unwrap();
    let job = JobRow {
        job_id,
        state: deciding.state.job_state(),
        name: None,
        labels: BTreeMap::new(),
        pool: Some("default".to_owned()),
        priority: Some("normal".to_owned()),
        program: Some("ptx".to_owned()),
        kernel: Some("k".to_owned()),
        client: None,
        user_id: None,
        created_at: at(SUBMITTED_MS).unwrap(),
        submitted_at: at(SUBMITTED_MS),
        started_at: at(STARTED_MS),
        finished_at: deciding.finished_at,
        attempts: attempts.iter().map(|row| row.attempt).max().unwrap(),
        attempt: Some(deciding.attempt),
        worker: Some(WORKER.to_owned()),
        is_unheard: false,
        device: Some(0),
        device_name: Some("emulator".to_owned()),
        emulated: Some(true),
        failure: None,
        input_bytes: Some(0),
        lease_bytes: None,
        host_program: None,
        output_bytes: Some(0),
        queue_us: None,
        kernel_us: None,
        total_us: None,
    };
    JobDetail { job, attempts, outputs: Vec::new() }
}

/// Returns a valid history of two jobs: one succeeded at once; the other lost an attempt, then ran twice and was
/// answered twice. Returns the jobs too.
fn sound() -> (History, [JobId; 2]) {
    let [plain, eventful] = [JobId::new(), JobId::new()];
    let mut history = History { expected: 2, ..History::default() };
    for job in [plain, eventful] {
        let submitted = Submitted { job: info(job), at_ms: SUBMITTED_MS };
        history.events.push(Event::Submitted(submitted));
        history.producers.confirmed.insert(job);
    }
    let ran = [
        (plain, 1, AttemptState::Succeeded),
        (eventful, 1, AttemptState::Lost),
        (eventful, 2, AttemptState::Succeeded),
        (eventful, 3, AttemptState::Succeeded),
    ];
    for (job, attempt, state) in ran {
        // Events may arrive twice, and in any order.
        history.events.extend([finished(job, attempt, state), started(job, attempt), finished(job, attempt, state)]);
        if state == AttemptState::Succeeded {
            history.replies.push(SeenReply { job_id: job, outcome: ReplyOutcome { state, attempt } });
        }
    }
    for (job, attempt) in [(plain, 1), (eventful, 2)] {
        let outcomes = vec![ReplyOutcome { state: AttemptState::Succeeded, attempt }];
        history.producers.waits.insert(job, Wait { open: 0, outcomes });
    }
    history.known = vec![
        detail(plain, vec![row(1, AttemptState::Succeeded, false)]),
        detail(
            eventful,
            vec![
                row(1, AttemptState::Lost, false),
                row(2, AttemptState::Succeeded, false),
                row(3, AttemptState::Succeeded, true),
            ],
        ),
    ];
    look(&mut history);
    (history, [plain, eventful])
}

/// Records the outcomes that the ledger shows now.
fn look(history: &mut History) {
    for known in &history.known {
        history.outcomes.entry(known.job.job_id).or_default().extend(Outcome::of(&known.job));
    }
}

/// Modifies a valid history and returns its violations.
fn doctored(doctor: impl FnOnce(&mut History, JobId)) -> Vec<Violation> {
    let (mut history, [job, _]) = sound();
    doctor(&mut history, job);
    history.violations()
}

fn forget_event(history: &mut History, forgotten: impl Fn(&Event) -> bool) {
    history.events.retain(|event| !forgotten(event));
}

fn ends(event: &Event, job: JobId) -> bool {
    matches!(event, Event::AttemptFinished(end) if end.job_id == job)
}

#[test]
fn a_valid_history_violates_no_rule() {
    assert_eq!(sound().0.violations(), []);
}

#[test]
fn an_empty_history_violates_a_rule() {
    let found = History::default().violations();
    assert!(found.iter().any(|violation| matches!(violation, Violation::EmptyHistory { what: "job" })), "{found:?}");
    let found = doctored(|history, _| history.events.clear());
    let what = "final event";
    assert!(found.contains(&Violation::EmptyHistory { what }), "{found:?}");
    let found = doctored(|history, _| history.replies.clear());
    assert!(found.contains(&Violation::EmptyHistory { what: "reply" }), "{found:?}");
    let found = doctored(|history, _| history.outcomes.clear());
    assert_eq!(found, [Violation::EmptyHistory { what: "outcome" }]);
}

#[test]
fn too_many_and_too_few_jobs_are_violations() {
    assert_eq!(doctored(|history, _| history.expected = 3), [Violation::JobCount { expected: 3, known: 2 }]);
    let found = doctored(|history, _| history.expected = 1);
    assert_eq!(found, [Violation::JobCount { expected: 1, known: 2 }]);
}

#[test]
fn a_confirmed_job_without_a_record_is_lost() {
    let stranger = JobId::new();
    let found = doctored(|history, _| {
        history.producers.confirmed.insert(stranger);
        history.replies.push(SeenReply { job_id: stranger, outcome: history.replies[0].outcome });
    });
    assert!(found.contains(&Violation::Lost { job: stranger }), "{found:?}");
    // A producer's submitted event counts as a confirmation.
    let found = doctored(|history, _| {
        history.events.push(Event::Submitted(Submitted { job: info(stranger), at_ms: SUBMITTED_MS }));
    });
    assert_eq!(found, [Violation::Lost { job: stranger }]);
}

#[test]
fn a_job_without_an_outcome_is_lost() {
    let mut lost = None;
    let found = doctored(|history, job| {
        let known = &mut history.known[0];
        (known.job.state, known.job.finished_at) = (JobState::Running, None);
        known.attempts[0] = AttemptRow { finished_at: None, ..row(1, AttemptState::Running, false) };
        forget_event(history, |event| ends(event, job));
        lost = Some(job);
    });
    assert!(found.contains(&Violation::Lost { job: lost.unwrap() }), "{found:?}");
    assert!(found.contains(&Violation::DecidingAttempts { job: lost.unwrap(), deciding: 0 }), "{found:?}");
}

#[test]
fn two_deciding_attempts_are_a_violation() {
    let (mut history, [_, job]) = sound();
    history.known[1].attempts[2].superseded = false;
    assert_eq!(history.violations(), [Violation::DecidingAttempts { job, deciding: 2 }]);
}

#[test]
fn a_job_that_differs_from_its_deciding_attempt_is_a_violation() {
    let (mut history, [_, job]) = sound();
    history.known[1].job.attempt = Some(3);
    assert_eq!(history.violations(), [Violation::RowMismatch { job }]);
}

#[test]
fn an_end_without_an_event_is_a_violation() {
    let (mut history, [job, _]) = sound();
    forget_event(&mut history, |event| ends(event, job));
    assert_eq!(history.violations(), [Violation::EndWithoutEvent { job, attempt: 1 }]);
}

#[test]
fn an_event_whose_end_the_ledger_lacks_is_a_violation() {
    let (mut history, [_, job]) = sound();
    history.known[1].attempts.pop();
    assert!(history.violations().contains(&Violation::UnrecordedEnd { job, attempt: 3 }));
    let stranger = JobId::new();
    let found = doctored(|history, _| history.events.push(finished(stranger, 1, AttemptState::Failed)));
    assert_eq!(found, [Violation::UnrecordedEnd { job: stranger, attempt: 1 }]);
}

#[test]
fn only_some_queues_may_have_the_end_of_a_killed_workers_attempt_before_the_last() {
    let (mut history, [_, job]) = sound();
    // The ledger lacks this end, and the events lack the other one.
    history.events.push(finished(job, 1, AttemptState::Failed));
    forget_event(
        &mut history,
        |event| matches!(event, Event::AttemptFinished(end) if end.job_id == job && end.attempt == 2),
    );
    let [unseen, unrecorded] =
        [Violation::EndWithoutEvent { job, attempt: 2 }, Violation::UnrecordedEnd { job, attempt: 1 }];
    assert_eq!(history.violations(), [unseen, unrecorded]);
    history.killed.insert(WORKER.to_owned());
    assert_eq!(history.violations(), []);

    history.known[1].attempts.pop();
    assert!(history.violations().contains(&Violation::UnrecordedEnd { job, attempt: 3 }));
}

#[test]
fn two_different_ends_of_one_attempt_are_a_violation() {
    let (mut history, [job, _]) = sound();
    history.events.push(finished(job, 1, AttemptState::Failed));
    assert_eq!(history.violations(), [Violation::TwoEnds { job, attempt: 1 }]);
}

#[test]
fn a_changed_outcome_is_a_violation() {
    let (mut history, [job, _]) = sound();
    history.known[0].job.failure = Some(FailureRow {
        verdict: "user".into(),
        code: "c".into(),
        message: "m".into(),
        detail: None,
        line: None,
        source: None,
    });
    look(&mut history);
    assert_eq!(history.violations(), [Violation::Changed { job }]);
}

#[test]
fn an_end_before_its_start_is_a_violation_in_rows_and_in_events() {
    let (mut history, [job, _]) = sound();
    history.known[0].attempts[0].started_at = at(FINISHED_MS + 1);
    assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }]);

    for started_ms in [FINISHED_MS + 1, SUBMITTED_MS - 1] {
        let (mut history, [job, _]) = sound();
        for event in &mut history.events {
            match event {
                Event::Started(start) if start.job.job_id == job => start.at_ms = started_ms,
                _ => {}
            }
        }
        assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }], "{started_ms}");
    }
}

#[test]
fn a_final_event_with_its_start_needs_no_start_event() {
    let sound = with_a_short_job(STARTED_MS);
    assert_eq!(sound.violations(), []);
    for started_ms in [FINISHED_MS + 1, SUBMITTED_MS - 1] {
        let history = with_a_short_job(started_ms);
        let job = history.known[0].job.job_id;
        assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }], "{started_ms}");
    }
}

/// Returns a history in which the first job's attempt has one event, which reports this start.
fn with_a_short_job(started_ms: i64) -> History {
    let (mut history, [job, _]) = sound();
    forget_event(&mut history, |event| matches!(event, Event::Started(start) if start.job.job_id == job));
    for event in &mut history.events {
        match event {
            Event::AttemptFinished(end) if end.job_id == job => {
                (end.started_ms, end.job) = (Some(started_ms), Some(Box::new(info(job))));
            }
            _ => {}
        }
    }
    history
}

#[test]
fn a_success_without_a_start_is_a_violation() {
    let (mut history, [job, _]) = sound();
    forget_event(&mut history, |event| matches!(event, Event::Started(start) if start.job.job_id == job));
    assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }]);
}

#[test]
fn an_open_wait_and_a_wait_without_an_outcome_are_violations() {
    let (mut open, [job, _]) = sound();
    open.producers.waits.entry(job).or_default().open = 1;
    assert_eq!(open.violations(), [Violation::UnfinishedWait { job }]);
    let (mut without_outcome, [job, _]) = sound();
    without_outcome.producers.waits.entry(job).or_default().outcomes.clear();
    assert_eq!(without_outcome.violations(), [Violation::UnfinishedWait { job }]);
}

#[test]
fn two_outcomes_and_an_outcome_that_differs_from_the_ledger_are_violations() {
    let (mut history, [_, job]) = sound();
    history
        .producers
        .waits
        .entry(job)
        .or_default()
        .outcomes
        .push(ReplyOutcome { state: AttemptState::Succeeded, attempt: 3 });
    assert_eq!(history.violations(), [Violation::TwoOutcomes { job }]);

    let (mut history, [_, job]) = sound();
    history.replies.push(SeenReply { job_id: job, outcome: ReplyOutcome { state: AttemptState::Failed, attempt: 3 } });
    assert_eq!(history.violations(), [Violation::ReplyMismatch { job }]);

    let (mut history, [_, job]) = sound();
    history.producers.waits.entry(job).or_default().outcomes[0].attempt = 1;
    assert_eq!(history.violations(), [Violation::ReplyMismatch { job }]);
}

#[test]
fn a_confirmed_job_without_a_reply_is_a_violation() {
    let (mut history, [job, _]) = sound();
    history.producers.waits.remove(&job);
    history.replies.retain(|reply| reply.job_id != job);
    assert_eq!(history.violations(), [Violation::NoReply { job }]);
}

#[test]
fn an_attempt_that_is_not_marked_as_emulated_is_a_violation() {
    let (mut history, [job, _]) = sound();
    history.known[0].attempts[0].emulated = None;
    assert_eq!(history.violations(), [Violation::NotMarkedEmulated { job, attempt: 1 }]);
}
