//! Months that are past their retention time: what is deleted with them, in which order, and who has to wait.

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use arrow_array::cast::AsArray as _;
use chrono::Utc;
use gpufleet_ledger::{
    Ledger,
    recorder::Store,
    retention::{KeepError, Keeper, Kept, Outcome, keep},
};
use gpufleet_schema::{
    AttemptFinished, AttemptState, BlobDigest, Dtype, Event, JobId, JobInfo, KeptData, KeptOutput, KeptOutputs,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::{
    database::Database,
    histories::{id, info, ran, started},
    poll::poll,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const JOBS_FOR_400_DAYS: Kept =
    Kept { jobs: Some(Duration::from_secs(400 * 24 * 3600)), attempts: None, samples: None, actions: None };
/// The number of jobs in a transaction. Each job has two events.
const JOBS_OF_A_TRANSACTION: u32 = 2000;
/// The options of other sessions: none of their statements may wait longer for a lock.
const WAIT_MAX: &str = "options[lock_timeout]=300ms";

fn days_ago(days: i64) -> i64 {
    (Utc::now() - chrono::Duration::days(days)).timestamp_millis()
}

/// Returns a job that uses a blob and keeps an output. If the number is odd, its id has no time.
fn job(number: u32, days: i64) -> JobInfo {
    let blob: BlobDigest = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
    let at = days_ago(days);
    JobInfo { blobs: vec![blob], ..info(id(50, number, number.is_multiple_of(2).then_some(at)), at) }
}

fn ended(job: &JobInfo, days: i64) -> Event {
    let Event::AttemptFinished(end) = ran(job, 1, AttemptState::Succeeded, days_ago(days), days_ago(days) + 9) else {
        unreachable!()
    };
    let output = KeptOutput { name: "y".into(), dtype: Dtype::U8, shape: vec![1], data: KeptData::Inline(vec![7]) };
    let kept = Some(Box::new(KeptOutputs { expires_ms: days_ago(-1), outputs: vec![output] }));
    Event::AttemptFinished(AttemptFinished { kept, ..end })
}

/// Records two jobs each from 500 days ago, from 100 days ago and from today.
async fn fill(store: &mut Store) -> Vec<JobId> {
    let ages = [500, 500, 100, 100, 0, 0];
    let jobs: Vec<(JobInfo, i64)> = ages.into_iter().zip(0..).map(|(days, number)| (job(number, days), days)).collect();
    let events: Vec<Event> = jobs.iter().map(|(job, days)| ended(job, *days)).collect();
    assert_eq!(store.record(&events).await.unwrap(), []);
    jobs.into_iter().map(|(job, _)| job.job_id).collect()
}

/// Counts the rows of each table that has rows of every job. Every second job has a key.
async fn rows(database: &Database) -> String {
    let tables = ["jobs", "attempts", "job_outputs", "job_inputs", "job_keys"];
    let counts: Vec<String> = tables.iter().map(|table| format!("(select count(*) from {table})")).collect();
    database.execute(&format!("select {}", counts.join(", "))).await.trim().to_owned()
}

async fn retired(database: &Database) -> String {
    database
        .execute("select relname from pg_class where relname like 'retired%' and relkind = 'r' order by 1")
        .await
        .trim()
        .to_owned()
}

async fn run(database: &Database, kept: Kept) -> Outcome {
    keep(&database.url(), kept, None).await.unwrap()
}

#[tokio::test]
async fn old_months_go_with_everything_that_belongs_to_their_jobs() {
    let (database, mut store, ledger) = Database::opened().await;
    let jobs = fill(&mut store).await;
    assert_eq!(rows(&database).await, "6|6|6|6|3");
    assert_eq!(run(&database, JOBS_FOR_400_DAYS).await, Outcome::Dropped(2));
    assert_eq!(rows(&database).await, "4|4|4|4|2");
    assert_eq!(retired(&database).await, "");
    for (job_id, is_kept) in jobs.iter().zip([false, false, true, true, true, true]) {
        assert_eq!(ledger.job(*job_id).await.unwrap().is_some(), is_kept);
    }
    assert_eq!(run(&database, JOBS_FOR_400_DAYS).await, Outcome::Dropped(0));
}

#[tokio::test]
async fn attempts_may_go_earlier_than_their_jobs() {
    let (database, mut store, ledger) = Database::opened().await;
    let jobs = fill(&mut store).await;
    let kept = Kept { attempts: Some(60 * DAY), ..JOBS_FOR_400_DAYS };
    assert_eq!(run(&database, kept).await, Outcome::Dropped(3));
    assert_eq!(rows(&database).await, "4|2|4|4|2");
    let old = ledger.job(jobs[2]).await.unwrap().unwrap();
    assert_eq!((old.job.attempts, old.job.worker, old.attempts.len(), old.outputs.len()), (0, None, 0, 1));
}

#[tokio::test]
async fn what_belongs_to_late_jobs_of_a_dropped_month_goes_with_them() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store).await;
    run(&database, JOBS_FOR_400_DAYS).await;
    let kept = rows(&database).await;
    // The recorder does not know yet that their month is gone.
    let late = [job(70, 500), job(71, 500)].map(|job| ended(&job, 500));
    store.record(&late).await.unwrap();
    assert_eq!(database.execute("select count(*) from jobs_default").await.trim(), "2");
    assert_eq!(run(&database, JOBS_FOR_400_DAYS).await, Outcome::Dropped(0));
    assert_eq!(rows(&database).await, kept);
}

