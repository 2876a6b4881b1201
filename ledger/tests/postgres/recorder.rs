//! The recorder's statements on a real Postgres. Events give the same rows in any order, in any batches and when repeated; the
//! first outcome stays; one bad event does not affect its neighbours.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_ledger::{AttemptRow, HistoryFilter, JobDetail, Ledger, WorkerFilter, recorder::Store};
use gpufleet_schema::{
    AttemptFinished, AttemptState, BlobDigest, Dtype, Event, Excerpt, Failure, FailureCode, JobId, JobInfo, JobState,
    KeptData, KeptOutput, KeptOutputs, PrintfOutput, RanOn, Verdict,
    bounds::{BUFFERS_MAX, DIMENSIONS_MAX, EXCERPT_BYTES_MAX, KEPT_INLINE_BYTES_MAX, PRINTF_OUTPUT_BYTES_MAX},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::sync::Mutex;

use crate::{
    database::Database,
    histories::{self, expected, finished, heartbeat, id, info, shuffled, started},
};

pub(crate) const AT: i64 = 1_763_164_800_000;

/// Records events in batches that end at `cuts`.
pub(crate) async fn record(store: &mut Store, events: &[Event], cuts: &[usize]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (events.len() + 1)).chain([0, events.len()]).collect();
    cuts.sort_unstable();
    for range in cuts.windows(2) {
        let rejected = store.record(&events[range[0]..range[1]]).await.unwrap();
        assert_eq!(rejected, []);
    }
}

/// Returns the rows without `heard_at`, because replayed heartbeats that are a second apart may look like fresh ones.
async fn jobs(ledger: &Ledger, events: &[Event]) -> BTreeMap<String, JobDetail> {
    let mut jobs = BTreeMap::new();
    for job_id in expected(events).into_keys().map(JobId::from_uuid) {
        let mut detail = ledger.job(job_id).await.unwrap().expect("every job named is recorded");
        detail.job.is_unheard = false;
        detail.attempts.iter_mut().for_each(|attempt| attempt.is_unheard = false);
        jobs.insert(job_id.to_string(), detail);
    }
    jobs
}

