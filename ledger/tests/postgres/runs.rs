//! Jobs that are submitted again under their id: the ledger keeps each run, counts its device time, and has the outcome of the latest
//! submission.

use std::collections::BTreeSet;

use chrono::DateTime;
use gpufleet_ledger::{Ledger, StatisticsFilter, StatisticsRow};
use gpufleet_schema::{
    AttemptFinished, AttemptState, Dtype, Event, JobId, JobState, KeptData, KeptOutput, KeptOutputs, Submitted,
};

use crate::{
    database::Database,
    histories::{id, info, ran, started},
    recorder::{AT, record},
};

/// Returns the end of the first attempt after a submission at this time. If it succeeded, its output has this value.
fn run(job_id: JobId, submitted_ms: i64, state: AttemptState, value: u8) -> Event {
    // A loss comes before the outcome.
    let after = if state == AttemptState::Lost { 3 } else { 5 };
    let ended = ran(&info(job_id, submitted_ms), 1, state, submitted_ms + 1, submitted_ms + after);
    let Event::AttemptFinished(end) = ended else { unreachable!("it is an end") };
    let data = KeptData::Inline(vec![value]);
    let outputs = vec![KeptOutput { name: "y".into(), dtype: Dtype::U8, shape: vec![1], data }];
    let kept =
        (state == AttemptState::Succeeded).then(|| Box::new(KeptOutputs { expires_ms: 4_000_000_000_000, outputs }));
    Event::AttemptFinished(AttemptFinished { kept, ..end })
}

/// Returns the attempts as (number, state, superseded).
async fn attempts(ledger: &Ledger, job_id: JobId) -> Vec<(u32, AttemptState, bool)> {
    let detail = ledger.job(job_id).await.unwrap().unwrap();
    detail.attempts.iter().map(|row| (row.attempt, row.state, row.superseded)).collect()
}

async fn counted(ledger: &Ledger) -> StatisticsRow {
    let filter = StatisticsFilter { by: None, since: DateTime::UNIX_EPOCH, pool: None };
    ledger.statistics(&filter).await.unwrap().rows.remove(0)
}

#[tokio::test]
async fn a_job_that_failed_and_ran_again_under_its_id_has_succeeded() {
    use AttemptState::{Failed, Succeeded};
    for cuts in [&[][..], &[1]] {
        let (_, mut store, ledger) = Database::opened().await;
        let job_id = id(1, 0, Some(AT));
        let runs = [run(job_id, AT, Failed, 0), run(job_id, AT + 100, Succeeded, 7)];
        // Repeated events add no further runs.
        for events in [runs.to_vec(), runs.to_vec(), runs.iter().rev().cloned().collect()] {
            record(&mut store, &events, cuts).await;
            let detail = ledger.job(job_id).await.unwrap().unwrap();
            assert_eq!((detail.job.state, detail.job.attempt), (JobState::Succeeded, Some(2)));
            assert_eq!(detail.job.finished_at, DateTime::from_timestamp_millis(AT + 105));
            assert_eq!(attempts(&ledger, job_id).await, [(1, Failed, true), (2, Succeeded, false)]);
            assert_eq!(ledger.output_bytes(job_id, "y").await.unwrap(), Some(vec![7]));
        }
        let row = counted(&ledger).await;
        assert_eq!((row.jobs, row.device_us), (1, 2 * 90), "both runs used the device");
    }
}

