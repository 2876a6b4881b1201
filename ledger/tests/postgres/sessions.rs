//! Sessions: what they did is recorded with their attempt, and statistics count only their use of the device.

use chrono::DateTime;
use gpufleet_ledger::{Dimension, HistoryFilter, Ledger, StatisticsFilter, StatisticsRow, recorder::Store};
use gpufleet_schema::{
    AttemptFinished, AttemptState, Event, Failure, FailureCode, JobId, JobInfo, JobState, PrintfOutput,
    SessionProgress, SessionUse, Submitted, Timings, Verdict,
};

use crate::{
    database::Database,
    histories::{self, id, info, ran},
    recorder::{AT, record},
};

/// The time that each session is open.
const OPEN_US: u64 = 3_600_000_000;

fn session(number: u32) -> JobInfo {
    let job_id = id(90, number, Some(AT));
    JobInfo { program: "session".to_owned(), kernel: "python train.py".to_owned(), input_bytes: 0, ..info(job_id, AT) }
}

/// Returns numbers that all differ, so that no two can be confused.
fn used() -> SessionUse {
    SessionUse {
        processes: 2,
        calls: 18_432,
        waits: 512,
        sent_bytes: 96 << 20,
        received_bytes: 4 << 20,
        busy_us: 12_300_000,
        memory_bytes: 8 << 30,
        memory_bytes_peak: 6 << 30,
        exit_code: Some(0),
        signal: None,
    }
}

/// Returns the end of a session that was open for an hour.
fn ended(job: &JobInfo, state: AttemptState, used: Option<SessionUse>, charged_us: Option<u64>) -> Event {
    let Event::AttemptFinished(end) = ran(job, 1, state, AT + 1, AT + 100) else { unreachable!("it is an end") };
    let timings = Timings { queue_us: OPEN_US / 2, total_us: OPEN_US, ..Timings::default() };
    let (session, printf_output) = (used.map(Box::new), None);
    Event::AttemptFinished(AttemptFinished { timings, session, charged_us, printf_output, ..end })
}

/// Returns a report of a session that is open for its first attempt.
fn progress(job: &JobInfo, sequence: u32, used: SessionUse, charged_us: u64) -> Event {
    let Event::Started(started) = histories::started(job, 1, AT + 1) else { unreachable!("it is a start") };
    let at_ms = AT + i64::from(sequence) * 10_000;
    Event::SessionProgress(Box::new(SessionProgress { started, sequence, at_ms, charged_us, session: used }))
}

/// Returns the numbers of an open session after so many calls.
fn so_far(calls: u64) -> SessionUse {
    SessionUse { calls, busy_us: calls, exit_code: None, ..used() }
}

async fn recorded(ledger: &Ledger, job_id: JobId) -> Vec<(AttemptState, Option<SessionUse>)> {
    let detail = ledger.job(job_id).await.unwrap().unwrap();
    detail.attempts.into_iter().map(|attempt| (attempt.state, attempt.session)).collect()
}

/// Returns the device time that statistics have for the session's label.
async fn counted(store: &mut Store, ledger: &Ledger) -> u64 {
    store.upkeep().await.unwrap();
    let rows = statistics(ledger, Dimension::Kernel).await;
    rows.iter().find(|row| row.value == "python train.py").map_or(0, |row| row.charged_us)
}

async fn statistics(ledger: &Ledger, by: Dimension) -> Vec<StatisticsRow> {
    let filter = StatisticsFilter { by: Some(by), since: DateTime::UNIX_EPOCH, pool: None };
    ledger.statistics(&filter).await.unwrap().rows
}

