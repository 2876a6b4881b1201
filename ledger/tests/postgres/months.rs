//! Partitions by month: every job has one row, in the month of its id or of its first event, and creating a month scans nothing.

use chrono::{Datelike as _, Duration, Utc};
use gpufleet_ledger::{Ledger, analysis::analyze_if_due, migrate::migrate, recorder::Store};
use gpufleet_schema::{AttemptState, JobId, JobState};

use crate::{
    database::Database,
    histories::{finished, id, info, started},
    poll::poll,
};

/// The last version whose default partition held every job without a time.
const BEFORE_KEYS: i64 = 8;

/// Returns the time this many days ago, in milliseconds since 1970.
fn days_ago(days: i64) -> i64 {
    (Utc::now() - Duration::days(days)).timestamp_millis()
}

/// Returns the first day of the month this many days ago.
fn month_of(days: i64) -> String {
    (Utc::now() - Duration::days(days)).date_naive().with_day(1).unwrap().to_string()
}

/// Returns the months of a job's rows.
async fn months(database: &Database, job_id: JobId) -> String {
    let sql = format!("select date_trunc('month', id_at at time zone 'UTC')::date from jobs where job_id = '{job_id}'");
    database.execute(&sql).await.trim().to_owned()
}

async fn assert_catch_alls_are_empty(database: &Database) {
    assert_eq!(database.execute("select count(*) from jobs_untimed").await.trim(), "0");
    assert_eq!(database.execute("select count(*) from jobs_default").await.trim(), "0");
}

async fn state(ledger: &Ledger, job_id: JobId) -> JobState {
    ledger.job(job_id).await.unwrap().expect("it is recorded").job.state
}

#[tokio::test]
async fn a_job_without_a_time_stays_in_the_month_of_its_first_event() {
    let (database, mut store, ledger) = Database::opened().await;
    let job = info(id(40, 0, None), days_ago(70));
    let start = started(&job, 1, days_ago(70));
    let end = finished(job.job_id, 1, AttemptState::Succeeded, days_ago(0));
    store.record(std::slice::from_ref(&start)).await.unwrap();
    assert_eq!(
        (months(&database, job.job_id).await, state(&ledger, job.job_id).await),
        (month_of(70), JobState::Running)
    );
    // Another recorder, which has not seen the job.
    let mut other = Store::connect(database.url()).await.unwrap();
    other.record(&[end, start]).await.unwrap();
    assert_eq!(
        (months(&database, job.job_id).await, state(&ledger, job.job_id).await),
        (month_of(70), JobState::Succeeded)
    );
    assert_catch_alls_are_empty(&database).await;
}

#[tokio::test]
async fn a_job_whose_id_is_of_another_age_is_in_the_month_of_its_first_event() {
    let (database, mut store, ledger) = Database::opened().await;
    for (index, made) in [days_ago(-3650), days_ago(3650)].into_iter().enumerate() {
        let job_id = id(41, u32::try_from(index).unwrap(), Some(made));
        let ends = [AttemptState::Lost, AttemptState::Failed].map(|state| finished(job_id, 1, state, days_ago(0)));
        for end in ends {
            store.record(&[end]).await.unwrap();
        }
        assert_eq!((months(&database, job_id).await, state(&ledger, job_id).await), (month_of(0), JobState::Failed));
    }
    assert_catch_alls_are_empty(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_recorders_of_one_job_in_two_months_make_one_row() {
    let database = Database::fresh().await;
    let jobs: Vec<_> = (0..200).map(|index| info(id(42, index, None), days_ago(40))).collect();
    let starts: Vec<_> = jobs.iter().map(|job| started(job, 1, days_ago(40))).collect();
    let ends: Vec<_> =
        jobs.iter().rev().map(|job| finished(job.job_id, 1, AttemptState::Succeeded, days_ago(0))).collect();
    let record = |events: Vec<gpufleet_schema::Event>| {
        let url = database.url();
        tokio::spawn(async move {
            let mut store = Store::connect(url).await.unwrap();
            for batch in events.chunks(10) {
                assert_eq!(store.record(batch).await.unwrap(), []);
            }
        })
    };
    let (one, other) = tokio::join!(record(starts), record(ends));
    one.unwrap();
    other.unwrap();
    let counted = database
        .execute("select count(*), count(distinct job_id), count(*) filter (where state = 'succeeded') from jobs")
        .await;
    assert_eq!(counted.trim(), "200|200|200");
    assert_catch_alls_are_empty(&database).await;
}

/// A scan of the table would block all recorders, for longer in a larger table.
#[tokio::test]
async fn making_a_month_scans_no_jobs() {
    let database = Database::of_version(BEFORE_KEYS).await;
    database
        .execute(
            "insert into jobs (job_id, id_at, created_at, state)
             select gen_random_uuid(), 'epoch', now(), 'queued' from generate_series(1, 1000)",
        )
        .await;
    // A session reports its counts when it ends, before it disappears from this view.
    let others = "select count(*) from pg_stat_activity
                  where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
    let counted = async |table: &str| {
        poll("the earlier sessions have ended", async || database.execute(others).await.trim() == "0").await;
        database.execute(&format!("select seq_scan from pg_stat_user_tables where relname = '{table}'")).await
    };
    let scans = async |table: &str, month: &str| {
        let before = counted(table).await;
        let make = format!("select ensure_jobs_partition(now() + interval '{month}')");
        assert_eq!(database.execute(&make).await.trim(), "t");
        before != counted(table).await
    };
    assert!(scans("jobs_default", "3 months").await, "as it was, which shows that the count tells");
    migrate(&database.url()).await.unwrap();
    assert_eq!(database.execute("select count(*) from jobs_untimed").await.trim(), "1000");
    assert!(!scans("jobs_untimed", "4 months").await);
}

#[tokio::test]
async fn the_tables_that_have_partitions_are_analyzed_once_a_day() {
    let database = Database::fresh().await;
    assert!(analyze_if_due(&database.url()).await.unwrap());
    let counted =
        "select count(*) from pg_stat_user_tables where relname in ('jobs', 'attempts') and last_analyze is not null";
    poll("both are analyzed", async || database.execute(counted).await.trim() == "2").await;
    assert!(!analyze_if_due(&database.url()).await.unwrap());
}
