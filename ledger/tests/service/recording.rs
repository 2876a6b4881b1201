//! Every published event is recorded even if services break. Events that can't be recorded are dead-lettered with the reason.

use std::time::{Duration, Instant};

use gpufleet_ledger::{
    WorkerFilter,
    recorder::{Recorder, Store},
};
use gpufleet_schema::{
    Action, ActionId, AttemptState, Event, JobId, JobInfo, SessionProgress, SessionUse, Started,
    encoding::decode_events,
    topology::{DEAD_QUEUE, HEADER_ORIGIN, HEADER_REASON, LEDGER_QUEUE},
};
use gpufleet_transport::{BrokerUrl, Consumer, Delivery, EventSink, Incoming};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    ground::{Ground, succeeded},
    poll::{WAIT, poll},
};

#[tokio::test]
async fn events_are_recorded_and_their_messages_acknowledged() {
    let ground = Ground::fresh().await;
    let recorder = ground.record().await;
    let ids = ground.publish_jobs(40, 25).await;
    let ledger = ground.ledger().await;
    ground.poll_recorded(ids.len()).await;
    let detail = ledger.job(ids[0]).await.unwrap().unwrap();
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert!(!recorder.ready_file().exists());
    // An unacknowledged message would return to the queue.
    assert_eq!(ground.waiting_messages().await, 0);
}

#[tokio::test]
async fn events_that_come_one_by_one_share_commits() {
    const MESSAGES: usize = 20;
    let ground = Ground::fresh().await;
    let _recorder = ground.record().await;
    let begun = Instant::now();
    for _ in 0..MESSAGES {
        ground.publish(&[succeeded(JobId::new())]).await;
    }
    ground.poll_recorded(MESSAGES).await;
    // No batch is full, so each is closed 100 ms after its first event. Commits are therefore at least that far apart.
    let possible = begun.elapsed().as_millis() / 100;
    let commits = ground.commits().await;
    println!("{MESSAGES} messages in {commits} commits, of {possible} possible ones");
    assert!((1..=possible).contains(&u128::from(commits)), "{commits} commits, {possible} possible");
}

#[tokio::test]
async fn an_action_that_a_client_reports_is_recorded() {
    let ground = Ground::fresh().await;
    let _recorder = ground.record().await;
    let ledger = ground.ledger().await;
    let action_id = ActionId::new();
    let user = ground.broker.urls().user().to_owned();
    let action = Action {
        action_id,
        at_ms: chrono::Utc::now().timestamp_millis(),
        who: "anna".to_owned(),
        action: "cancel".to_owned(),
        target: JobId::new().to_string(),
        from: None,
        reported_by: Some(user.clone()),
    };
    ground.broker.report_alone(Event::Action(action), Some(user.clone())).await.unwrap();
    poll("the action is recorded", async || !ledger.actions(50, None).await.unwrap().actions.is_empty()).await;
    let recorded = ledger.actions(50, None).await.unwrap();
    let [row] = recorded.actions.as_slice() else { panic!("{recorded:?}") };
    assert_eq!((row.action_id, row.who.as_str(), row.reported_by.as_ref()), (action_id, "anna", Some(&user)));
}

#[tokio::test]
async fn what_an_open_session_has_done_is_recorded_from_a_message_of_its_own() {
    let ground = Ground::fresh().await;
    let job = JobInfo { program: "session".to_owned(), ..JobInfo::new(JobId::new(), "python train.py") };
    let at_ms = chrono::Utc::now().timestamp_millis();
    let started =
        Started { job: job.clone(), attempt: 1, worker: "worker-1".parse().unwrap(), device: 0, ran_on: None, at_ms };
    let used = SessionUse { calls: 7, ..SessionUse::default() };
    let progress = SessionProgress { started, sequence: 1, at_ms, charged_us: 5, session: used.clone() };
    let events = EventSink::of_worker(ground.broker.clone());
    let together = vec![succeeded(JobId::new()), Event::SessionProgress(Box::new(progress)), succeeded(JobId::new())];
    events.send_confirmed(together).await.unwrap();
    // A recorder of an earlier release dead-letters the one message and records the other.
    assert_eq!(ground.waiting_messages().await, 2);
    let _recorder = ground.record().await;
    ground.poll_recorded(2).await;
    let ledger = ground.ledger().await;
    poll("the session is recorded", async || ledger.job(job.job_id).await.unwrap().is_some()).await;
    let detail = ledger.job(job.job_id).await.unwrap().unwrap();
    let attempt = &detail.attempts[0];
    assert_eq!((&attempt.state, &attempt.session), (&AttemptState::Running, &Some(used)));
}