#[tokio::test]
async fn an_event_for_a_dropped_month_is_recorded_and_dropped_with_the_next() {
    let (database, mut store, ledger) = Database::opened().await;
    fill(&mut store).await;
    run(&database, JOBS_FOR_400_DAYS).await;
    // At first the recorder does not know that the month is gone; then it does.
    let late = [job(60, 500), job(61, 500), job(62, 500)];
    store.record(&[ended(&late[0], 500)]).await.unwrap();
    assert_eq!(database.execute("select count(*) from jobs_default").await.trim(), "1");
    store.upkeep().await.unwrap();
    store.record(&[ended(&late[1], 500), started(&late[2], 1, days_ago(500))]).await.unwrap();
    assert_eq!(database.execute("select count(*) from jobs_default").await.trim(), "0");
    for job in &late {
        assert!(ledger.job(job.job_id).await.unwrap().is_some());
    }
    run(&database, JOBS_FOR_400_DAYS).await;
    assert_eq!(rows(&database).await, "4|4|4|4|2");
}

#[tokio::test]
async fn a_run_that_is_interrupted_anywhere_is_finished_by_the_next() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store).await;
    for milliseconds in (0..60).step_by(6) {
        let old = [job(0, 500), job(1, 500)].map(|job| ended(&job, 500));
        assert_eq!(store.record(&old).await.unwrap(), []);
        let url = database.url();
        let interrupted = keep(&url, JOBS_FOR_400_DAYS, None);
        tokio::time::timeout(Duration::from_millis(milliseconds), interrupted).await.ok();
        // The server may not have noticed yet that the session has ended.
        poll("the next run finishes", async || run(&database, JOBS_FOR_400_DAYS).await != Outcome::Busy).await;
        assert_eq!((rows(&database).await.as_str(), retired(&database).await.as_str()), ("4|4|4|4|2", ""));
        store.upkeep().await.unwrap();
    }
}

#[tokio::test]
async fn nobody_waits_for_a_month_that_somebody_reads() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store).await;
    let mut reader = PgConnection::connect(&database.text_url()).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    reading.execute("select count(*) from jobs").await.unwrap();
    let impatient = format!("{}&{WAIT_MAX}", database.text_url());
    let mut other = PgConnection::connect(&impatient).await.unwrap();
    let mut store = Store::connect(impatient.parse().unwrap()).await.unwrap();

    let has_finished = AtomicBool::new(false);
    let refusals = || database.log().matches("canceling statement due to lock timeout").count();
    let before = refusals();
    let keeping = async {
        let outcome = run(&database, JOBS_FOR_400_DAYS).await;
        has_finished.store(true, Ordering::Relaxed);
        outcome
    };
    let others = async {
        let mut number = 100;
        // The run gives up a few times, and others work in between.
        while refusals() < before + 3 {
            other.execute("select count(*) from jobs").await.unwrap();
            assert_eq!(store.record(&[ended(&job(number, 0), 0)]).await.unwrap(), []);
            number += 2;
        }
        assert!(!has_finished.load(Ordering::Relaxed));
        reading.rollback().await.unwrap();
        while !has_finished.load(Ordering::Relaxed) {
            other.execute("select count(*) from jobs").await.unwrap();
        }
    };
    let (outcome, ()) = tokio::join!(keeping, others);
    assert_eq!(outcome, Outcome::Dropped(2));
    assert_eq!(
        database.execute("select count(*) from jobs where created_at < now() - interval '400 days'").await.trim(),
        "0"
    );
}

