//! Migrations of a ledger that has rows: the rows stay correct, and a concurrent recorder continues.

use gpufleet_ledger::{
    AttemptRow, Ledger,
    migrate::{Migrated, migrate, version_needed},
    recorder::Store,
};
use gpufleet_schema::{AttemptState, JobId, Timings};

use crate::{
    database::Database,
    histories::{finished, id, timings},
};

const AT: i64 = 1_763_164_800_000;
/// The last version without `attempts.fetch_us`.
const BEFORE_FETCH: i64 = 7;
/// The last version in which every job without a time was in the default partition.
const BEFORE_KEYS: i64 = 8;

/// A job as a recorder of that version wrote it, whose id has no time.
fn old_job(job_id: JobId) -> String {
    format!("insert into jobs (job_id, id_at, created_at, state) values ('{job_id}', 'epoch', now(), 'queued')")
}

fn old_start(job_id: JobId, attempt: u32) -> String {
    format!(
        "insert into attempts (job_id, attempt, state, worker, started_at)
         values ('{job_id}', {attempt}, 'running', 'worker-1', now())"
    )
}

/// An end with [`old_timings`].
fn old_end(job_id: JobId, attempt: u32) -> String {
    format!(
        "insert into attempts (job_id, attempt, state, worker, finished_at, output_bytes, queue_us, wait_us, compile_us,
                               load_us, copy_in_us, launches_us, copy_out_us, total_us, device_bytes_peak, module_cached)
         values ('{job_id}', {attempt}, 'lost', 'worker-1', now(), 0, 10, 20, 40, 50, 60, '{{3, 4}}', 70, 90, 80, true)
         on conflict (job_id, attempt) do update set
            state = excluded.state, finished_at = excluded.finished_at, output_bytes = excluded.output_bytes,
            queue_us = excluded.queue_us, wait_us = excluded.wait_us, compile_us = excluded.compile_us,
            load_us = excluded.load_us, copy_in_us = excluded.copy_in_us, launches_us = excluded.launches_us,
            copy_out_us = excluded.copy_out_us, total_us = excluded.total_us,
            device_bytes_peak = excluded.device_bytes_peak, module_cached = excluded.module_cached"
    )
}

fn old_timings() -> Timings {
    Timings {
        queue_us: 10,
        wait_us: 20,
        fetch_us: 0,
        compile_us: 40,
        load_us: 50,
        copy_in_us: 60,
        launches_us: vec![3, 4],
        copy_out_us: 70,
        total_us: 90,
        device_bytes_peak: 80,
        module_cached: true,
    }
}

async fn told(ledger: &Ledger, job_id: JobId) -> Vec<(AttemptState, Option<Timings>)> {
    let detail = ledger.job(job_id).await.unwrap().expect("it is recorded");
    detail.attempts.into_iter().map(|AttemptRow { state, timings, .. }| (state, timings)).collect()
}

#[tokio::test]
async fn attempts_recorded_before_fetch_us_existed_have_zero() {
    let database = Database::of_version(BEFORE_FETCH).await;
    let job_id = id(31, 0, None);
    for statement in [old_job(job_id), old_start(job_id, 1), old_end(job_id, 1), old_start(job_id, 2)] {
        database.execute(&statement).await;
    }
    let migrated = migrate(&database.url()).await.unwrap();
    assert_eq!(migrated, Migrated { from: BEFORE_FETCH, to: version_needed() });
    let (mut store, ledger) = database.open().await;
    let lost = (AttemptState::Lost, Some(old_timings()));
    assert_eq!(told(&ledger, job_id).await, [lost.clone(), (AttemptState::Running, None)]);

    end(&mut store, job_id, 2).await;
    assert_eq!(told(&ledger, job_id).await, [lost, (AttemptState::Succeeded, Some(timings(2)))]);
}

/// The attempt ends now, written by this release's recorder.
async fn end(store: &mut Store, job_id: JobId, attempt: u32) {
    let rejected = store.record(&[finished(job_id, attempt, AttemptState::Succeeded, AT)]).await.unwrap();
    assert_eq!(rejected, []);
}

