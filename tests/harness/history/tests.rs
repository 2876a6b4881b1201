//! A valid history passes, and each modification violates its rule.

use chrono::{DateTime, Utc};
use gpufleet_ledger::AttemptRow;
use gpufleet_schema::{AttemptFinished, JobInfo, Priority, Started, Submitted, Timings};

use super::*;

const SUBMITTED_MS: i64 = 1_763_622_000_000;
const STARTED_MS: i64 = SUBMITTED_MS + 10;
const FINISHED_MS: i64 = SUBMITTED_MS + 20;
const WORKER: &str = "w1";

fn at(ms: i64) -> Option<DateTime<Utc>> {
    Some(DateTime::from_timestamp_millis(ms).unwrap())
}

fn info(job_id: JobId) -> JobInfo {
    JobInfo {
        job_id,
        pool: "default".parse().unwrap(),
        priority: Priority::Normal,
        name: None,
        labels: BTreeMap::new(),
        program: "ptx".to_owned(),
        kernel: "k".to_owned(),
        input_bytes: 0,
        client: None,
        submitted_ms: Some(SUBMITTED_MS),
        user_id: None,
    }
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
    Event::AttemptFinished(AttemptFinished {
        job_id,
        attempt,
        worker: WORKER.parse().unwrap(),
        device: Some(0),
        ran_on: None,
        started_ms: None,
        at_ms: FINISHED_MS,
        state,
        failure: None,
        retry_at_ms: None,
        output_bytes: 0,
        timings: Timings::default(),
        job: None,
        printf_output: None,
    })
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
        timings: None,
        printf_output: None,
    }
}

/// A job in the ledger, decided by its first final attempt that is not superseded.
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
        output_bytes: Some(0),
        queue_us: None,
        kernel_us: None,
        total_us: None,
    };
    JobDetail { job, attempts }
}

/// Two jobs: one succeeded at once; the other lost an attempt, then ran twice and was answered twice.
fn sound() -> History {
    let [plain, eventful] = [JobId::new(), JobId::new()];
    let mut history = History { expected: 2, ..History::default() };
    for job in [plain, eventful] {
        let submitted = Submitted { job: info(job), at_ms: SUBMITTED_MS };
        history.events.push(Event::Submitted(submitted));
        history.promises.confirmed.insert(job);
    }
    let ran = [
        (plain, 1, AttemptState::Succeeded),
        (eventful, 1, AttemptState::Lost),
        (eventful, 2, AttemptState::Succeeded),
        (eventful, 3, AttemptState::Succeeded),
    ];
    for (job, attempt, state) in ran {
        // Events may come twice, and in any order.
        history.events.extend([finished(job, attempt, state), started(job, attempt), finished(job, attempt, state)]);
        if state == AttemptState::Succeeded {
            history.replies.push(SeenReply { job_id: job, told: Told { state, attempt } });
        }
    }
    for (job, attempt) in [(plain, 1), (eventful, 2)] {
        let told = vec![Told { state: AttemptState::Succeeded, attempt }];
        history.promises.waits.insert(job, Wait { open: 0, told });
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
    history
}

/// What the ledger shows is seen.
fn look(history: &mut History) {
    for known in &history.known {
        history.outcomes.entry(known.job.job_id).or_default().extend(Outcome::of(&known.job));
    }
}

/// The violations of a valid history after a modification.
fn doctored(doctor: impl FnOnce(&mut History, JobId)) -> Vec<Violation> {
    let mut history = sound();
    let job = history.known[0].job.job_id;
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
fn a_sound_history_breaks_no_rule() {
    assert_eq!(sound().violations(), []);
}

#[test]
fn a_history_of_nothing_does_not_hold() {
    let found = History::default().violations();
    assert!(found.iter().any(|violation| matches!(violation, Violation::NothingSeen { what: "job" })), "{found:?}");
    let found = doctored(|history, _| history.events.clear());
    let what = "event of an attempt's end";
    assert!(found.contains(&Violation::NothingSeen { what }), "{found:?}");
    let found = doctored(|history, _| history.replies.clear());
    assert!(found.contains(&Violation::NothingSeen { what: "reply" }), "{found:?}");
    let found = doctored(|history, _| history.outcomes.clear());
    assert_eq!(found, [Violation::NothingSeen { what: "look at an outcome" }]);
}

#[test]
fn a_job_too_many_or_too_few_is_counted() {
    assert_eq!(doctored(|history, _| history.expected = 3), [Violation::Count { expected: 3, known: 2 }]);
    let found = doctored(|history, _| history.expected = 1);
    assert_eq!(found, [Violation::Count { expected: 1, known: 2 }]);
}

#[test]
fn a_confirmed_job_without_a_record_is_lost() {
    let stranger = JobId::new();
    let found = doctored(|history, _| {
        history.promises.confirmed.insert(stranger);
        history.replies.push(SeenReply { job_id: stranger, told: history.replies[0].told });
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
    assert!(found.contains(&Violation::Finals { job: lost.unwrap(), deciding: 0 }), "{found:?}");
}

#[test]
fn two_deciding_attempts_are_one_too_many() {
    let mut history = sound();
    history.known[1].attempts[2].superseded = false;
    let job = history.known[1].job.job_id;
    assert_eq!(history.violations(), [Violation::Finals { job, deciding: 2 }]);
}

#[test]
fn a_job_that_stands_otherwise_than_its_attempt_is_torn() {
    let mut history = sound();
    history.known[1].job.attempt = Some(3);
    let job = history.known[1].job.job_id;
    assert_eq!(history.violations(), [Violation::Torn { job }]);
}

#[test]
fn an_outcome_of_which_no_event_told_is_invented() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    forget_event(&mut history, |event| ends(event, job));
    assert_eq!(history.violations(), [Violation::Invented { job, attempt: 1 }]);
}

#[test]
fn an_end_that_the_ledger_does_not_hold_is_forgotten() {
    let mut history = sound();
    let job = history.known[1].job.job_id;
    history.known[1].attempts.pop();
    assert!(history.violations().contains(&Violation::Forgotten { job, attempt: 3 }));
    let stranger = JobId::new();
    let found = doctored(|history, _| history.events.push(finished(stranger, 1, AttemptState::Failed)));
    assert_eq!(found, [Violation::Forgotten { job: stranger, attempt: 1 }]);
}

#[test]
fn two_different_ends_of_one_attempt_are_one_too_many() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    history.events.push(finished(job, 1, AttemptState::Failed));
    assert_eq!(history.violations(), [Violation::TwoEnds { job, attempt: 1 }]);
}

#[test]
fn an_outcome_that_was_another_before_has_changed() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    history.known[0].job.failure =
        Some(FailureRow { verdict: "user".into(), code: "c".into(), message: "m".into(), detail: None, line: None });
    look(&mut history);
    assert_eq!(history.violations(), [Violation::Changed { job }]);
}

#[test]
fn an_end_before_its_start_is_seen_in_rows_and_in_events() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    history.known[0].attempts[0].started_at = at(FINISHED_MS + 1);
    assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }]);

    for started_ms in [FINISHED_MS + 1, SUBMITTED_MS - 1] {
        let mut history = sound();
        let job = history.known[0].job.job_id;
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
fn an_end_that_tells_its_start_needs_no_event_of_it() {
    let sound = with_a_short_job(STARTED_MS);
    assert_eq!(sound.violations(), []);
    for started_ms in [FINISHED_MS + 1, SUBMITTED_MS - 1] {
        let history = with_a_short_job(started_ms);
        let job = history.known[0].job.job_id;
        assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }], "{started_ms}");
    }
}

