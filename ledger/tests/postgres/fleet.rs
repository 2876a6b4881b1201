//! Queries of the console about the whole fleet: the overview, statistics over time, samples of devices, and the actions of people.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet_ledger::{
    ActionKey, Grain, SampleFilter,
    recorder::Store,
    retention::{self, Kept, Outcome},
};
use gpufleet_schema::{Action, ActionId, AttemptState, Event, JobId, JobInfo, JobState, PoolName, WorkerSeen};

use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{
    database::{Database, query_text},
    histories::{heartbeat, info, ran, started, worker},
    poll::poll,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Inserts a week of samples of one device, one every ten seconds, and as many samples of 49 other devices.
const SAMPLES: &str = "
    select ensure_samples_partition(day::date) from generate_series(now() - interval '7 days', now(), interval '1 day') day;
    select ensure_samples_partition((now() at time zone 'UTC')::date);
    insert into device_samples
    select 'worker-' || number, 0, at, 1, 1 << 20, 1 << 30, 40, 55, 350500
    from generate_series(now() - interval '2 days', now(), interval '60 seconds') at, generate_series(1, 49) number;
    insert into device_samples
    select 'watched', 0, at, 1, 1 << 20, 1 << 30, 40, 55, 350500
    from generate_series(now() - interval '2 days', now() - interval '10 seconds', interval '10 seconds') at;
    vacuum analyze device_samples";
/// The maximum number of buffers that the query may read. The index has 17,280 samples of the device in two days, of at most 180 bytes
/// each.
const SAMPLES_BUFFERS_MAX: u64 = 400;

async fn record(store: &mut Store, events: &[Event]) {
    assert_eq!(store.record(events).await.unwrap(), []);
}

fn beat(number: u32, at: DateTime<Utc>) -> Event {
    let Event::WorkerSeen(seen) = heartbeat(number, 0, false) else { panic!("it is a heartbeat") };
    Event::WorkerSeen(WorkerSeen { at_ms: at.timestamp_millis(), ..seen })
}

fn action(who: &str, at: DateTime<Utc>) -> Event {
    Event::Action(Action {
        action_id: ActionId::new(),
        at_ms: at.timestamp_millis(),
        who: who.to_owned(),
        action: "cancel".to_owned(),
        target: "a\0 job".to_owned(),
        from: Some("10.0.0.7".to_owned()),
        reported_by: None,
    })
}

fn of_pool(pool: &str, at: i64) -> JobInfo {
    JobInfo { pool: pool.parse::<PoolName>().unwrap(), ..info(JobId::new(), at) }
}

#[tokio::test]
async fn the_overview_has_what_ended_lately_and_what_has_not_ended() {
    let (_, mut store, ledger) = Database::opened().await;
    let now = Utc::now();
    let ago = |minutes| (now - TimeDelta::minutes(minutes)).timestamp_millis();
    for (pool, minutes, state) in [
        ("team-a", 1, AttemptState::Succeeded),
        ("team-b", 1, AttemptState::Failed),
        ("team-a", 40, AttemptState::Succeeded),
        ("team-a", 300, AttemptState::Succeeded),
        ("team-a", 3000, AttemptState::Succeeded),
    ] {
        let job = of_pool(pool, ago(minutes));
        record(&mut store, &[ran(&job, 1, state, ago(minutes) - 5, ago(minutes))]).await;
    }
    let running = of_pool("team-b", ago(2));
    record(&mut store, &[started(&running, 1, ago(2))]).await;
    // Before and after the merge.
    for merged in [false, true] {
        let overview = ledger.overview().await.unwrap();
        let counted: Vec<_> = overview.windows.iter().map(|w| (w.window.as_str(), w.statistics.jobs)).collect();
        assert_eq!(counted, [("15m", 2), ("1h", 3), ("24h", 4)], "merged: {merged}");
        let quarter = &overview.windows[0];
        assert_eq!((quarter.statistics.failed, quarter.statistics.verdict_infrastructure), (1, 1));
        let rate = 2.0 / (overview.at - quarter.since).as_seconds_f64();
        assert!((quarter.jobs_per_second - rate).abs() < 1e-9, "{}", quarter.jobs_per_second);
        let [unfinished] = overview.unfinished.as_slice() else { panic!("{:?}", overview.unfinished) };
        assert_eq!((unfinished.pool.as_deref(), unfinished.state), (Some("team-b"), JobState::Running));
        assert_eq!((unfinished.jobs, unfinished.is_at_least), (1, false));
        assert_eq!(overview.recorder.caught_up_at, None);
        store.upkeep().await.unwrap();
    }
    store.note_caught_up(Duration::from_secs(7)).await.unwrap();
    let behind = ledger.overview().await.unwrap().recorder.behind_seconds.unwrap();
    assert!((7.0..60.0).contains(&behind), "{behind}");

    let day = ledger.series(now - TimeDelta::hours(23), None).await.unwrap();
    assert_eq!((day.grain, day.points.iter().map(|point| point.jobs).sum::<u64>()), (Grain::FiveMinutes, 4));
    assert!(day.points.is_sorted_by(|one, next| one.at < next.at));
    let month = ledger.series(now - TimeDelta::days(20), Some("team-a")).await.unwrap();
    assert_eq!((month.grain, month.points.iter().map(|point| point.jobs).sum::<u64>()), (Grain::Hour, 4));
}

#[tokio::test]
async fn statistics_by_five_minutes_are_forgotten_after_a_day_and_their_hours_stay() {
    let (database, mut store, _ledger) = Database::opened().await;
    let old = (Utc::now() - TimeDelta::hours(30)).timestamp_millis();
    let job = of_pool("team-a", old);
    record(&mut store, &[ran(&job, 1, AttemptState::Succeeded, old - 5, old)]).await;
    store.upkeep().await.unwrap();
    let grains = "select string_agg(distinct grain, ' ' order by grain) from rollups where dimension = ''";
    assert_eq!(database.execute(grains).await.trim(), "day hour");
}

#[tokio::test]
async fn the_overview_reads_no_more_of_many_unfinished_jobs() {
    let (database, _store, ledger) = Database::opened().await;
    database
        .execute(
            "select ensure_jobs_partition(now());
            insert into jobs (job_id, id_at, created_at, state, attempt, attempt_ended, pool)
            select gen_random_uuid(), now() - number * interval '1 ms', now(), 'queued', 0, false, 'team-a'
            from generate_series(1, 30000) number",
        )
        .await;
    let overview = ledger.overview().await.unwrap();
    let [queued] = overview.unfinished.as_slice() else { panic!("{:?}", overview.unfinished) };
    assert_eq!((queued.jobs, queued.is_at_least), (10_000, true));
}

#[tokio::test]
async fn a_device_has_one_sample_of_each_heartbeat_and_days_are_dropped() {
    let (database, mut store, ledger) = Database::opened().await;
    let now = Utc::now();
    let beats: Vec<Event> = (0..3).map(|number| beat(1, now - TimeDelta::seconds(10 * number))).collect();
    record(&mut store, &beats).await;
    record(&mut store, &beats).await;
    // These heartbeats are less than five seconds apart.
    record(&mut store, &[beat(1, now - TimeDelta::milliseconds(1)), beat(1, now - TimeDelta::days(5))]).await;
    // The worker's clock is wrong.
    record(&mut store, &[beat(2, now - TimeDelta::days(400)), beat(3, now + TimeDelta::days(40))]).await;
    let filter = SampleFilter {
        worker: worker(1).to_string(),
        device: 0,
        since: now - TimeDelta::hours(48),
        until: now + TimeDelta::seconds(1),
        points: 500,
    };
    let samples = ledger.device_samples(&filter).await.unwrap();
    assert!((1..=2).contains(&samples.points.len()), "{samples:?}");
    let point = samples.points.last().unwrap();
    assert_eq!((point.jobs_running, point.declared_bytes), (Some(0), 1 << 20));
    assert_eq!((point.memory_used_bytes, point.utilization_percent), (Some(1 << 30), Some(41.0)));
    assert_eq!((point.temperature_celsius, point.power_milliwatts), (None, Some(350_500.0)));
    let rows = database.execute("select worker, count(*) from device_samples group by worker").await;
    assert!(["worker-1|4", "worker-1|5"].contains(&rows.trim()), "{rows}");

    let kept = Kept { samples: Some(4 * DAY), ..Kept::default() };
    assert_eq!(retention::keep(&database.url(), kept, None).await.unwrap(), Outcome::Dropped(1));
    assert_eq!(retention::keep(&database.url(), kept, None).await.unwrap(), Outcome::Dropped(0));
    // A sample of a dropped day, before and after the recorder notices that the day is gone.
    record(&mut store, &[beat(1, now - TimeDelta::days(5))]).await;
    store.upkeep().await.unwrap();
    record(&mut store, &[beat(1, now - TimeDelta::days(5) + TimeDelta::minutes(1))]).await;
    let old = "select count(*) from device_samples where at < now() - interval '4 days'";
    assert_eq!(database.execute(old).await.trim(), "1");
}

#[tokio::test]
async fn two_days_of_a_device_are_at_most_five_hundred_points_from_one_index() {
    let (database, _store, ledger) = Database::opened().await;
    for statement in SAMPLES.split(';') {
        database.execute(statement).await;
    }
    let now = Utc::now();
    let filter = SampleFilter {
        worker: "watched".to_owned(),
        device: 0,
        since: now - TimeDelta::hours(48),
        until: now,
        points: 500,
    };
    let samples = ledger.device_samples(&filter).await.unwrap();
    assert!((480..=500).contains(&samples.points.len()), "{}", samples.points.len());
    let arguments = "'watched', 0, now() - interval '48 hours', now(), 346";
    let plan = database.explain_buffers(&query_text("queries::device_samples"), arguments).await;
    assert!(plan.buffers <= SAMPLES_BUFFERS_MAX, "{} buffers\n{}", plan.buffers, plan.text);
    assert!(plan.text.contains("Index Only Scan") && !plan.text.contains("Seq Scan on"), "{}", plan.text);
}

#[tokio::test]
async fn two_recorders_may_want_the_same_day_at_once() {
    let database = Database::fresh().await;
    let ensure = "select ensure_samples_partition('2031-05-06')";
    let mut first = PgConnection::connect(&database.text_url()).await.unwrap();
    let mut making = first.begin().await.unwrap();
    making.execute(ensure).await.unwrap();
    let second = tokio::spawn({
        let url = database.text_url();
        async move { PgConnection::connect(&url).await.unwrap().execute(ensure).await.map(drop) }
    });
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    poll("the second waits", async || database.execute(waiting).await.trim() != "0").await;
    making.commit().await.unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_action_is_recorded_once_and_listed_by_pages() {
    let (database, mut store, ledger) = Database::opened().await;
    let now = Utc::now();
    let actions: Vec<Event> = (0..5).map(|number| action("anna", now - TimeDelta::seconds(number))).collect();
    record(&mut store, &actions).await;
    record(&mut store, &[actions.clone(), actions].concat()).await;
    let (mut before, mut seen): (Option<ActionKey>, _) = (None, Vec::new());
    loop {
        let page = ledger.actions(2, before).await.unwrap();
        seen.extend(page.actions);
        let Some(next) = page.next else { break };
        before = Some(next.parse().unwrap());
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|one, next| one.at > next.at));
    assert_eq!((seen[0].who.as_str(), seen[0].action.as_str()), ("anna", "cancel"));
    assert!(!seen[0].target.contains('\0') && seen[0].target.contains("job"), "{:?}", seen[0].target);
    let plan = database.explain_buffers(&query_text("queries::actions"), "now(), gen_random_uuid(), 51").await;
    assert!(plan.text.contains("actions_at"), "{}", plan.text);
}

#[tokio::test]
async fn old_actions_are_deleted_when_asked() {
    let (database, mut store, ledger) = Database::opened().await;
    let now = Utc::now();
    let old = (0..1200).map(|number| action("anna", now - TimeDelta::days(9) - TimeDelta::seconds(number)));
    record(&mut store, &old.chain([action("ben", now)]).collect::<Vec<_>>()).await;
    let count = async || database.execute("select count(*) from actions").await.trim().to_owned();
    retention::keep(&database.url(), Kept { samples: Some(4 * DAY), ..Kept::default() }, None).await.unwrap();
    assert_eq!(count().await, "1201");
    retention::keep(&database.url(), Kept { actions: Some(8 * DAY), ..Kept::default() }, None).await.unwrap();
    assert_eq!(
        ledger.actions(2, None).await.unwrap().actions.iter().map(|action| &action.who).collect::<Vec<_>>(),
        ["ben"]
    );
}