#[tokio::test]
async fn events_of_the_next_release_are_recorded_and_not_dead_lettered() {
    let ground = Ground::fresh().await;
    let recorder = ground.record().await;
    let events: serde_json::Value =
        serde_json::from_slice(include_bytes!("../../../schema/golden/next/events.json")).unwrap();
    ground.publish_body(rmp_serde::to_vec_named(&events).unwrap()).await;
    let ledger = ground.ledger().await;
    poll("the events are recorded", async || !ledger.later_kinds().await.unwrap().is_empty()).await;

    let job_id = "0190a5b8-7c00-7000-8000-000000000002".parse().unwrap();
    let detail = ledger.job(job_id).await.unwrap().unwrap();
    let failure = detail.attempts[0].failure.as_ref().unwrap();
    assert_eq!((detail.job.state.name(), detail.attempts[0].state.name()), ("preempted", "preempted"));
    assert_eq!((failure.verdict.as_str(), failure.code.as_str()), ("neighbour", "device_preempted"));
    assert_eq!(failure.detail.as_deref(), Some("advice: submit it again"));
    let worker = ledger.workers(&WorkerFilter::default()).await.unwrap().remove(0);
    assert_eq!(worker.devices[0].utilization_by.as_deref(), Some("cupti"));
    let later = ledger.later_kinds().await.unwrap();
    let kinds: Vec<&str> = later.iter().map(|later| later.kind.as_str()).collect();
    assert_eq!(kinds, ["fleet_paused", "job_leased"]);
    assert!(later[1].last_event.contains(r#""to":{"worker":"w1"}"#), "{}", later[1].last_event);
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0);
    let dead = ground.broker.queue_depth(DEAD_QUEUE).await.unwrap();
    assert_eq!(dead.map_or(0, |depth| depth.messages), 0);
}

#[tokio::test]
async fn events_that_cannot_be_recorded_are_dead_lettered_with_the_reason() {
    let ground = Ground::fresh().await;
    let recorder = ground.record().await;
    let good = JobId::new();
    let mut bad = succeeded(JobId::new());
    let gpufleet_schema::Event::AttemptFinished(event) = &mut bad else { unreachable!() };
    event.attempt = 0;
    ground.publish_body(b"no batch of events".to_vec()).await;
    ground.publish(&[bad.clone(), succeeded(good)]).await;
    ground.poll_recorded(1).await;

    let mut dead = ground.broker.consume(DEAD_QUEUE.to_owned(), 10);
    for _ in 0..2 {
        let letter = delivery(&mut dead).await;
        let reason = letter.properties.header_text(HEADER_REASON).unwrap().to_owned();
        assert_eq!(letter.properties.header_text(HEADER_ORIGIN), Some(LEDGER_QUEUE));
        if letter.body == b"no batch of events" {
            assert!(reason.contains("not valid MessagePack"), "{reason}");
        } else {
            assert_eq!(decode_events(&letter.body).unwrap(), [bad.clone()]);
            assert!(reason.contains("attempt_is_counted"), "{reason}");
        }
        letter.ack().await.unwrap();
    }
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0);
}