fn check(detail: &JobDetail, expected: &histories::Expected) {
    let job = &detail.job;
    assert_eq!(job.state, expected.state, "{detail:#?}");
    assert_eq!(job.attempts as usize, expected.ends.len());
    assert_eq!(job.started_at, expected.started_at);
    assert_eq!(job.finished_at, expected.finished_at);
    assert_eq!(job.kernel.is_some(), expected.described);
    if expected.final_attempt.is_some() {
        assert_eq!(job.attempt, expected.final_attempt);
    }
    let ends: BTreeMap<u32, (AttemptState, bool)> =
        detail.attempts.iter().map(|attempt| (attempt.attempt, (attempt.state, attempt.superseded))).collect();
    assert_eq!(ends, expected.ends);
    for AttemptRow { attempt, state, timings, failure, printf_output, .. } in &detail.attempts {
        let has_ended = *state != AttemptState::Running;
        assert_eq!(*timings, has_ended.then(|| histories::timings(*attempt)));
        assert_eq!(*printf_output, histories::printed(*attempt, *state).filter(|_| has_ended));
        assert_eq!(failure.is_some(), !matches!(state, AttemptState::Running | AttemptState::Succeeded));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_in_any_order_and_batching_obey_the_rules() {
    let (_, store, ledger) = Database::opened().await;
    let store = Mutex::new(store);
    let cases = (shuffled(true), proptest::collection::vec(any::<usize>(), 0..4));
    let mut runner = TestRunner::new(Config { cases: 48, ..Config::default() });
    tokio::task::block_in_place(|| {
        runner.run(&cases, |(events, cuts)| {
            tokio::runtime::Handle::current().block_on(async {
                let mut store = store.lock().await;
                record(&mut store, &events, &cuts).await;
                let recorded = jobs(&ledger, &events).await;
                for (job_id, expected) in expected(&events) {
                    check(&recorded[&job_id.to_string()], &expected);
                }
                // All events again, in reverse order: the rows do not change.
                let again: Vec<Event> = events.iter().rev().cloned().collect();
                record(&mut store, &again, &cuts).await;
                assert_eq!(jobs(&ledger, &events).await, recorded);
            });
            Ok(())
        })
    })
    .unwrap();
}

/// A redelivered message can run after its job was cancelled in the queue.
#[tokio::test]
async fn a_start_after_the_outcome_does_not_start_the_job() {
    let (_, mut store, ledger) = Database::opened().await;
    for (index, cuts) in [(0, &[][..]), (1, &[1])] {
        for order in [[0, 1], [1, 0]] {
            let job_id = id(order[0], index, Some(AT));
            let events =
                [finished(job_id, 1, AttemptState::Cancelled, AT + 100), started(&info(job_id, AT), 2, AT + 200)];
            record(&mut store, &order.map(|event: u64| events[usize::try_from(event).unwrap()].clone()), cuts).await;
            let job = ledger.job(job_id).await.unwrap().unwrap().job;
            assert_eq!((job.state, job.attempt, job.started_at), (JobState::Cancelled, Some(1), None));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rival_outcomes_two_orders_give_identical_tables() {
    let (one, other) = tokio::join!(Database::fresh(), Database::fresh());
    let ((store, _), (other_store, _)) = tokio::join!(one.open(), other.open());
    let (store, other_store) = (Mutex::new(store), Mutex::new(other_store));
    let orders = shuffled(false).prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle()));
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    tokio::task::block_in_place(|| {
        runner.run(&orders, |(events, again)| {
            tokio::runtime::Handle::current().block_on(async {
                record(&mut *store.lock().await, &events, &[3, 9]).await;
                record(&mut *other_store.lock().await, &again, &[5]).await;
            });
            Ok(())
        })
    })
    .unwrap();
    // Only `heard_at` differs.
    let workers =
        "(select worker, first_seen_at, last_seen_at, host, pid, revision, pools, jobs_running, has_left from workers)";
    // The key of a job without a time is the time of the event that came first.
    let jobs = "(select to_jsonb(jobs) - 'id_at' from jobs)";
    let attempts = "(select to_jsonb(attempts) - 'id_at' from attempts)";
    for table in [jobs, attempts, workers, "devices"] {
        let (rows, other_rows) = (one.rows(table).await, other.rows(table).await);
        assert!(!rows.is_empty(), "{table}");
        assert_eq!(rows, other_rows, "{table}");
    }
}

#[tokio::test]
async fn the_first_final_outcome_wins_and_a_later_one_is_superseded() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(1, 0, Some(AT)), AT);
    let first =
        [started(&job, 1, AT + 1), started(&job, 2, AT + 9), finished(job.job_id, 2, AttemptState::Succeeded, AT + 20)];
    let late = [finished(job.job_id, 1, AttemptState::Failed, AT + 30)];
    record(&mut store, &first, &[]).await;
    let before = ledger.job(job.job_id).await.unwrap().unwrap();
    record(&mut store, &late, &[]).await;
    let after = ledger.job(job.job_id).await.unwrap().unwrap();
    assert_eq!(after.job, before.job, "a final never changes");
    assert_eq!(after.job.state, JobState::Succeeded);
    assert_eq!(after.job.attempt, Some(2));
    let superseded: Vec<_> = after.attempts.iter().map(|row| (row.attempt, row.state, row.superseded)).collect();
    assert_eq!(superseded, [(1, AttemptState::Failed, true), (2, AttemptState::Succeeded, false)]);
}

#[tokio::test]
async fn a_failures_lines_are_kept_within_bounds_and_shown_with_its_attempt() {
    let (_, mut store, ledger) = Database::opened().await;
    let program: String = (1..10).map(|line| format!("line {line}\0\n")).collect();
    let fault = Failure::new(Verdict::User, FailureCode::KernelFault, "illegal address").at_line(Some(7));
    let quoted = fault.clone().in_program(&program);
    // From a sender that ignores the bounds.
    let endless = Excerpt { first_line: 4, text: "x".repeat(EXCERPT_BYTES_MAX + 1) };
    let cases = [quoted, Failure { source: Some(endless), ..fault.clone() }, fault.clone().at_line(None)];
    let mut shown = Vec::new();
    for (failure, number) in cases.into_iter().zip(1..) {
        let job = info(id(number, 0, Some(AT)), AT);
        let Event::AttemptFinished(end) = finished(job.job_id, 1, AttemptState::Failed, AT + 5) else { unreachable!() };
        record(&mut store, &[Event::AttemptFinished(AttemptFinished { failure: Some(failure), ..end })], &[]).await;
        let detail = ledger.job(job.job_id).await.unwrap().unwrap();
        assert_eq!(detail.job.failure.unwrap().source, None, "lists stay short");
        shown.push(detail.attempts[0].failure.clone().unwrap().source);
    }
    let lines: Vec<String> = (4..10).map(|line| format!("line {line}\u{fffd}")).collect();
    assert_eq!(shown[0], Some(Excerpt { first_line: 4, text: lines.join("\n") }));
    assert_eq!(shown[1].as_ref().unwrap().text.len(), EXCERPT_BYTES_MAX);
    assert_eq!(shown[2], None);
}

#[tokio::test]
async fn an_attempts_output_is_kept_with_its_recorded_end_and_within_bounds() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(1, 0, Some(AT)), AT);
    let end = |state, at_ms, printf_output| match finished(job.job_id, 1, state, at_ms) {
        Event::AttemptFinished(end) => Event::AttemptFinished(AttemptFinished { printf_output, ..end }),
        other => other,
    };
    let text = |text: &str| Some(PrintfOutput { text: text.to_owned(), dropped_bytes: 7, is_tail: false });
    let lost = end(AttemptState::Lost, AT + 5, text("half of it"));
    // From a sender that ignores the bounds.
    let endless = PrintfOutput { text: "\0".repeat(PRINTF_OUTPUT_BYTES_MAX), dropped_bytes: u64::MAX, is_tail: false };
    let ended = end(AttemptState::Succeeded, AT + 9, Some(endless.clone()));
    let later = end(AttemptState::Failed, AT + 12, text("a rival"));
    let recorded = async || ledger.job(job.job_id).await.unwrap().unwrap().attempts[0].printf_output.clone();
    record(&mut store, std::slice::from_ref(&lost), &[]).await;
    assert_eq!(recorded().await, text("half of it"));
    for events in [vec![ended.clone()], vec![later, ended, lost]] {
        record(&mut store, &events, &[]).await;
        let kept = recorded().await.unwrap();
        assert_eq!(kept.text, endless.recordable().unwrap().text);
        assert!(kept.text.len() <= PRINTF_OUTPUT_BYTES_MAX && kept.text.starts_with('\u{fffd}'));
        assert_eq!(kept.dropped_bytes, i64::MAX as u64);
    }
    let second = info(id(2, 0, Some(AT)), AT);
    record(&mut store, &[started(&second, 1, AT)], &[]).await;
    assert_eq!(ledger.job(second.job_id).await.unwrap().unwrap().attempts[0].printf_output, None);
}

