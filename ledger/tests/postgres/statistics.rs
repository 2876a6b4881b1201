//! Statistics count every ended attempt exactly once, in bounded space, and are read from the roll-ups alone.

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet_ledger::{Dimension, Ledger, OTHER, StatisticsFilter, StatisticsRow, Times, recorder::Store};
use gpufleet_schema::{AttemptFinished, AttemptState, Event, JobId, JobInfo, PoolName, Timings};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::sync::Mutex;

use crate::{
    database::{Database, query_text},
    histories::{finished, id, info, ran, shuffled, started},
};

const AT: i64 = 1_763_164_800_000;
/// Computes the sums from the attempts; the statistics must equal them. A lost attempt has no measured time.
const RAW: &str = "select
    (select count(*) from jobs where final_attempt is not null),
    (select count(*) from attempts where superseded),
    (select coalesce(sum(total_us), 0) from attempts where state not in ('running', 'lost')),
    (select coalesce(sum(coalesce(charged_us, total_us)), 0) from attempts where state not in ('running', 'lost')),
    (select coalesce(sum(a.output_bytes), 0) from jobs j join attempts a on a.job_id = j.job_id and a.attempt = j.final_attempt),
    (select coalesce(sum(input_bytes), 0) from jobs where final_attempt is not null)";

type TimesOf = fn(&StatisticsRow) -> Option<Times>;

async fn statistics(ledger: &Ledger, by: Option<&str>) -> Vec<StatisticsRow> {
    let by = by.map(|by| by.parse::<Dimension>().unwrap());
    let filter = StatisticsFilter { by, since: DateTime::UNIX_EPOCH, pool: None };
    ledger.statistics(&filter).await.unwrap().rows
}

/// Returns the statistics in the format of [`RAW`].
async fn counted(ledger: &Ledger, by: Option<&str>) -> String {
    let rows = statistics(ledger, by).await;
    let sum = |of: fn(&StatisticsRow) -> u64| rows.iter().map(of).sum::<u64>();
    let sums = [
        sum(|row| row.jobs),
        sum(|row| row.attempts_superseded),
        sum(|row| row.device_us),
        sum(|row| row.charged_us),
        sum(|row| row.output_bytes),
        sum(|row| row.input_bytes),
    ];
    sums.map(|sum| sum.to_string()).join("|")
}

async fn check_sums(database: &Database, ledger: &Ledger) {
    let raw = database.execute(RAW).await;
    for by in [None, Some("pool"), Some("kernel"), Some("user"), Some("worker"), Some("device")] {
        assert_eq!(counted(ledger, by).await, raw.trim(), "{by:?}");
    }
}

/// Returns the end of an attempt with the description of its job.
fn outcome(job: &JobInfo, state: AttemptState, at_ms: i64, timings: Timings) -> Event {
    match ran(job, 1, state, at_ms - 1, at_ms) {
        Event::AttemptFinished(event) => Event::AttemptFinished(AttemptFinished { timings, ..event }),
        other => other,
    }
}

/// Adds the job's description to its end, as workers of this release do. Without any description, an end counts for no pool and kernel.
fn described(event: &Event) -> Event {
    match event {
        Event::AttemptFinished(event) if event.job.is_none() => {
            Event::AttemptFinished(AttemptFinished { job: Some(Box::new(info(event.job_id, AT))), ..event.clone() })
        }
        other => other.clone(),
    }
}

fn of_kernel(kernel: impl Into<String>) -> JobInfo {
    JobInfo { kernel: kernel.into(), ..info(JobId::new(), AT) }
}

fn took(total_us: u64) -> Timings {
    Timings {
        queue_us: total_us / 3,
        copy_in_us: total_us / 5,
        launches_us: vec![total_us / 2],
        total_us,
        ..Timings::default()
    }
}

/// Returns successful jobs of three kernels in random order. Their times span six decades.
pub(crate) fn spread_jobs(count: u64) -> Vec<Event> {
    let us = |number: u64| (10.0_f64.powf(1.0 + (number * 7919 % count) as f64 * 6.0 / count as f64)) as u64;
    let kernel = |number: u64| of_kernel(format!("k{}", number % 3));
    (0..count).map(|number| outcome(&kernel(number), AttemptState::Succeeded, AT, took(us(number)))).collect()
}

