use gpufleet_schema::{
    AttemptState, Event, JobId, JobState,
    bounds::{LABELS_MAX, TEXT_BYTES_MAX},
};
use proptest::prelude::*;

use super::*;

// Shared with the tests that use a database.
#[path = "../../../tests/postgres/histories.rs"]
mod histories;

use histories::{expected, finished, id, info, shuffled, started};

fn merged(events: &[Event]) -> Changes {
    let mut changes = Changes::default();
    for event in events {
        changes.add(event).unwrap();
    }
    changes
}

proptest! {
    #[test]
    fn merged_events_have_the_effect_of_single_events(events in shuffled(true)) {
        let changes = merged(&events);
        let expected = expected(&events);
        prop_assert_eq!(changes.jobs.len(), expected.len());
        for (job_id, change) in &changes.jobs {
            let expected = &expected[&job_id.as_uuid()];
            prop_assert_eq!(*change.state(), expected.state);
            prop_assert_eq!(change.progress.attempt.unsigned_abs(), expected.attempts);
            prop_assert_eq!(change.outcome.map(|outcome| outcome.attempt.unsigned_abs()), expected.final_attempt);
            prop_assert_eq!(change.outcome.map(|outcome| outcome.finished_at), expected.finished_at);
            // The table's row leaves out a start after the outcome.
            let end = expected.finished_at;
            let started_at = change.started_at.filter(|at| end.is_none_or(|end| *at <= end));
            prop_assert_eq!(started_at, expected.started_at);
            prop_assert_eq!(change.info.is_some(), expected.described);
        }
        for ((job_id, attempt), change) in &changes.attempts {
            let state = change.end.as_ref().map_or(AttemptState::Running, |end| end.state);
            prop_assert_eq!(state, expected[&job_id.as_uuid()].ends[&attempt.unsigned_abs()].0);
        }
    }

    #[test]
    fn without_rival_outcomes_the_order_makes_no_difference(
        (events, again) in shuffled(false).prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle())),
    ) {
        prop_assert_eq!(merged(&events), merged(&again));
    }
}

const AT: i64 = 1_763_164_800_000;

fn change_of(events: &[Event], job_id: JobId) -> JobChange {
    merged(events).jobs[&job_id].clone()
}

#[test]
fn a_late_start_does_not_set_a_lost_attempt_running_again() {
    let job = info(id(1, 1, Some(AT)), AT);
    let lost = finished(job.job_id, 1, AttemptState::Lost, AT + 9);
    let start = started(&job, 1, AT + 1);
    let change = change_of(&[lost, start], job.job_id);
    assert_eq!(change.progress, Progress { attempt: 1, ended: true });
    assert_eq!(change.outcome, None);
}

#[test]
fn the_second_of_two_outcomes_changes_nothing() {
    let job_id = id(1, 2, Some(AT));
    let first = finished(job_id, 2, AttemptState::Succeeded, AT + 9);
    let second = finished(job_id, 1, AttemptState::Failed, AT + 5);
    let change = change_of(&[first, second], job_id);
    assert_eq!(change.outcome.map(|outcome| outcome.attempt), Some(2));
}

#[test]
fn an_outcome_replaces_the_loss_of_the_same_attempt() {
    let job_id = id(1, 3, Some(AT));
    let lost = finished(job_id, 1, AttemptState::Lost, AT + 5);
    let succeeded = finished(job_id, 1, AttemptState::Succeeded, AT + 9);
    for (events, replaced) in [([lost.clone(), succeeded.clone()], Some(AttemptState::Lost)), ([succeeded, lost], None)]
    {
        let change = merged(&events).attempts[&(job_id, 1)].clone();
        assert_eq!(change.end.unwrap().state, AttemptState::Succeeded);
        assert_eq!(change.replaced.map(|end| end.state), replaced, "a loss after the outcome changes nothing");
    }
}

#[test]
fn an_event_that_fits_no_column_is_refused_with_the_field() {
    let job_id = id(1, 4, Some(AT));
    let Event::AttemptFinished(event) = finished(job_id, 1, AttemptState::Succeeded, AT) else { unreachable!() };
    let mut huge = event.clone();
    huge.timings.launches_us = vec![i64::MAX as u64, 1];
    let mut slow = event.clone();
    slow.timings.fetch_us = u64::MAX;
    let mut early = event.clone();
    early.at_ms = -1;
    let mut never = event.clone();
    never.started_ms = Some(i64::MIN);
    let mut running = event.clone();
    running.state = AttemptState::Running;
    let mut many = event;
    many.attempt = u32::MAX;
    let events = [
        (huge, "timings.launches_us"),
        (slow, "timings.fetch_us"),
        (early, "at_ms"),
        (never, "started_ms"),
        (running, "state"),
        (many, "attempt"),
    ];
    for (event, field) in events {
        let mut changes = Changes::default();
        let error = changes.add(&Event::AttemptFinished(event)).unwrap_err();
        assert!(error.to_string().starts_with(field), "{error}");
        assert_eq!(changes, Changes::default(), "nothing of it was added");
    }
}

#[test]
fn a_producers_invalid_texts_and_times_do_not_cost_the_outcome() {
    let job_id = id(1, 5, Some(AT));
    for submitted_ms in [i64::MIN, -1, AT * 1_000_000] {
        let text = || "\u{1b}k".repeat(3000);
        let labels = (0..100).map(|index| (format!("{index}{}", text()), text())).collect();
        let job = JobInfo {
            name: Some(text()),
            kernel: text(),
            client: Some(text()),
            submitted_ms: Some(submitted_ms),
            labels,
            ..info(job_id, AT)
        };
        let Event::AttemptFinished(mut end) = finished(job_id, 1, AttemptState::Failed, AT + 9) else { unreachable!() };
        end.timings.queue_us = u64::MAX;
        end.job = Some(Box::new(job.clone()));
        let changes = merged(&[Event::AttemptFinished(end), started(&job, 1, AT + 1)]);
        let change = &changes.jobs[&job_id];
        assert_eq!(*change.state(), JobState::Failed);
        let known = change.info.as_ref().unwrap();
        assert_eq!(known.submitted_at, None, "{submitted_ms}");
        assert_eq!(known.labels.len(), LABELS_MAX);
        let texts = known.labels.iter().flat_map(|(key, value)| [key, value]).chain([&known.kernel]);
        for text in texts.chain(&known.name).chain(&known.client) {
            assert!(text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control), "{text}");
        }
        assert_eq!(changes.attempts[&(job_id, 1)].end.as_ref().unwrap().timings.queue_us, i64::MAX);
    }
}

#[test]
fn the_user_comes_from_workers_and_not_from_producers() {
    let job = id(1, 0, Some(0));
    let told = |user: &str| JobInfo { user_id: Some(user.to_owned()), ..info(job, 0) };
    let submitted = Event::Submitted(Submitted { job: told("forged"), at_ms: 0 });
    let Event::Started(start) = started(&info(job, 0), 1, 0) else { panic!("it is a start") };
    let start = Event::Started(Started { job: told("anna"), ..start });
    for events in [[submitted.clone(), start.clone()], [start, submitted]] {
        let changes = merged(&events);
        let known = changes.jobs[&job].owner.user.as_deref();
        assert_eq!(known, Some("anna"));
    }
}