#[tokio::test]
async fn the_outputs_of_the_outcome_are_kept_and_no_others() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(1, 0, Some(AT)), AT);
    let later_than_now = 4_000_000_000_000;
    let end = |attempt, state, value: u8| match finished(job.job_id, attempt, state, AT + 5) {
        Event::AttemptFinished(end) => {
            let output = |name: &str, shape, data| KeptOutput { name: name.into(), dtype: Dtype::U8, shape, data };
            let inline = output("y", vec![1, 2], KeptData::Inline(vec![value; 2]));
            let blob = output("z\0", vec![7], KeptData::Blob(BlobDigest::of(&[value; 7])));
            let kept = Some(Box::new(KeptOutputs { expires_ms: later_than_now, outputs: vec![inline, blob] }));
            Event::AttemptFinished(AttemptFinished { kept, ..end })
        }
        other => other,
    };
    let outcome = end(1, AttemptState::Succeeded, 1);
    let rivals = [end(2, AttemptState::Succeeded, 2), end(1, AttemptState::Failed, 3)];
    for events in [vec![outcome.clone()], rivals.to_vec(), [&rivals[..], &[outcome]].concat()] {
        record(&mut store, &events, &[]).await;
        let detail = ledger.job(job.job_id).await.unwrap().unwrap();
        let names: Vec<_> =
            detail.outputs.iter().map(|output| (&*output.name, &*output.shape, output.digest)).collect();
        assert_eq!(names, [("y", &[1, 2][..], None), ("z\u{fffd}", &[7][..], Some(BlobDigest::of(&[1; 7])))]);
        assert!(detail.outputs.iter().all(|output| output.dtype == Dtype::U8 && !output.is_expired));
        assert_eq!(ledger.output_bytes(job.job_id, "y").await.unwrap(), Some(vec![1; 2]));
        assert_eq!(ledger.output_bytes(job.job_id, "x").await.unwrap(), None);
    }
    let failed = info(id(2, 0, Some(AT)), AT);
    record(&mut store, &[finished(failed.job_id, 1, AttemptState::Failed, AT + 5)], &[]).await;
    assert_eq!(ledger.job(failed.job_id).await.unwrap().unwrap().outputs, []);
}