async fn record(store: &mut Store, events: &[Event]) {
    assert_eq!(store.record(events).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_equal_those_of_the_attempts_whatever_the_order_and_the_repetitions() {
    let (database, store, ledger) = Database::opened().await;
    let store = Mutex::new(store);
    let cases = (shuffled(true), any::<prop::sample::Index>(), any::<bool>());
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    tokio::task::block_in_place(|| {
        runner.run(&cases, |(events, cut, merges_between)| {
            tokio::runtime::Handle::current().block_on(async {
                let mut store = store.lock().await;
                let events: Vec<Event> = events.iter().map(described).collect();
                let (first, second) = events.split_at(cut.index(events.len() + 1));
                record(&mut store, first).await;
                if merges_between {
                    store.upkeep().await.unwrap();
                }
                record(&mut store, second).await;
                record(&mut store, first).await;
                check_sums(&database, &ledger).await;
            });
            Ok(())
        })
    })
    .unwrap();
    let mut store = store.into_inner();
    store.upkeep().await.unwrap();
    assert_eq!(database.execute("select count(*) from rollup_deltas").await.trim(), "0");
    check_sums(&database, &ledger).await;
}

#[tokio::test]
async fn an_outcome_that_replaces_a_loss_is_counted_once_and_a_superseded_one_only_by_its_time() {
    for one_batch in [false, true] {
        count_a_loss_and_two_outcomes(one_batch).await;
    }
}

async fn count_a_loss_and_two_outcomes(one_batch: bool) {
    let (_, mut store, ledger) = Database::opened().await;
    let job = info(id(1, 0, Some(AT)), AT);
    let lost = finished(job.job_id, 1, AttemptState::Lost, AT + 10);
    let outcome = finished(job.job_id, 1, AttemptState::Failed, AT + 20);
    let rival = finished(job.job_id, 2, AttemptState::Succeeded, AT + 30);
    let batches = [[started(&job, 1, AT), lost], [outcome.clone(), outcome], [rival.clone(), rival]];
    match one_batch {
        true => record(&mut store, &batches.concat()).await,
        false => {
            for events in batches {
                record(&mut store, &events).await;
            }
        }
    }
    let rows = statistics(&ledger, None).await;
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.jobs, row.failed, row.succeeded, row.verdict_infrastructure), (1, 1, 0, 1));
    assert_eq!((row.attempts_lost, row.attempts_superseded, row.device_us), (1, 1, 2 * 90));
    assert_eq!(row.charged_us, 90 + 97, "the first worker told no charge");
    // The times of one outcome: queued for 10 and 20 us, and copied for 60 and 70 us.
    let times = |us| Some(Times { p50_us: us, p95_us: us, p99_us: us, max_us: us });
    assert_eq!((row.queue, row.compile, row.copy, row.total), (times(30), times(40), times(130), times(90)));
}

#[tokio::test]
async fn what_an_older_release_counted_is_charged_with_its_device_time() {
    let (database, mut store, ledger) = Database::opened().await;
    let job = |attempt| finished(JobId::new(), attempt, AttemptState::Succeeded, AT);
    record(&mut store, &[described(&job(2))]).await;
    store.upkeep().await.unwrap();
    database.execute("update rollups set charged_us = null").await;
    record(&mut store, &[described(&job(2))]).await;
    let charged = async || statistics(&ledger, None).await[0].charged_us;
    assert_eq!(charged().await, 90 + 97);
    store.upkeep().await.unwrap();
    assert_eq!(charged().await, 90 + 97);
}