#[tokio::test]
async fn the_latest_submission_decides_and_within_it_the_first_outcome() {
    use AttemptState::{Failed, Lost, Succeeded};
    let (_, mut store, ledger) = Database::opened().await;
    let job_id = id(1, 0, Some(AT));
    record(&mut store, &[run(job_id, AT, Succeeded, 1)], &[]).await;
    record(&mut store, &[run(job_id, AT + 100, Succeeded, 2)], &[]).await;
    assert_eq!(ledger.output_bytes(job_id, "y").await.unwrap(), Some(vec![2]), "the outputs that were printed last");
    record(&mut store, &[run(job_id, AT + 200, Lost, 0)], &[]).await;
    assert_eq!(ledger.job(job_id).await.unwrap().unwrap().job.state, JobState::Succeeded, "a loss decides nothing");
    record(&mut store, &[run(job_id, AT + 200, Failed, 0), run(job_id, AT + 50, Succeeded, 3)], &[]).await;
    let detail = ledger.job(job_id).await.unwrap().unwrap();
    assert_eq!((detail.job.state, detail.outputs.len()), (JobState::Failed, 0), "as its producer saw it");
    let deciding =
        attempts(&ledger, job_id).await.into_iter().filter(|(_, state, superseded)| *state != Lost && !superseded);
    assert_eq!(deciding.map(|(_, state, _)| state).collect::<Vec<_>>(), [Failed]);
}

#[tokio::test]
async fn a_job_of_several_submissions_is_counted_once_and_keeps_each_run_in_any_order() {
    use AttemptState::{Failed, Lost, Succeeded};
    let runs =
        |job_id| [run(job_id, AT, Lost, 0), run(job_id, AT + 100, Succeeded, 7), run(job_id, AT + 200, Failed, 0)];
    for (order, first) in [([0, 1, 2], Succeeded), ([2, 1, 0], Failed), ([1, 0, 2], Succeeded), ([2, 0, 1], Failed)] {
        for cuts in [&[1, 2][..], &[]] {
            let (_, mut store, ledger) = Database::opened().await;
            let job_id = id(1, 0, Some(AT));
            let events = order.map(|index: usize| runs(job_id)[index].clone());
            record(&mut store, &events, cuts).await;
            let once = (counted(&ledger).await, attempts(&ledger, job_id).await);
            record(&mut store, &events, cuts).await;
            assert_eq!(
                (counted(&ledger).await, attempts(&ledger, job_id).await),
                once,
                "repeated events change nothing"
            );
            let (row, attempts) = once;
            assert_eq!((row.jobs, row.attempts_superseded, row.attempts_lost), (1, 1, 1), "{order:?} {row:?}");
            // In a batch, runs are sorted by their submissions.
            let first = if cuts.is_empty() { None } else { Some(first == Succeeded) };
            assert!(first.is_none_or(|succeeded| row.succeeded == u64::from(succeeded)), "{order:?} {row:?}");
            assert_eq!(attempts.len(), 3, "{order:?} {attempts:?}");
            let detail = ledger.job(job_id).await.unwrap().unwrap();
            let deciding = attempts.iter().find(|(number, ..)| Some(*number) == detail.job.attempt);
            assert!(matches!(deciding, Some((_, Failed, false))), "{order:?} {attempts:?}");
        }
    }
}

/// The description comes from the first submission, whose message was lost or whose run ends last.
#[tokio::test]
async fn a_run_ends_the_attempt_that_it_began_whatever_submission_describes_the_job() {
    use AttemptState::{Failed, Succeeded};
    for earlier_run in [None, Some(Failed)] {
        for cuts in [&[1, 2, 3][..], &[]] {
            let (_, mut store, ledger) = Database::opened().await;
            let job_id = id(2, 0, Some(AT));
            let submitted = Event::Submitted(Submitted { job: info(job_id, AT), at_ms: AT });
            let begun = started(&info(job_id, AT + 100), 1, AT + 101);
            let mut events = vec![submitted, begun, run(job_id, AT + 100, Succeeded, 7)];
            events.extend(earlier_run.map(|state| run(job_id, AT, state, 0)));
            record(&mut store, &events, cuts).await;
            // In a batch, the described submission comes first.
            let attempts = attempts(&ledger, job_id).await;
            assert_eq!(attempts.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [1, 2][..attempts.len()]);
            let ended: BTreeSet<_> =
                attempts.iter().map(|(_, state, superseded)| (state.name(), *superseded)).collect();
            let mut expected = BTreeSet::from([("succeeded", false)]);
            expected.extend(earlier_run.is_some().then_some(("failed", true)));
            assert_eq!(ended, expected);
            assert_eq!(ledger.job(job_id).await.unwrap().unwrap().job.state, JobState::Succeeded);
        }
    }
}