#[tokio::test]
async fn an_output_can_be_read_until_it_expires_and_its_bytes_are_freed() {
    let (database, mut store, ledger) = Database::opened().await;
    let job_ids = [1, 2].map(|number| info(id(number, 0, Some(AT)), AT).job_id);
    for (job_id, expires_ms) in job_ids.into_iter().zip([AT + 6, 4_000_000_000_000]) {
        let Event::AttemptFinished(end) = finished(job_id, 1, AttemptState::Succeeded, AT + 5) else { unreachable!() };
        let output = KeptOutput { name: "y".into(), dtype: Dtype::U8, shape: vec![1], data: KeptData::Inline(vec![7]) };
        let kept = Some(Box::new(KeptOutputs { expires_ms, outputs: vec![output] }));
        record(&mut store, &[Event::AttemptFinished(AttemptFinished { kept, ..end })], &[]).await;
    }
    let [expired, live] = job_ids;
    let with_bytes = async || database.execute("select count(*) from job_outputs where data is not null").await;
    assert_eq!(with_bytes().await.trim(), "2");
    for _ in 0..2 {
        let detail = ledger.job(expired).await.unwrap().unwrap();
        assert!(detail.outputs[0].is_expired);
        assert_eq!(detail.outputs[0].expires_at.timestamp_millis(), AT + 6);
        assert_eq!(ledger.output_bytes(expired, "y").await.unwrap(), None);
        assert_eq!(ledger.output_bytes(live, "y").await.unwrap(), Some(vec![7]));
        store.upkeep().await.unwrap();
    }
    assert_eq!(with_bytes().await.trim(), "1");
}

#[tokio::test]
async fn a_forged_event_with_too_many_kept_bytes_is_recorded_without_them() {
    let (_, mut store, ledger) = Database::opened().await;
    let job_id = info(id(1, 0, Some(AT)), AT).job_id;
    let Event::AttemptFinished(end) = finished(job_id, 1, AttemptState::Succeeded, AT + 5) else { unreachable!() };
    let output = |name: &str, bytes: u64| KeptOutput {
        name: name.into(),
        dtype: Dtype::U8,
        shape: vec![1; 2 * DIMENSIONS_MAX],
        data: KeptData::Inline(vec![7; bytes as usize]),
    };
    let mut outputs = vec![output("most", KEPT_INLINE_BYTES_MAX), output("more", 1)];
    outputs.resize(2 * BUFFERS_MAX, output("none", 0));
    let kept = Some(Box::new(KeptOutputs { expires_ms: 4_000_000_000_000, outputs }));
    record(&mut store, &[Event::AttemptFinished(AttemptFinished { kept, ..end })], &[]).await;
    let detail = ledger.job(job_id).await.unwrap().unwrap();
    assert_eq!(detail.job.state, JobState::Succeeded);
    assert_eq!(detail.outputs.len(), BUFFERS_MAX);
    assert_eq!(detail.outputs[0].shape.len(), DIMENSIONS_MAX);
    assert_eq!(ledger.output_bytes(job_id, "most").await.unwrap(), None);
}

