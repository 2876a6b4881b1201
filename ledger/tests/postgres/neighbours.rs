//! Neighbours: the jobs that may start again if a running job is cancelled.

use gpufleet_ledger::Ledger;
use gpufleet_schema::{AttemptState, Event, JobId, JobInfo, Started, Submitted};

use crate::{
    database::Database,
    histories::{finished, id, info, started, worker},
    recorder::AT,
};

/// A job with this number, and its start on a worker and a device.
fn runs(number: u32, change: impl FnOnce(&mut JobInfo, &mut Started)) -> (JobId, Event) {
    let at = AT + i64::from(number);
    let mut job = info(id(70, number, Some(at)), at);
    let Event::Started(event) = started(&job, 1, at) else { unreachable!("it is a start") };
    let mut start = Started { worker: worker(1), device: 0, ..event };
    change(&mut job, &mut start);
    (job.job_id, Event::Started(Started { job, ..start }))
}

async fn ids(ledger: &Ledger, job_id: JobId) -> Vec<JobId> {
    ledger.neighbours(job_id).await.unwrap().into_iter().map(|neighbour| neighbour.job_id).collect()
}

#[tokio::test]
async fn neighbours_run_on_the_same_worker_and_device_and_in_the_same_pool() {
    let (_database, mut store, ledger) = Database::opened().await;
    let same = |_: &mut JobInfo, _: &mut Started| {};
    let (job, start) = runs(1, same);
    let (later, later_start) = runs(2, |job, _| job.name = None);
    // It was submitted last and started first.
    let (longest, longest_start) = runs(9, |_, start| start.at_ms = AT - 1_000);
    let (ended, ended_start) = runs(3, same);
    let (moved, moved_start) = runs(4, same);
    let mut elsewhere = vec![
        runs(5, |_, start| start.device = 1),
        runs(6, |_, start| start.worker = worker(2)),
        runs(7, |job, _| job.pool = "team-a".parse().unwrap()),
    ];
    let session = |job: &mut JobInfo, _: &mut Started| job.program = "session".to_owned();
    elsewhere.push(runs(8, session));
    let mut events = vec![start, later_start, longest_start, ended_start, moved_start];
    events.extend(elsewhere.iter().map(|(_, start)| start.clone()));
    events.push(finished(ended, 1, AttemptState::Succeeded, AT + 50));
    // It was lost here, and runs elsewhere.
    events.push(finished(moved, 1, AttemptState::Lost, AT + 50));
    events.push(started(&info(moved, AT), 3, AT + 60));
    let waits = info(id(71, 0, Some(AT)), AT);
    events.push(Event::Submitted(Submitted { job: waits.clone(), at_ms: AT }));
    assert_eq!(store.record(&events).await.unwrap(), []);

    let found = ledger.neighbours(job).await.unwrap();
    assert_eq!(found.iter().map(|neighbour| neighbour.job_id).collect::<Vec<_>>(), [longest, later]);
    let [first, second] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.name.as_deref(), second.name.as_deref()), (Some("nightly"), None));
    assert_eq!((first.pool.as_deref(), first.kernel.as_deref()), (Some("default"), Some("saxpy")));
    assert!(first.running_us > second.running_us && second.running_us > 0);
    assert_eq!(ids(&ledger, later).await, [longest, job]);
    for (alone, _) in elsewhere {
        assert_eq!(ids(&ledger, alone).await, []);
    }
    for not_running in [ended, waits.job_id, id(72, 0, Some(AT))] {
        assert_eq!(ids(&ledger, not_running).await, []);
    }
}
