//! The state of workers and devices by their heartbeats, in any order and with wrong clocks.

use std::time::Duration;

use chrono::Utc;
use gpufleet_ledger::{HistoryFilter, WorkerFilter, WorkerRow};
use gpufleet_schema::{Event, JobState};

use crate::{
    database::Database,
    histories::{self, heartbeat, id, info, started},
    recorder::{AT, record},
};

#[tokio::test]
async fn a_late_heartbeat_corrects_first_seen_although_the_latest_one_is_repeated_with_it() {
    let (_, mut store, ledger) = Database::opened().await;
    let [early, latest] = [heartbeat(1, 3, false), heartbeat(1, 5, false)];
    record(&mut store, &[latest.clone(), early, latest], &[1]).await;
    let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
    assert_eq!((worker.first_seen_at, worker.last_seen_at), (histories::time(AT + 3000), histories::time(AT + 5000)));
}

#[tokio::test]
async fn heartbeats_count_although_the_workers_clock_was_set_back_by_an_hour() {
    const HOUR: i64 = 3600;
    let beats = [(0, false), (2 * HOUR - 600, false), (2 * HOUR + 1, true), (HOUR, false), (HOUR + 2, false)];
    let events: Vec<Event> = beats.iter().map(|(at, leaving)| heartbeat(1, *at, *leaving)).collect();
    // In one batch, one by one, and with a cut before or after the step.
    for cuts in [vec![], vec![1, 2, 3, 4], vec![3], vec![4]] {
        let (_, mut store, ledger) = Database::opened().await;
        record(&mut store, &events, &cuts).await;
        let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
        assert_eq!(worker.last_seen_at, histories::time(AT + (HOUR + 2) * 1000), "{cuts:?}");
        assert_eq!((worker.first_seen_at, worker.has_left), (histories::time(AT), false));
        assert_eq!(worker.devices.len(), 1, "as many as this heartbeat lists: {cuts:?}");
        // Overtaken heartbeats are not a step of the clock. The second one shows that they are fresh.
        record(&mut store, &[heartbeat(1, HOUR - 61, true), heartbeat(1, HOUR - 60, true)], &[1]).await;
        let again = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
        assert!(again.heard_at > worker.heard_at);
        assert_eq!(again, &WorkerRow { heard_at: again.heard_at, is_silent: false, ..worker.clone() });
    }
}

#[tokio::test]
async fn a_worker_has_the_state_of_its_latest_heartbeat() {
    let (_, mut store, ledger) = Database::opened().await;
    record(&mut store, &[heartbeat(1, 3, true), heartbeat(1, 2, false), heartbeat(1, 1, false)], &[1, 2]).await;
    let workers = ledger.workers(&WorkerFilter::default()).await.unwrap();
    let [worker] = workers.as_slice() else { panic!("one worker: {workers:?}") };
    assert_eq!((worker.worker.as_str(), worker.revision.as_str(), worker.has_left), ("worker-1", "r3", true));
    assert_eq!(worker.pools, ["default", "NULL"]);
    assert_eq!(worker.first_seen_at, histories::time(AT + 1000));
    assert_eq!(worker.last_seen_at, histories::time(AT + 3000));
    assert_eq!(worker.devices.len(), 2);
    let sessions = worker.sessions.as_ref().expect("this heartbeat names sessions");
    assert_eq!((sessions.hosts.as_slice(), sessions.ports), (["gpu\u{fffd}-3".to_owned()].as_slice(), [9480, 9499]));
    assert_eq!((worker.sessions_max("default"), worker.sessions_max("NULL")), (4, 0));
    assert_eq!(worker.programs_of("default").unwrap().environments, ["torch\u{fffd}-3"]);
    assert_eq!(worker.programs_of("default").map(|of_pool| (of_pool.running, of_pool.taken_max)), Some((1, 2)));
    assert_eq!(worker.programs_of("NULL"), None);
    record(&mut store, &[heartbeat(1, 4, false)], &[]).await;
    let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
    assert_eq!((&worker.sessions, &worker.programs), (&None, &None), "its pools take none any more");
    assert!(!worker.has_left, "it came back");
    assert_eq!(worker.devices.len(), 1, "its latest heartbeat lists one device");
}