#[tokio::test]
async fn an_attempt_with_a_start_after_its_end_keeps_its_first_start() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(6, 0, Some(AT)), AT);
    let told = [
        started(&job, 1, AT + 1),
        finished(job.job_id, 1, AttemptState::Succeeded, AT + 20),
        histories::restarted(&job, 1, AT + 30),
    ];
    record(&mut store, &told, &[1, 2]).await;
    let attempt = &ledger.job(job.job_id).await.unwrap().unwrap().attempts[0];
    assert_eq!(attempt.started_at, Some(histories::time(AT + 1)));
    assert_eq!(attempt.finished_at, Some(histories::time(AT + 20)));
    assert_eq!(attempt.worker, "worker-1");
}

/// The only event of a short job.
#[tokio::test]
async fn the_finished_event_alone_makes_a_complete_record() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = JobInfo { user_id: Some("anna".to_owned()), ..info(id(7, 0, Some(AT)), AT) };
    let end = histories::ran(&job, 1, AttemptState::Succeeded, AT + 3, AT + 9);
    let recorded = async || ledger.job(job.job_id).await.unwrap().unwrap();
    record(&mut store, std::slice::from_ref(&end), &[]).await;
    let detail = recorded().await;
    let (row, attempt) = (&detail.job, &detail.attempts[0]);
    assert_eq!((row.state, row.started_at, row.finished_at), (JobState::Succeeded, at(3), at(9)));
    assert_eq!((attempt.state, attempt.started_at, attempt.finished_at), (AttemptState::Succeeded, at(3), at(9)));
    assert_eq!((row.name.clone(), row.client.clone(), row.submitted_at), (job.name.clone(), job.client.clone(), at(0)));
    assert_eq!(
        (&row.labels, row.kernel.as_deref(), row.user_id.as_deref()),
        (&job.labels, Some("saxpy"), Some("anna"))
    );
    // A `started` event reports the same start, and the end arrives again.
    record(&mut store, &[end, started(&job, 1, AT + 3)], &[]).await;
    assert_eq!(recorded().await, detail);
}

#[tokio::test]
async fn a_second_end_of_an_attempt_changes_only_an_earlier_start() {
    let job = info(id(8, 0, Some(AT)), AT);
    let first = histories::ran(&job, 1, AttemptState::Succeeded, AT + 13, AT + 19);
    let second = histories::ran(&job, 1, AttemptState::Failed, AT + 3, AT + 29);
    for cuts in [vec![], vec![1]] {
        let (_, mut store, ledger) = Database::opened().await;
        record(&mut store, &[first.clone(), second.clone()], &cuts).await;
        let attempt = &ledger.job(job.job_id).await.unwrap().unwrap().attempts[0];
        assert_eq!((attempt.state, attempt.started_at, attempt.finished_at), (AttemptState::Succeeded, at(3), at(19)));
    }
}

fn at(ms: i64) -> Option<DateTime<Utc>> {
    Some(histories::time(AT + ms))
}