/// Records full transactions, one right after the other, until stopped.
async fn record_until(stop: CancellationToken, mut store: Store, recorded: &AtomicU32) {
    while !stop.is_cancelled() {
        let first = recorded.load(Ordering::Relaxed);
        let jobs = (first..first + JOBS_OF_A_TRANSACTION).map(|number| job(1000 + 2 * number, 0));
        let end = |job: &JobInfo| ran(job, 1, AttemptState::Succeeded, job.submitted_ms.unwrap(), days_ago(0));
        let events: Vec<Event> = jobs.flat_map(|job| [started(&job, 1, days_ago(0)), end(&job)]).collect();
        assert_eq!(store.record(&events).await.unwrap(), []);
        recorded.fetch_add(JOBS_OF_A_TRANSACTION, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_is_dropped_beside_a_busy_recorder_and_a_reader_who_never_wait_long() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store).await;
    let impatient = format!("{}&{WAIT_MAX}", database.text_url());
    let store = Store::connect(impatient.parse().unwrap()).await.unwrap();
    let mut reader = PgConnection::connect(&impatient).await.unwrap();
    let (stop, recorded) = (CancellationToken::new(), Arc::new(AtomicU32::new(0)));
    let recording = tokio::spawn({
        let (stop, recorded) = (stop.clone(), recorded.clone());
        async move { record_until(stop, store, &recorded).await }
    });
    let reading = tokio::spawn({
        let stop = stop.clone();
        async move {
            while !stop.is_cancelled() {
                reader.execute("select count(*) from jobs").await.unwrap();
            }
        }
    });
    poll("the recorder is busy", async || recorded.load(Ordering::Relaxed) > 0).await;
    assert_eq!(run(&database, JOBS_FOR_400_DAYS).await, Outcome::Dropped(2));
    stop.cancel();
    recording.await.unwrap();
    reading.await.unwrap();
    let jobs = 4 + recorded.load(Ordering::Relaxed);
    assert_eq!(database.execute("select count(*) from jobs").await.trim(), jobs.to_string());
}

/// Returns the ids in an archive file.
fn archived(file: &Path) -> Vec<String> {
    let batches = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap().build().unwrap();
    let ids = batches.flat_map(|batch| {
        let batch = batch.unwrap();
        let ids = batch.column_by_name("job_id").unwrap().as_string::<i32>();
        ids.iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    });
    ids.collect()
}

#[tokio::test]
async fn a_month_is_dropped_only_after_its_rows_are_in_the_archive() {
    let (database, mut store, _) = Database::opened().await;
    let jobs = fill(&mut store).await;
    let folder = tempfile::tempdir().unwrap();
    let not_a_folder = folder.path().join("file");
    std::fs::write(&not_a_folder, "").unwrap();
    let refused = keep(&database.url(), JOBS_FOR_400_DAYS, Some(&not_a_folder)).await;
    assert!(matches!(refused, Err(KeepError::Archive(_))), "{refused:?}");
    assert_eq!(retired(&database).await.lines().count(), 2);

    let archive = folder.path().join("archive");
    assert_eq!(keep(&database.url(), JOBS_FOR_400_DAYS, Some(&archive)).await.unwrap(), Outcome::Dropped(2));
    assert_eq!(retired(&database).await, "");
    let mut files: Vec<_> = std::fs::read_dir(&archive).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut expected: Vec<String> = jobs[..2].iter().map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(files.len(), 2, "one of attempts, one of jobs: {files:?}");
    for file in files {
        assert_eq!(archived(&file), expected, "{file:?}");
    }
}

#[tokio::test]
async fn one_of_two_scheduled_keepers_drops_what_is_old() {
    let (database, mut store, ledger) = Database::opened().await;
    let jobs = fill(&mut store).await;
    let stop = CancellationToken::new();
    let keepers = [(); 2].map(|()| {
        let keeper = Keeper::new(database.url(), JOBS_FOR_400_DAYS, None, Duration::from_millis(20));
        tokio::spawn(keeper.run(stop.clone()))
    });
    let gone = async |ledger: &Ledger, job_id| ledger.job(job_id).await.unwrap().is_none();
    poll("the old jobs are gone", async || gone(&ledger, jobs[0]).await && retired(&database).await.is_empty()).await;
    stop.cancel();
    for keeper in keepers {
        keeper.await.unwrap();
    }
    assert_eq!(rows(&database).await, "4|4|4|4|2");
}
