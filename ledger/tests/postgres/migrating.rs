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
/// The last version in which all attempts were in one table.
const BEFORE_MONTHS: i64 = 12;
/// The migration from which new attempts are copied. The next one copies the others.
const COPYING: i64 = 13;
const COPIED: i64 = 14;
/// The variable for the number of attempts in a large table; by default as many as take a second to copy. The migration copies ten thousand
/// at a time.
const ROWS_VARIABLE: &str = "GPUFLEET_TEST_MIGRATED_ATTEMPTS";
const ROWS_DEFAULT: u32 = 30_000;

/// Inserts a job whose id has no time, as a recorder of the old version wrote it.
fn old_job(job_id: JobId) -> String {
    format!("insert into jobs (job_id, id_at, created_at, state) values ('{job_id}', 'epoch', now(), 'queued')")
}

fn old_start(job_id: JobId, attempt: u32) -> String {
    format!(
        "insert into attempts (job_id, attempt, state, worker, started_at)
         values ('{job_id}', {attempt}, 'running', 'worker-1', now())"
    )
}

/// Inserts the start of an attempt into the tables of this release.
fn start(job_id: JobId, attempt: u32) -> String {
    format!(
        "insert into attempts (job_id, id_at, attempt, state, worker, started_at)
         select job_id, id_at, {attempt}, 'running', 'worker-1', now() from jobs where job_id = '{job_id}'"
    )
}

/// Inserts an end with [`old_timings`], as a recorder of the old version wrote it.
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

/// Ends the attempt now, with this release's recorder.
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
    let (database, mut store, ledger) = Database::opened().await;
    let job_id = id(31, 2, None);
    end(&mut store, job_id, 1).await;
    database.execute(&start(job_id, 2)).await;
    let running = "update attempts set fetch_us = 1 where finished_at is null";
    assert!(database.refusal(running).await.contains("attempts_running_has_no_fetch"));
    let ended = "update attempts set fetch_us = null where finished_at is not null";
    assert!(database.refusal(ended).await.contains("not-null"));
    let kept = [(AttemptState::Succeeded, Some(timings(1))), (AttemptState::Running, None)];
    assert_eq!(told(&ledger, job_id).await, kept);
}