#[tokio::test]
async fn an_attempt_keeps_its_device_when_its_workers_name_gets_another_device() {
    let (_, mut store, ledger) = Database::opened().await;
    let (old, new) = (info(id(4, 0, Some(AT)), AT), info(id(4, 1, Some(AT)), AT));
    let emulated = |mut event: Event| {
        device_of(&mut event, "A CPU (emulated)", true);
        event
    };
    let gpu = |mut event: Event| {
        device_of(&mut event, "A GPU", false);
        event
    };
    let ends = |job_id| finished(job_id, 1, AttemptState::Succeeded, AT + 9);
    let before = [emulated(heartbeat(1, 1, true)), emulated(started(&old, 1, AT + 1)), emulated(ends(old.job_id))];
    record(&mut store, &before, &[1, 2]).await;
    let label = async |job_id| {
        let detail = ledger.job(job_id).await.unwrap().unwrap();
        let of_job = (detail.job.worker.unwrap(), detail.job.device_name, detail.job.emulated);
        let attempt = detail.attempts.into_iter().next().unwrap();
        assert_eq!((attempt.worker, attempt.device_name, attempt.emulated), of_job, "an attempt says it like its job");
        let page = ledger.history(&HistoryFilter::default()).await.unwrap();
        let listed = page.jobs.into_iter().find(|job| job.job_id == job_id).unwrap();
        assert_eq!((listed.worker.unwrap(), listed.device_name, listed.emulated), of_job, "a list says it too");
        (of_job.1.unwrap(), of_job.2.unwrap())
    };
    let was = ("A CPU (emulated)".to_owned(), true);
    assert_eq!(label(old.job_id).await, was);

    // The machine got a GPU, and the worker kept its name.
    record(&mut store, &[gpu(heartbeat(1, 3, false)), gpu(started(&new, 1, AT + 20))], &[1]).await;
    assert_eq!(ledger.workers(&WorkerFilter::default()).await.unwrap()[0].devices[0].name, "A GPU");
    assert_eq!(label(new.job_id).await, ("A GPU".to_owned(), false), "also while it runs");
    assert_eq!(label(old.job_id).await, was);
    record(&mut store, &before, &[]).await;
    record(&mut store, &[gpu(ends(new.job_id))], &[]).await;
    assert_eq!(label(new.job_id).await, ("A GPU".to_owned(), false));
    assert_eq!(label(old.job_id).await, was);
}

fn device_of(event: &mut Event, name: &str, emulated: bool) {
    let told = RanOn { device_name: name.to_owned(), emulated, ..histories::ran_on(1) };
    match event {
        Event::Started(event) => event.ran_on = Some(told),
        Event::AttemptFinished(event) => event.ran_on = Some(told),
        Event::WorkerSeen(event) => {
            for device in &mut event.devices {
                (device.name, device.emulated) = (name.to_owned(), emulated);
            }
        }
        Event::Submitted(_) | Event::Action(_) | Event::SessionProgress(_) | Event::Later(_) => {}
    }
}

#[tokio::test]
async fn an_attempt_of_a_worker_that_reports_no_device_has_none() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(5, 0, Some(AT)), AT);
    let mut end = finished(job.job_id, 1, AttemptState::Succeeded, AT + 9);
    let Event::AttemptFinished(event) = &mut end else { unreachable!() };
    event.ran_on = None;
    record(&mut store, &[heartbeat(1, 1, false), end], &[]).await;
    let attempt = &ledger.job(job.job_id).await.unwrap().unwrap().attempts[0];
    assert_eq!((attempt.worker.as_str(), attempt.device), ("worker-1", Some(1)));
    assert_eq!((&attempt.device_name, attempt.emulated), (&None, None));
}