#[tokio::test]
async fn a_dead_queue_without_permission_costs_one_requeue_and_no_body() {
    let (ground, broker) = Ground::with_own_broker().await;
    let (store, stop) = (Store::connect(ground.url()).await.unwrap(), CancellationToken::new());
    let recorder = Recorder::new(ground.broker.clone(), store, stop.clone()).hold_at_most(Duration::ZERO);
    let mut ready = recorder.ready();
    let recording = tokio::spawn(recorder.run());
    until(&mut ready, true).await;

    let url: BrokerUrl = ground.amqp_url.parse().unwrap();
    let (user, vhost) = (url.user(), url.vhost());
    let write = async |pattern: &str| {
        let granted = format!(
            "ok = rabbit_auth_backend_internal:set_permissions(<<\"{user}\">>, <<\"{vhost}\">>, <<\".*\">>, \
             <<\"{pattern}\">>, <<\".*\">>, <<\"{user}\">>)."
        );
        broker.eval(&granted).await.unwrap();
    };
    write("^(?!gpufleet[.]v1[.]dead)").await;
    let mut bad = succeeded(JobId::new());
    let gpufleet_schema::Event::AttemptFinished(event) = &mut bad else { unreachable!() };
    event.attempt = 0;
    ground.publish(&[bad.clone(), succeeded(JobId::new())]).await;
    until(&mut ready, false).await;
    poll("the message is handed back", async || ground.waiting_messages().await == 1).await;
    ground.poll_recorded(1).await;

    write(".*").await;
    until(&mut ready, true).await;
    // The event that the recorder retried, and the same event again with its redelivered message.
    let mut dead = ground.broker.consume(DEAD_QUEUE.to_owned(), 10);
    for _ in 0..2 {
        let letter = delivery(&mut dead).await;
        assert_eq!(decode_events(&letter.body).unwrap(), [bad.clone()]);
        assert!(letter.properties.header_text(HEADER_REASON).unwrap().contains("attempt_is_counted"));
        letter.ack().await.unwrap();
    }
    ground.publish_jobs(1, 1).await;
    ground.poll_recorded(2).await;
    stop.cancel();
    recording.await.unwrap().unwrap();
    assert_eq!(ground.waiting_messages().await, 0);
    broker.stop().await.unwrap();
}

async fn delivery(consumer: &mut Consumer) -> Delivery {
    match tokio::time::timeout(WAIT, consumer.next()).await.expect("a dead letter comes in time") {
        Some(Incoming::Delivery(delivery)) => delivery,
        other => panic!("a dead letter was to come: {other:?}"),
    }
}

#[tokio::test]
async fn after_an_outage_of_the_database_the_record_is_complete() {
    let (ground, postgres) = Ground::with_own_database().await;
    let recorder = ground.record().await;
    let mut jobs = ground.publish_jobs(10, 10).await.len();
    postgres.kill9().await.unwrap();
    jobs += ground.publish_jobs(100, 10).await.len();
    poll("the recorder notices", async || recorder.log().contains("failed to record events; trying again")).await;
    // A stopping recorder does not wait for the database.
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    let recorder = ground.start_recorder();
    jobs += ground.publish_jobs(10, 10).await.len();
    poll("the new recorder waits", async || recorder.log().contains("waiting for the database")).await;
    assert!(!recorder.is_ready());

    postgres.restart().await.unwrap();
    ground.poll_recorded(jobs).await;
    // The server ends the sessions, and the recorder opens a new one.
    postgres.restart().await.unwrap();
    jobs += ground.publish_jobs(10, 10).await.len();
    ground.poll_recorded(jobs).await;
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0);
}

#[tokio::test]
async fn a_recorder_is_ready_when_it_has_noted_that_an_empty_queue_is_recorded() {
    let (ground, postgres) = Ground::with_own_database().await;
    let recorder = ground.record().await;
    assert_eq!(postgres.psql("ledger", CAUGHT_UP).await.unwrap().trim(), "1");
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
}