#[tokio::test]
async fn a_running_recorder_loses_no_event_when_a_migration_adds_fetch_us() {
    let database = Database::of_version(BEFORE_FETCH).await;
    let job_id = id(31, 1, None);
    database.execute(&old_job(job_id)).await;
    database.execute(&old_start(job_id, 1)).await;
    database.advance_to(BEFORE_FETCH + 1).await;
    for statement in [old_end(job_id, 1), old_start(job_id, 2), old_end(job_id, 2), old_end(job_id, 3)] {
        database.execute(&statement).await;
    }
    migrate(&database.url()).await.unwrap();
    let ledger = Ledger::connect(database.url()).await.unwrap();
    let lost = || (AttemptState::Lost, Some(old_timings()));
    assert_eq!(told(&ledger, job_id).await, [lost(), lost(), lost()]);
}

#[tokio::test]
async fn only_an_ended_attempt_has_a_fetch_time() {
    let database = Database::fresh().await;
    let (mut store, ledger) = database.open().await;
    let job_id = id(31, 2, None);
    end(&mut store, job_id, 1).await;
    database.execute(&old_start(job_id, 2)).await;
    let running = "update attempts set fetch_us = 1 where finished_at is null";
    assert!(database.refusal(running).await.contains("attempts_running_has_no_fetch"));
    let ended = "update attempts set fetch_us = null where finished_at is not null";
    assert!(database.refusal(ended).await.contains("not-null"));
    let kept = [(AttemptState::Succeeded, Some(timings(1))), (AttemptState::Running, None)];
    assert_eq!(told(&ledger, job_id).await, kept);
}

/// The number of rows of a job, of the partition of jobs without a time, and of the default partition.
async fn rows(database: &Database, job_id: JobId) -> String {
    let counts = format!(
        "select (select count(*) from jobs where job_id = '{job_id}'), (select count(*) from jobs_untimed), (select count(*) from jobs_default)"
    );
    database.execute(&counts).await.trim().to_owned()
}

#[tokio::test]
async fn jobs_recorded_before_job_keys_existed_keep_their_rows() {
    let database = Database::of_version(BEFORE_KEYS).await;
    let (untimed, far_off) = (id(32, 0, None), id(32, 1, Some(AT + 20 * 365 * 86_400_000)));
    let in_id = format!("to_timestamp(('x' || translate(left('{far_off}', 13), '-', ''))::bit(48)::bigint / 1000.0)");
    let far_off_job = old_job(far_off).replace("'epoch'", &in_id);
    for statement in [old_job(untimed), old_start(untimed, 1), far_off_job, old_start(far_off, 1)] {
        database.execute(&statement).await;
    }
    migrate(&database.url()).await.unwrap();
    let (mut store, ledger) = database.open().await;
    for job_id in [untimed, far_off] {
        end(&mut store, job_id, 1).await;
        assert_eq!(rows(&database, job_id).await, "1|1|1");
        assert_eq!(told(&ledger, job_id).await, [(AttemptState::Succeeded, Some(timings(1)))]);
    }
}

#[tokio::test]
async fn a_recorder_without_job_keys_and_a_current_one_make_one_row_of_a_job() {
    let database = Database::of_version(BEFORE_KEYS).await;
    migrate(&database.url()).await.unwrap();
    let (mut store, ledger) = database.open().await;
    let (old_first, new_first) = (id(33, 0, None), id(33, 1, None));
    for statement in [old_job(old_first), old_start(old_first, 1)] {
        database.execute(&statement).await;
    }
    end(&mut store, old_first, 1).await;
    assert_eq!(rows(&database, old_first).await, "1|1|0");
    assert_eq!(told(&ledger, old_first).await, [(AttemptState::Succeeded, Some(timings(1)))]);

    end(&mut store, new_first, 1).await;
    let refusal = database.refusal(&old_job(new_first)).await;
    assert!(refusal.contains("upgrade the recorder"), "{refusal}");
    assert_eq!(rows(&database, new_first).await, "1|1|0");
}