#[tokio::test]
async fn percentiles_are_within_two_percent_of_percentile_cont_on_the_same_rows() {
    let (database, mut store, ledger) = Database::opened().await;
    for events in spread_jobs(3000).chunks(500) {
        record(&mut store, events).await;
        let appended = database.execute("select count(*) from rollup_deltas").await;
        // One row each for all jobs, three kernels, one user, one worker and one device.
        assert_eq!(appended.trim(), "7", "a row for each value, and not for each event");
        store.upkeep().await.unwrap();
    }
    let rows = statistics(&ledger, Some("kernel")).await;
    assert_eq!(rows.len(), 3);
    let stages: [(&str, TimesOf); 4] = [
        ("a.queue_us + a.wait_us", |row| row.queue),
        ("a.copy_in_us + a.copy_out_us", |row| row.copy),
        ("(select sum(us) from unnest(a.launches_us) us)", |row| row.kernel),
        ("a.total_us", |row| row.total),
    ];
    for row in &rows {
        for (expression, times) in stages {
            let exact = database
                .execute(&format!(
                    "select unnest(percentile_cont('{{0.5,0.95,0.99,1}}'::float8[]) within group (order by {expression}))
                     from jobs j join attempts a using (job_id) where j.kernel = '{}'",
                    row.value
                ))
                .await;
            let exact: Vec<f64> = exact.lines().map(|line| line.trim().parse().unwrap()).collect();
            let Times { p50_us, p95_us, p99_us, max_us } = times(row).unwrap();
            for (found, exact) in [p50_us, p95_us, p99_us, max_us].into_iter().zip(exact) {
                assert!((found as f64 - exact).abs() <= 0.02 * exact + 0.5, "{expression}: {found} instead of {exact}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_recorders_of_the_same_events_count_them_once() {
    let (database, first, ledger) = Database::opened().await;
    let second = Store::connect(database.url()).await.unwrap();
    let batches: Vec<Vec<Event>> = (0..20)
        .map(|batch| {
            (0..50).map(|us| outcome(&of_kernel("saxpy"), AttemptState::Succeeded, AT, took(batch * 50 + us))).collect()
        })
        .collect();
    let recording = [first, second].map(|mut store| {
        let batches = batches.clone();
        tokio::spawn(async move {
            for batch in &batches {
                record(&mut store, batch).await;
                store.upkeep().await.unwrap();
            }
        })
    });
    for recorder in recording {
        recorder.await.unwrap();
    }
    check_sums(&database, &ledger).await;
    assert_eq!(statistics(&ledger, None).await[0].jobs, 1000);
}

#[tokio::test]
async fn an_hour_has_a_thousand_values_and_the_rest_is_other() {
    let (database, mut store, ledger) = Database::opened().await;
    let kernels = |numbers: std::ops::Range<u64>| -> Vec<Event> {
        numbers
            .map(|number| outcome(&of_kernel(format!("k{number:04}")), AttemptState::Succeeded, AT, took(number)))
            .collect()
    };
    record(&mut store, &kernels(0..1500)).await;
    store.upkeep().await.unwrap();
    // The existing kernels still count, and the others still do not.
    record(&mut store, &kernels(0..10)).await;
    record(&mut store, &kernels(1490..1500)).await;
    store.upkeep().await.unwrap();
    let rows = statistics(&ledger, Some("kernel")).await;
    assert_eq!(rows.len(), 1001);
    let jobs = |value: &str| rows.iter().find(|row| row.value == value).map(|row| row.jobs);
    assert_eq!((jobs("k0003"), jobs("k0999"), jobs("k1495"), jobs(OTHER)), (Some(2), Some(1), None, Some(510)));
    check_sums(&database, &ledger).await;
}

#[tokio::test]
async fn hours_are_forgotten_after_two_months_and_their_days_stay() {
    let (database, mut store, ledger) = Database::opened().await;
    let days_ago = |days| (Utc::now() - TimeDelta::days(days)).timestamp_millis();
    let events = [70, 61, 2].map(|days| outcome(&of_kernel("saxpy"), AttemptState::Succeeded, days_ago(days), took(7)));
    record(&mut store, &events).await;
    store.upkeep().await.unwrap();
    let of = async |grain| {
        database.execute(&format!("select count(*) from rollups where grain = '{grain}' and dimension = ''")).await
    };
    assert_eq!((of("hour").await.trim(), of("day").await.trim()), ("2", "3"));
    for (days, jobs) in [(71, 3), (60, 1), (3, 1)] {
        let filter = StatisticsFilter { by: None, since: Utc::now() - TimeDelta::days(days), pool: None };
        assert_eq!(ledger.statistics(&filter).await.unwrap().rows[0].jobs, jobs, "{days} days");
    }
}

#[tokio::test]
async fn statistics_have_the_hours_of_the_window_and_of_the_pool() {
    let (_, mut store, ledger) = Database::opened().await;
    let now = Utc::now();
    let hours_ago = |hours| (now - TimeDelta::hours(hours)).timestamp_millis();
    let events: Vec<Event> = (0..48)
        .map(|hours| {
            let pool: PoolName = ["a", "b"][hours as usize % 2].parse().unwrap();
            outcome(&JobInfo { pool, ..of_kernel("saxpy") }, AttemptState::Succeeded, hours_ago(hours), took(1))
        })
        .collect();
    record(&mut store, &events).await;
    for _ in 0..2 {
        for hours in [0, 5, 23, 24, 25, 40] {
            let filter =
                StatisticsFilter { by: Some(Dimension::Pool), since: now - TimeDelta::hours(hours), pool: None };
            let statistics = ledger.statistics(&filter).await.unwrap();
            let jobs: u64 = statistics.rows.iter().map(|row| row.jobs).sum();
            assert_eq!(jobs, hours.unsigned_abs() + 1, "{hours} hours");
            let filter = StatisticsFilter { pool: Some("a".to_owned()), ..filter };
            let rows = ledger.statistics(&filter).await.unwrap().rows;
            assert_eq!((rows.len(), rows[0].value.as_str(), rows[0].jobs), (1, "a", jobs.div_ceil(2)), "{hours} hours");
        }
        // The merged rows give the same result.
        store.upkeep().await.unwrap();
    }
}

#[tokio::test]
async fn jobs_are_counted_by_declared_label_keys() {
    let database = Database::fresh().await;
    database
        .execute("create table if not exists label_keys (number integer primary key, key text not null unique)")
        .await;
    database.execute("insert into label_keys values (1, 'team')").await;
    let (mut store, ledger) = database.open().await;
    let labelled = |key: &str, value: &str| {
        let job = JobInfo { labels: [(key.to_owned(), value.to_owned())].into(), ..of_kernel("saxpy") };
        outcome(&job, AttemptState::Succeeded, AT, took(1))
    };
    record(&mut store, &[labelled("team", "a'b"), labelled("team", "c"), labelled("team", "c"), labelled("run", "7")])
        .await;
    let rows = statistics(&ledger, Some("label:team")).await;
    let jobs: Vec<(&str, u64)> = rows.iter().map(|row| (row.value.as_str(), row.jobs)).collect();
    assert_eq!(jobs, [("c", 2), ("a'b", 1)]);
    assert_eq!(statistics(&ledger, Some("label:run")).await, []);
}

#[tokio::test]
async fn wild_numbers_and_times_stop_no_count() {
    let (database, mut store, ledger) = Database::opened().await;
    let wild = Timings { queue_us: u64::MAX, total_us: i64::MAX as u64, ..Timings::default() };
    let years_ahead = (Utc::now() + TimeDelta::days(200_000)).timestamp_millis();
    let events = [(0, wild.clone()), (years_ahead, wild), (AT, took(7))]
        .map(|(at_ms, timings)| outcome(&of_kernel("saxpy"), AttemptState::Succeeded, at_ms.max(1), timings));
    record(&mut store, &events).await;
    store.upkeep().await.unwrap();
    let rows = statistics(&ledger, None).await;
    assert_eq!((rows[0].jobs, rows[0].device_us, rows[0].queue_us), (3, i64::MAX as u64, i64::MAX as u64));
    let far = database.execute("select count(*) from rollups where at > now() or at < '2025-01-01'").await;
    assert_eq!(far.trim(), "0");
}

/// Inserts thirty days of twenty kernels by the hour and by the day, and the jobs of the last year.
const FILL: &str = "
    insert into rollups
    select grain, at, 'default', dimension, 'k' || value, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, stages
    from (values ('hour', interval '1 hour'), ('day', interval '1 day')) as grains (grain, step),
         generate_series(date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' - interval '60 days', now(), step) as at,
         (values ('', 1), ('kernel', 20), ('user', 20), ('worker', 20), ('device', 2)) as dimensions (dimension, count),
         generate_series(1, count) as value, (select stages from rollups limit 1) as example;
    analyze rollups, rollup_deltas";

#[tokio::test]
async fn thirty_days_are_read_from_the_rollups_alone() {
    /// The maximum number of buffers: twenty kernels, each with thirty days and the hours of one day. Each row has less than a page.
    const BUFFERS_MAX: u64 = 20 * (31 + 24) + 100;
    let (database, mut store, _) = Database::opened().await;
    let events: Vec<Event> =
        (0..500).map(|number| outcome(&of_kernel("saxpy"), AttemptState::Succeeded, AT, took(1000 + number))).collect();
    record(&mut store, &events).await;
    store.upkeep().await.unwrap();
    database.execute(FILL).await;
    let since = "now() - interval '30 days'";
    let arguments = format!("'kernel', date_trunc('day', {since}) + interval '1 day', {since}, null");
    let plan = database.explain_buffers(&query_text("queries::statistics"), &arguments).await;
    assert!(plan.text.contains("rollups_pkey"), "{}", plan.text);
    for other in ["Seq Scan on rollups", "jobs", "attempts"] {
        assert!(!plan.text.contains(other), "{other}:\n{}", plan.text);
    }
    assert!(plan.buffers <= BUFFERS_MAX, "{} buffers:\n{}", plan.buffers, plan.text);
}