#[tokio::test]
async fn a_bad_event_is_named_and_its_neighbours_are_recorded() {
    let (_, mut store, ledger) = Database::opened().await;
    let jobs: Vec<JobId> = (0..100).map(|index| id(2, index, Some(AT))).collect();
    let mut events: Vec<Event> =
        jobs.iter().map(|job_id| finished(*job_id, 1, AttemptState::Succeeded, AT + 1)).collect();
    // Attempts count from 1, which only the table checks. The other event fits no column.
    events[37] = finished(jobs[37], 0, AttemptState::Succeeded, AT + 1);
    events[70] = finished(jobs[70], 1, AttemptState::Succeeded, -5);
    let rejected = store.record(&events).await.unwrap();
    let named: Vec<&Event> = rejected.iter().map(|rejected| &rejected.event).collect();
    assert_eq!(named, [&events[70], &events[37]]);
    assert!(rejected[0].reason.contains("at_ms is -5"), "{}", rejected[0].reason);
    assert!(rejected[1].reason.contains("attempt_is_counted"), "{}", rejected[1].reason);
    for (index, job_id) in jobs.iter().enumerate() {
        assert_eq!(ledger.job(*job_id).await.unwrap().is_some(), !matches!(index, 37 | 70), "{index}");
    }
}

#[tokio::test]
async fn attempts_are_counted_and_not_taken_from_their_numbers() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(4, 0, Some(AT)), AT);
    // The job left its list without a start, and ran alone.
    record(&mut store, &[started(&job, 17, AT)], &[]).await;
    let listed = &ledger.history(&HistoryFilter::default()).await.unwrap().jobs[0];
    let shown = ledger.job(job.job_id).await.unwrap().unwrap().job;
    assert_eq!((listed.attempts, listed.attempt), (1, Some(17)));
    assert_eq!((shown.attempts, shown.attempt), (1, Some(17)));
}

#[tokio::test]
async fn a_job_that_never_started_is_described_by_its_end() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = JobInfo { user_id: Some("anna".to_owned()), ..info(id(4, 0, Some(AT)), AT) };
    let end = match finished(job.job_id, 1, AttemptState::Failed, AT + 5) {
        Event::AttemptFinished(end) => {
            Event::AttemptFinished(AttemptFinished { job: Some(Box::new(job.clone())), ..end })
        }
        other => other,
    };
    record(&mut store, &[end], &[]).await;
    let row = ledger.job(job.job_id).await.unwrap().unwrap().job;
    assert_eq!((row.user_id.as_deref(), row.kernel.as_deref()), (Some("anna"), Some("saxpy")));
    assert_eq!((row.state, row.started_at), (JobState::Failed, None));
}

/// Each recorder gets every event, in its own order and in batches of its own size, as after redeliveries.
#[tokio::test(flavor = "multi_thread")]
async fn two_recorders_of_the_same_jobs_wait_for_each_other_and_lose_none() {
    const JOBS: u32 = 400;
    let database = Database::fresh().await;
    let blob = |number: u32| format!("sha256:{number:064x}").parse().unwrap();
    let job = |number: u32| JobInfo {
        blobs: vec![blob(number), blob(number / 2)],
        ..info(id(70, number, (!number.is_multiple_of(3)).then_some(AT + i64::from(number))), AT)
    };
    let jobs: Vec<JobInfo> = (0..JOBS).map(job).collect();
    let starts = jobs.iter().map(|job| started(job, 1, AT + 1));
    let ends = jobs.iter().map(|job| finished(job.job_id, 1, AttemptState::Succeeded, AT + 20));
    let forwards: Vec<Event> = starts.chain(ends).collect();
    let backwards: Vec<Event> = forwards.iter().rev().cloned().collect();
    let record = |events: Vec<Event>, size: usize| {
        let url = database.url();
        tokio::spawn(async move {
            let mut store = Store::connect(url).await.unwrap();
            for batch in events.chunks(size) {
                assert_eq!(store.record(batch).await.unwrap(), []);
            }
        })
    };
    let (one, other) = tokio::join!(record(forwards, 37), record(backwards, 53));
    one.unwrap();
    other.unwrap();
    let counts = "select (select count(*) from jobs where state = 'succeeded' and worker = 'worker-1'),
                         (select count(*) from attempts where state = 'succeeded'), (select count(distinct job_id) from job_inputs)";
    assert_eq!(database.execute(counts).await.trim(), format!("{JOBS}|{JOBS}|{JOBS}"));
}