const CAUGHT_UP: &str = "select count(*) from recorder_progress";
/// The limit for noting progress. It is longer than the pause after a queue that was not empty, and shorter than the other pause.
const NOTED_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_recorder_with_events_to_record_notes_soon_afterwards_that_it_has_caught_up() {
    let (ground, postgres) = Ground::with_own_database().await;
    let mut other = PgConnection::connect(&ground.database_url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table jobs in access exclusive mode").await.unwrap();
    // More messages than a recorder holds.
    let jobs = ground.publish_jobs(200, 1).await.len();
    // The recorder is ready after its first check of the queue, which finds events.
    let recorder = ground.record().await;
    assert_eq!(postgres.psql("ledger", CAUGHT_UP).await.unwrap().trim(), "0");
    lock.rollback().await.unwrap();
    let noted = poll("it has caught up", async || postgres.psql("ledger", CAUGHT_UP).await.unwrap().trim() == "1");
    tokio::time::timeout(NOTED_WITHIN, noted).await.expect("it looks again soon");
    ground.poll_recorded(jobs).await;
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
}

#[tokio::test]
async fn in_a_long_outage_of_the_database_messages_wait_in_the_broker() {
    let (ground, postgres) = Ground::with_own_database().await;
    let (store, stop) = (Store::connect(ground.url()).await.unwrap(), CancellationToken::new());
    let recorder = Recorder::new(ground.broker.clone(), store, stop.clone()).hold_at_most(Duration::ZERO);
    let mut ready = recorder.ready();
    let recording = tokio::spawn(recorder.run());
    until(&mut ready, true).await;

    postgres.stop().await.unwrap();
    let jobs = ground.publish_jobs(5, 10).await.len();
    until(&mut ready, false).await;
    poll("the messages are handed back", async || ground.waiting_messages().await == 5).await;
    postgres.restart().await.unwrap();
    ground.poll_recorded(jobs).await;
    until(&mut ready, true).await;
    // The requeued messages come first, so they are acknowledged no later than this one.
    ground.publish_jobs(1, 1).await;
    ground.poll_recorded(jobs + 1).await;
    stop.cancel();
    recording.await.unwrap().unwrap();
    assert_eq!(ground.waiting_messages().await, 0);
}

#[tokio::test]
async fn a_recorder_without_write_permission_requeues_once_and_continues_when_it_has_it() {
    let (mut ground, postgres) = Ground::with_own_database().await;
    let execute = async |sql| postgres.psql("ledger", sql).await.unwrap();
    // This role may check the tables' version, at the start and at each attempt, but not write.
    execute("create role reader login; grant select on all tables in schema public to reader").await;
    let (_, place) = ground.database_url.split_once('@').unwrap();
    ground.database_url = format!("postgres://reader@{place}");
    let recorder = ground.record().await;
    let jobs = ground.publish_jobs(5, 10).await.len();
    poll("it is not ready", async || !recorder.is_ready()).await;
    poll("the messages are handed back", async || ground.waiting_messages().await == 5).await;
    poll("it goes on knocking", async || recorder.log().matches("failed to write the tables").count() >= 4).await;
    assert_eq!(ground.waiting_messages().await, 5, "they stay in the broker");
    let log = recorder.log();
    assert!(log.contains("permission denied") && log.contains("run `gpufleet-ledger migrate`"), "{log}");
    assert_eq!(log.matches("returned messages to the broker").count(), 1, "{log}");

    execute("alter role reader superuser").await;
    ground.poll_recorded(jobs).await;
    poll("it is ready again", async || recorder.is_ready()).await;
    // The requeued messages come first, so they are acknowledged no later than this one.
    ground.publish_jobs(1, 1).await;
    ground.poll_recorded(jobs + 1).await;
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0);
}

async fn until(ready: &mut watch::Receiver<bool>, wanted: bool) {
    let told = tokio::time::timeout(WAIT, ready.wait_for(|ready| *ready == wanted)).await;
    told.unwrap_or_else(|_| panic!("waited too long until ready is {wanted}")).unwrap();
}

#[tokio::test]
async fn a_killed_recorder_loses_nothing() {
    let ground = Ground::fresh().await;
    let mut jobs = 0;
    for _ in 0..3 {
        let recorder = ground.record().await;
        jobs += ground.publish_jobs(100, 10).await.len();
        recorder.kill9().await;
    }
    let (one, other) = tokio::join!(ground.record(), ground.record());
    ground.poll_recorded(jobs).await;
    for recorder in [one, other] {
        assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    }
    assert_eq!(ground.waiting_messages().await, 0);
}

#[tokio::test]
async fn a_restarted_broker_is_consumed_from_again() {
    let (ground, broker) = Ground::with_own_broker().await;
    let recorder = ground.record().await;
    let jobs = ground.publish_jobs(20, 10).await.len();
    broker.kill9().await.unwrap();
    poll("it is not ready", async || !recorder.is_ready()).await;
    broker.restart().await.unwrap();
    let jobs = jobs + ground.publish_jobs(20, 10).await.len();
    ground.poll_recorded(jobs).await;
    poll("it is ready again", async || recorder.is_ready()).await;
    assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    assert_eq!(ground.waiting_messages().await, 0);
    broker.stop().await.unwrap();
}