#[tokio::test]
async fn a_session_is_recorded_with_its_numbers_and_listed_under_its_label() {
    let (database, mut store, ledger) = Database::opened().await;
    let job = session(1);
    let killed = SessionUse { exit_code: None, signal: Some(9), ..used() };
    let lost = ended(&job, AttemptState::Lost, Some(killed.clone()), None);
    record(&mut store, std::slice::from_ref(&lost), &[]).await;
    assert_eq!(recorded(&ledger, job.job_id).await, [(AttemptState::Lost, Some(killed))]);
    let end = ended(&job, AttemptState::Succeeded, Some(used()), None);
    // An outcome replaces the loss, and repeated events change nothing.
    for events in [vec![end.clone()], vec![end, lost]] {
        record(&mut store, &events, &[1]).await;
        assert_eq!(recorded(&ledger, job.job_id).await, [(AttemptState::Succeeded, Some(used()))]);
    }
    let filter = HistoryFilter { kernel: Some("python train.py".to_owned()), ..HistoryFilter::default() };
    let listed = ledger.history(&filter).await.unwrap().jobs;
    assert_eq!((listed.len(), listed[0].is_session(), listed[0].state), (1, true, JobState::Succeeded));
    let sum = database.execute("select sum((session ->> 'busy_us')::bigint) from attempts").await;
    assert_eq!(sum.trim(), "12300000");
}

#[tokio::test]
async fn a_host_program_counts_with_the_time_that_its_pool_is_charged_and_keeps_the_end_of_its_output() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = JobInfo { program: "host".to_owned(), ..session(1) };
    let failed = SessionUse { exit_code: Some(3), ..SessionUse::default() };
    let end = ended(&job, AttemptState::Failed, Some(failed.clone()), Some(42_000_000));
    let Event::AttemptFinished(end) = end else { unreachable!("it is an end") };
    let output = PrintfOutput { text: "epoch 90\n".to_owned(), dropped_bytes: 70_000, is_tail: true };
    let end = Event::AttemptFinished(AttemptFinished { printf_output: Some(output.clone()), ..end });
    record(&mut store, &[end], &[]).await;
    assert_eq!(counted(&mut store, &ledger).await, 42_000_000);
    assert_eq!(recorded(&ledger, job.job_id).await, [(AttemptState::Failed, Some(failed))]);
    let detail = ledger.job(job.job_id).await.unwrap().unwrap();
    assert!(detail.job.is_host_program() && !detail.job.is_session());
    assert_eq!(detail.attempts[0].printf_output, Some(output), "it is known to be the end");
}

#[tokio::test]
async fn the_lease_that_a_session_asks_for_is_known_while_it_waits() {
    let (_, mut store, ledger) = Database::opened().await;
    let leases = [Some(8 << 30), None, Some(u64::MAX)];
    let jobs: Vec<JobInfo> = leases
        .iter()
        .zip(1..)
        .map(|(lease_bytes, number)| JobInfo { lease_bytes: *lease_bytes, ..session(number) })
        .collect();
    let events: Vec<Event> =
        jobs.iter().map(|job| Event::Submitted(Submitted { job: job.clone(), at_ms: AT })).collect();
    record(&mut store, &events, &[]).await;
    for (job, lease) in jobs.iter().zip([Some(8 << 30), None, None]) {
        assert_eq!(ledger.job(job.job_id).await.unwrap().unwrap().job.lease_bytes, lease, "a wild number is left out");
    }
    // A later event of an old worker does not name it.
    let end = ended(&JobInfo { lease_bytes: None, ..jobs[0].clone() }, AttemptState::Succeeded, Some(used()), None);
    record(&mut store, &[end], &[]).await;
    let listed = ledger.history(&HistoryFilter::default()).await.unwrap().jobs;
    let ended = listed.iter().find(|job| job.job_id == jobs[0].job_id).unwrap();
    assert_eq!((&ended.state, ended.lease_bytes), (&JobState::Succeeded, Some(8 << 30)));
}

#[tokio::test]
async fn a_session_that_was_never_open_and_one_of_an_old_worker_have_no_numbers() {
    let (_, mut store, ledger) = Database::opened().await;
    let jobs = [session(1), info(id(90, 2, Some(AT)), AT)];
    let events = jobs.each_ref().map(|job| ended(job, AttemptState::Failed, None, None));
    record(&mut store, &events, &[]).await;
    for job in &jobs {
        assert_eq!(recorded(&ledger, job.job_id).await, [(AttemptState::Failed, None)]);
    }
}