#[tokio::test]
async fn workers_that_left_or_fell_silent_long_ago_are_listed_on_request() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let (database, mut store, ledger) = Database::opened().await;
    let beats = [heartbeat(1, 1, false), heartbeat(2, 1, true), heartbeat(3, 1, false), heartbeat(4, 1, false)];
    record(&mut store, &beats, &[]).await;
    database.execute("update workers set heard_at = now()").await;
    database.execute("update workers set heard_at = heard_at - interval '23 hours' where worker = 'worker-3'").await;
    database.execute("update workers set heard_at = heard_at - interval '25 hours' where worker = 'worker-4'").await;
    let listed = async |filter: WorkerFilter| {
        let workers = ledger.workers(&filter).await.unwrap();
        assert!(workers.iter().all(|worker| worker.devices.len() == 2), "{workers:?}");
        workers.into_iter().map(|worker| worker.worker).collect::<Vec<_>>()
    };
    let recent = WorkerFilter { heard_within: Some(DAY), ..WorkerFilter::default() };
    assert_eq!(listed(recent.clone()).await, ["worker-1", "worker-3"]);
    assert_eq!(listed(WorkerFilter { limit: 1, ..recent }).await, ["worker-1"]);
    assert_eq!(listed(WorkerFilter::default()).await, ["worker-1", "worker-2", "worker-3", "worker-4"]);
    let named = |name: &str| WorkerFilter { name: Some(name.to_owned()), ..WorkerFilter::default() };
    assert_eq!(listed(named("worker-2")).await, ["worker-2"]);
    assert_eq!(listed(named("worker")).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_device_has_the_state_of_its_latest_heartbeat() {
    let (_, mut store, ledger) = Database::opened().await;
    record(&mut store, &[heartbeat(1, 3, false)], &[]).await;
    let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
    let [well, sick] = worker.devices.as_slice() else { panic!("two devices: {worker:?}") };
    assert_eq!((well.out_of_service.as_deref(), well.jobs_running), (None, Some(0)));
    assert_eq!((sick.out_of_service.as_deref(), sick.jobs_running), (Some("fell off\u{fffd} its bus"), Some(1)));
    assert_eq!((sick.utilization_percent, sick.utilization_by.as_deref()), (Some(41), Some("worker")));
    assert_eq!((sick.memory_used_bytes, sick.pools[0].memory_bytes), (Some(1 << 30), 1 << 20));
    assert_eq!(sick.pools[0].sessions.map(|sessions| (sessions.open, sessions.memory_bytes)), Some((1, 1 << 18)));
    let program = sick.pools[0].program.as_ref().unwrap();
    assert_eq!(program.label, "sh -c \u{fffd}");
    assert_eq!((sick.temperature_celsius, sick.power_milliwatts), (None, Some(350_500)));
}

#[tokio::test]
async fn a_job_whose_worker_is_silent_may_or_may_not_run() {
    let (database, mut store, ledger) = Database::opened().await;
    let job = info(id(3, 0, Some(AT)), AT);
    // The worker's clock is years behind, so it counts as silent until its second heartbeat.
    record(&mut store, &[heartbeat(1, 60, false), heartbeat(1, 61, false), started(&job, 1, AT)], &[1]).await;
    let looks = async || {
        let detail = ledger.job(job.job_id).await.unwrap().unwrap();
        let listed = ledger.history(&HistoryFilter::default()).await.unwrap().jobs[0].is_unheard;
        let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
        assert_eq!(detail.job.state, JobState::Running, "no event has said anything else");
        (worker.is_silent, detail.job.is_unheard, detail.attempts[0].is_unheard, listed)
    };
    assert_eq!(looks().await, (false, false, false, false));
    database.execute("update workers set heard_at = heard_at - interval '31 seconds'").await;
    assert_eq!(looks().await, (true, true, true, true));
    record(&mut store, &[heartbeat(1, 61, false)], &[]).await;
    assert_eq!(looks().await, (true, true, true, true), "its last message came again");
    record(&mut store, &[heartbeat(1, 2, false), heartbeat(1, 3, false)], &[1]).await;
    assert_eq!(
        looks().await,
        (false, false, false, false),
        "it is heard again, though its clock went back by a minute"
    );
    record(&mut store, &[heartbeat(1, 62, true)], &[]).await;
    assert_eq!(looks().await, (false, true, true, true), "it left without a word about the job");
}

#[tokio::test]
async fn heartbeats_that_waited_for_the_recorder_do_not_count_as_heard_now() {
    let (_, mut store, ledger) = Database::opened().await;
    let heard = async || {
        let worker = &ledger.workers(&WorkerFilter::default()).await.unwrap()[0];
        (worker.is_silent, worker.heard_at)
    };
    // The worker sent heartbeats for an hour without a recorder, and died more than an hour ago.
    let hour: Vec<Event> = (0..360).map(|beat| heartbeat(1, beat * 10, false)).collect();
    let last = histories::time(AT + 3590 * 1000);
    for cuts in [vec![1, 2, 3, 359], vec![180]] {
        record(&mut store, &hour, &cuts).await;
        assert_eq!(heard().await, (true, last), "{cuts:?}");
    }
    // The worker is back, with a wrong clock that runs.
    record(&mut store, &[heartbeat(1, 86_400, false)], &[]).await;
    assert_eq!(heard().await, (true, histories::time(AT + 86_400 * 1000)));
    record(&mut store, &[heartbeat(1, 86_401, false)], &[]).await;
    assert!(!heard().await.0);
    // `heard_at` is never in the future.
    record(&mut store, &[heartbeat(1, 100 * 365 * 86_400, false)], &[]).await;
    let (is_silent, at) = heard().await;
    assert!(!is_silent && at <= Utc::now(), "{at}");
}