/// Counts the rows of a job: all, those in the partition of jobs without a time, and those in the default partition.
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
    for statement in [old_job(old_first), start(old_first, 1)] {
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

/// Inserts jobs of three months with one attempt each, as a recorder of the old version wrote them: most have a time in their ids, some
/// have a key, and some are older than keys.
async fn fill(database: &Database) -> u32 {
    let rows = std::env::var(ROWS_VARIABLE).map_or(ROWS_DEFAULT, |rows| rows.parse().expect("a number of rows"));
    let statements = format!(
        "select ensure_jobs_partition(month) from generate_series(timestamptz '2026-08-15', '2026-10-15', interval '1 month') as month;
         create temporary table made as
         select (case number % 10
                     when 9 then md5(number::text)
                     else lpad(to_hex(ms), 12, '0') || '7' || substr(md5(number::text), 1, 3) || '8' || substr(md5(number::text), 4, 15)
                 end)::uuid as job_id,
                number, to_timestamp(ms / 1000) + (ms % 1000) * interval '1 millisecond' as at
         from (select number, 1786000000123 + number::bigint * (75 * 86400000::bigint / {rows}) as ms
               from generate_series(1, {rows}) as number) as numbers;
         update made set job_id = overlay(job_id::text placing '4' from 15)::uuid where number % 10 = 9;
         insert into job_keys select job_id, at from made where number % 20 = 9;
         insert into jobs (job_id, id_at, created_at, state)
         select job_id, case when number % 20 = 19 then 'epoch' else at end, at, 'queued' from made;
         insert into attempts (job_id, attempt, state, worker, started_at) select job_id, 1, 'running', 'worker-1', at from made"
    );
    database.execute_slowly(&statements).await;
    rows
}

/// Counts the attempts: all, those with the key of their job, and those in the partition of their job's month.
const PLACED: &str = "select concat_ws('|', count(*), count(j.job_id), count(*) filter (where replace(a.tableoid::regclass::text, 'attempts', 'jobs') = j.tableoid::regclass::text))
     from attempts a left join jobs j on j.job_id = a.job_id and j.id_at = a.id_at";

#[tokio::test]
async fn attempts_move_to_the_months_of_their_jobs_while_a_recorder_writes() {
    let database = Database::of_version(BEFORE_MONTHS).await;
    let rows = fill(&database).await;
    let (before, during, after) = (id(34, 0, Some(AT)), id(34, 1, None), id(34, 2, Some(AT)));
    database.execute("select ensure_jobs_partition(to_timestamp(1763164800))").await;
    for job_id in [before, during, after] {
        let at = if job_id == during { "'epoch'" } else { "to_timestamp(1763164800)" };
        database.execute(&old_job(job_id).replace("'epoch'", at)).await;
    }
    database.execute(&old_start(before, 1)).await;
    database.advance_to(COPYING).await;
    database.execute(&old_start(during, 1)).await;
    database.execute(&old_end(before, 1)).await;
    // A writer that fails if it waits for a lock for 300 ms.
    let writer = async {
        let mut writes = 0;
        while database.execute("select max(version) from _sqlx_migrations").await.trim() != COPIED.to_string() {
            writes += 1;
            database.execute(&format!("set lock_timeout = '300ms'; {}", old_end(after, writes))).await;
        }
        writes
    };
    let (writes, ()) = tokio::join!(writer, database.advance_to(COPIED));
    database.execute(&old_end(during, 1)).await;
    database.execute(&old_start(after, writes + 1)).await;
    migrate(&database.url()).await.unwrap();

    let all = rows + 3 + writes;
    assert_eq!(database.read_slowly(PLACED).await, format!("{all}|{all}|{all}"));
    let (mut store, ledger) = database.open().await;
    let lost = (AttemptState::Lost, Some(old_timings()));
    assert_eq!(told(&ledger, during).await, std::slice::from_ref(&lost));
    assert_eq!(told(&ledger, before).await, std::slice::from_ref(&lost));
    end(&mut store, after, writes + 1).await;
    let told = told(&ledger, after).await;
    assert_eq!(told.len(), writes as usize + 1);
    assert_eq!(told.last().unwrap().0, AttemptState::Succeeded);
}

#[tokio::test]
async fn a_recorder_without_months_is_refused_whole_and_the_current_one_records_its_events() {
    let database = Database::of_version(BEFORE_MONTHS).await;
    let job_id = id(35, 0, None);
    database.execute(&old_job(job_id)).await;
    database.execute(&old_start(job_id, 1)).await;
    migrate(&database.url()).await.unwrap();
    // The recorder treats this as tables of another version, and returns its messages to the broker.
    let refusal =
        database.refusal(&format!("begin; {}; {}; commit", old_job(id(35, 1, None)), old_end(job_id, 1))).await;
    assert!(refusal.contains("no unique or exclusion constraint matching"), "{refusal}");
    assert_eq!(database.execute("select count(*) from jobs").await.trim(), "1");
    let (mut store, ledger) = database.open().await;
    end(&mut store, job_id, 1).await;
    assert_eq!(told(&ledger, job_id).await, [(AttemptState::Succeeded, Some(timings(1)))]);
}

#[tokio::test]
async fn a_copy_of_attempts_that_was_interrupted_is_repeated_without_harm() {
    let database = Database::of_version(BEFORE_MONTHS).await;
    let rows = fill(&database).await;
    database.advance_to(COPIED).await;
    // Simulates a session that ended before it noted that everything was copied, with some rows missing.
    database.execute(&format!("delete from _sqlx_migrations where version = {COPIED}")).await;
    database.execute("delete from attempts_by_month where job_id < '40000000-0000-0000-0000-000000000000'").await;
    migrate(&database.url()).await.unwrap();
    assert_eq!(database.read_slowly(PLACED).await, format!("{rows}|{rows}|{rows}"));
}