#[tokio::test]
async fn numbers_beyond_sixty_three_bits_are_refused_alone() {
    let (_, mut store, ledger) = Database::opened().await;
    let largest = SessionUse {
        processes: u32::MAX,
        calls: i64::MAX as u64,
        busy_us: i64::MAX as u64,
        exit_code: Some(i32::MIN),
        ..used()
    };
    let wild = [
        SessionUse { calls: u64::MAX, ..used() },
        SessionUse { received_bytes: 1 << 63, ..used() },
        SessionUse { memory_bytes_peak: u64::MAX, ..used() },
    ];
    let uses = [largest.clone()].into_iter().chain(wild);
    let events: Vec<Event> = uses
        .zip(1..)
        .map(|(used, number)| ended(&session(number), AttemptState::Succeeded, Some(used), None))
        .collect();
    let rejected = store.record(&events).await.unwrap();
    let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
    assert_eq!(rejected.len(), 3, "{reasons:?}");
    for (reason, field) in reasons.iter().zip(["session.calls", "session.received_bytes", "session.memory_bytes_peak"])
    {
        assert!(reason.contains(field), "{reason}");
    }
    assert_eq!(recorded(&ledger, session(1).job_id).await, [(AttemptState::Succeeded, Some(largest))]);
}

#[tokio::test]
async fn statistics_count_a_session_only_by_the_time_that_its_device_worked_for_it() {
    use AttemptState::{Expired, Failed, Lost, Succeeded};
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(90, 50, Some(AT)), AT);
    let at_work = ran(&job, 1, Succeeded, AT + 1, AT + 100);
    record(&mut store, &[at_work], &[]).await;
    let before = statistics(&ledger, Dimension::Pool).await;
    let failed = |end| match end {
        Event::AttemptFinished(end) => {
            let failure = Some(Failure::new(Verdict::User, FailureCode::ProgramFailed, "the program exited with 3"));
            Event::AttemptFinished(AttemptFinished { failure, ..end })
        }
        other => other,
    };
    let events = [
        // A charge counts, and without one the busy time does.
        ended(&session(1), Succeeded, Some(used()), Some(5_000_000)),
        failed(ended(&session(2), Failed, Some(used()), None)),
        // These used nothing.
        ended(&session(3), Expired, None, None),
        ended(&session(4), Lost, None, None),
    ];
    for _ in 0..2 {
        record(&mut store, &events, &[1, 3]).await;
        let rows = statistics(&ledger, Dimension::Pool).await;
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        let sessions_us = 5_000_000 + used().busy_us;
        let expected = StatisticsRow {
            device_us: before[0].device_us + sessions_us,
            charged_us: before[0].charged_us + sessions_us,
            ..before[0].clone()
        };
        assert_eq!(*row, expected, "neither outcomes nor times have changed");
        let by_kernel = statistics(&ledger, Dimension::Kernel).await;
        let of = |value: &str| by_kernel.iter().find(|row| row.value == value).map(|row| (row.jobs, row.charged_us));
        assert_eq!(of("python train.py"), Some((0, sessions_us)));
        assert_eq!(of("saxpy").map(|(jobs, _)| jobs), Some(1));
        store.upkeep().await.unwrap();
    }
}

#[tokio::test]
async fn a_session_without_use_adds_no_row_to_the_statistics() {
    let (database, mut store, ledger) = Database::opened().await;
    record(&mut store, &[ended(&session(1), AttemptState::Expired, None, None)], &[]).await;
    assert_eq!(database.execute("select count(*) from rollup_deltas").await.trim(), "0");
    assert_eq!(statistics(&ledger, Dimension::Kernel).await, []);
}