/// The first job's attempt has one event, which tells this start.
fn with_a_short_job(started_ms: i64) -> History {
    let mut history = sound();
    let job = history.known[0].job.job_id;
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
fn a_success_without_a_start_ran_from_nowhere() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    forget_event(&mut history, |event| matches!(event, Event::Started(start) if start.job.job_id == job));
    assert_eq!(history.violations(), [Violation::EndBeforeStart { job, attempt: 1 }]);
}

#[test]
fn a_wait_that_is_open_or_in_vain_does_not_count_as_ended() {
    let mut open = sound();
    let job = open.known[0].job.job_id;
    open.promises.waits.entry(job).or_default().open = 1;
    assert_eq!(open.violations(), [Violation::Unended { job }]);
    let mut vain = sound();
    let job = vain.known[0].job.job_id;
    vain.promises.waits.entry(job).or_default().told.clear();
    assert_eq!(vain.violations(), [Violation::Unended { job }]);
}

#[test]
fn a_producer_is_told_once_and_what_the_ledger_says() {
    let mut history = sound();
    let job = history.known[1].job.job_id;
    history.promises.waits.entry(job).or_default().told.push(Told { state: AttemptState::Succeeded, attempt: 3 });
    assert_eq!(history.violations(), [Violation::ToldTwice { job }]);

    let mut history = sound();
    let job = history.known[1].job.job_id;
    history.replies.push(SeenReply { job_id: job, told: Told { state: AttemptState::Failed, attempt: 3 } });
    assert_eq!(history.violations(), [Violation::ToldOtherwise { job }]);

    let mut history = sound();
    let job = history.known[1].job.job_id;
    history.promises.waits.entry(job).or_default().told[0].attempt = 1;
    assert_eq!(history.violations(), [Violation::ToldOtherwise { job }]);
}

#[test]
fn a_confirmed_job_without_a_reply_is_unanswered() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    history.promises.waits.remove(&job);
    history.replies.retain(|reply| reply.job_id != job);
    assert_eq!(history.violations(), [Violation::Unanswered { job }]);
}

#[test]
fn an_emulated_device_says_so() {
    let mut history = sound();
    let job = history.known[0].job.job_id;
    history.known[0].attempts[0].emulated = None;
    assert_eq!(history.violations(), [Violation::Unlabelled { job, attempt: 1 }]);
}
