//! Migrations of a ledger that has rows: they stay true, and whoever is recording meanwhile goes on.

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

/// With the end's [`old_timings`].
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
async fn attempts_from_before_there_were_blobs_have_fetched_nothing() {
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

/// It ends now, by what this release's recorder writes.
async fn end(store: &mut Store, job_id: JobId, attempt: u32) {
    let rejected = store.record(&[finished(job_id, attempt, AttemptState::Succeeded, AT)]).await.unwrap();
    assert_eq!(rejected, []);
}

#[tokio::test]
async fn a_recorder_that_the_addition_of_fetch_us_finds_at_work_loses_no_event() {
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
async fn an_attempt_has_fetched_something_only_once_it_has_ended() {
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