#[tokio::test]
async fn an_open_session_has_the_numbers_of_its_latest_report_whatever_arrives_first() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = session(1);
    let reports = [1, 2, 3].map(|sequence| progress(&job, sequence, so_far(sequence.into()), sequence.into()));
    let [first, second, third] = reports;
    let running = |calls| [(AttemptState::Running, Some(so_far(calls)))];
    // The start is in each report.
    record(&mut store, std::slice::from_ref(&second), &[]).await;
    assert_eq!(recorded(&ledger, job.job_id).await, running(2));
    let detail = ledger.job(job.job_id).await.unwrap().unwrap();
    assert_eq!((&detail.job.state, detail.job.program.as_deref()), (&JobState::Running, Some("session")));
    assert!(detail.attempts[0].started_at.is_some() && detail.attempts[0].charged_us == Some(2));
    for late in [&first, &second] {
        record(&mut store, std::slice::from_ref(late), &[]).await;
        assert_eq!(recorded(&ledger, job.job_id).await, running(2));
    }
    record(&mut store, &[third.clone(), first.clone()], &[]).await;
    assert_eq!(recorded(&ledger, job.job_id).await, running(3));
    let end = ended(&job, AttemptState::Succeeded, Some(used()), Some(9));
    for events in [vec![end.clone()], vec![third.clone()], vec![end, third]] {
        record(&mut store, &events, &[1]).await;
        assert_eq!(recorded(&ledger, job.job_id).await, [(AttemptState::Succeeded, Some(used()))]);
    }
}

#[tokio::test]
async fn the_device_time_of_a_session_counts_once_whether_it_was_reported_before_its_end_or_not() {
    let job = session(1);
    let report = |sequence, charged_us| progress(&job, sequence, so_far(charged_us), charged_us);
    let end = || ended(&job, AttemptState::Succeeded, Some(used()), Some(100));
    for (events, sums) in [
        (vec![report(1, 30), report(2, 70), end()], [30, 70, 100]),
        (vec![report(2, 70), report(1, 30), end()], [70, 70, 100]),
        (vec![end(), report(1, 30), report(2, 70)], [100, 100, 100]),
    ] {
        let (_, mut store, ledger) = Database::opened().await;
        for (event, sum) in events.iter().zip(sums) {
            for _ in 0..2 {
                record(&mut store, std::slice::from_ref(event), &[]).await;
                assert_eq!(counted(&mut store, &ledger).await, sum);
            }
        }
        let (_, mut store, ledger) = Database::opened().await;
        record(&mut store, &events, &[]).await;
        assert_eq!(counted(&mut store, &ledger).await, 100, "in one batch");
    }
}

#[tokio::test]
async fn the_device_time_of_a_session_whose_worker_died_counts() {
    let (_, mut store, ledger) = Database::opened().await;
    let job = session(1);
    record(&mut store, &[progress(&job, 1, so_far(40), 40)], &[]).await;
    let Event::AttemptFinished(lost) = ended(&job, AttemptState::Failed, None, None) else { unreachable!() };
    let failure = Some(Failure::new(Verdict::Infrastructure, FailureCode::ExecutorLost, "its session is lost"));
    let lost = Event::AttemptFinished(AttemptFinished { attempt: 2, failure, started_ms: None, ..lost });
    record(&mut store, &[lost], &[]).await;
    assert_eq!(counted(&mut store, &ledger).await, 40);
    // A report that waited for the recorder.
    record(&mut store, &[progress(&job, 2, so_far(50), 50)], &[]).await;
    assert_eq!(counted(&mut store, &ledger).await, 50);
    let attempts = recorded(&ledger, job.job_id).await;
    assert_eq!(attempts, [(AttemptState::Running, Some(so_far(50))), (AttemptState::Failed, None)]);
    assert_eq!(ledger.job(job.job_id).await.unwrap().unwrap().job.state, JobState::Failed);
}

#[tokio::test]
async fn a_report_with_numbers_that_no_column_holds_is_refused_alone() {
    let (_, mut store, ledger) = Database::opened().await;
    let good = progress(&session(1), 1, so_far(1), 1);
    let wild = [
        progress(&session(2), 1, SessionUse { calls: u64::MAX, ..used() }, 1),
        progress(&session(2), 1, used(), u64::MAX),
        progress(&session(2), u32::MAX, used(), 1),
    ];
    let events: Vec<Event> = [good].into_iter().chain(wild).collect();
    let rejected = store.record(&events).await.unwrap();
    let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
    for (reason, field) in reasons.iter().zip(["session.calls", "charged_us", "sequence"]) {
        assert!(reason.contains(field), "{reasons:?}");
    }
    assert_eq!((reasons.len(), recorded(&ledger, session(1).job_id).await.len()), (3, 1));
}
