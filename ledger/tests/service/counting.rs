//! Statistics count each attempt once, even if recorders are killed between their statements.

use chrono::DateTime;
use gpufleet_ledger::{Ledger, StatisticsFilter, recorder::Store};
use gpufleet_schema::JobId;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::{
    ground::{Ground, succeeded},
    poll::poll,
};

/// The tables that a transaction of the recorder locks, in this order, and the table of merged statistics.
const TABLES: [&str; 5] = ["jobs", "attempts", "rollup_deltas", "job_inputs", "rollups"];

async fn counted(ledger: &Ledger) -> (u64, u64) {
    let filter = StatisticsFilter { by: None, since: DateTime::UNIX_EPOCH, pool: None };
    let rows = ledger.statistics(&filter).await.unwrap().rows;
    (rows.iter().map(|row| row.jobs).sum(), rows.iter().map(|row| row.device_us).sum())
}

async fn summed(connection: &mut PgConnection) -> (u64, u64) {
    let sql = "select count(*), coalesce(sum(total_us), 0)::bigint from attempts";
    let (jobs, us): (i64, i64) = sqlx::query_as(sql).fetch_one(connection).await.unwrap();
    (jobs.unsigned_abs(), us.unsigned_abs())
}

#[tokio::test]
async fn a_recorder_killed_between_any_two_statements_counts_every_attempt_once() {
    let ground = Ground::fresh().await;
    let ledger = ground.ledger().await;
    let mut other = PgConnection::connect(&ground.database_url).await.unwrap();
    let mut store = Store::connect(ground.url()).await.unwrap();
    // All partitions exist from here on, so that a recorder waits only for the locked table.
    assert_eq!(store.record(&[succeeded(JobId::new())]).await.unwrap(), []);
    let mut jobs = 1;
    for table in TABLES {
        let mut blocker = PgConnection::connect(&ground.database_url).await.unwrap();
        let lock = format!("begin; lock table {table} in share row exclusive mode");
        blocker.execute(AssertSqlSafe(lock)).await.unwrap();
        // Two equal batches, because a batch may arrive twice.
        let events = [(); 5].map(|()| succeeded(JobId::new()));
        ground.publish(&events).await;
        ground.publish(&events).await;
        jobs += events.len();
        let recorder = ground.start_recorder();
        let blocked = format!(
            "select count(*) from pg_locks where relation = '{table}'::regclass and not granted and database = \
             (select oid from pg_database where datname = current_database())"
        );
        poll("the recorder waits for the table", async || {
            sqlx::query_scalar::<_, i64>(AssertSqlSafe(blocked.clone())).fetch_one(&mut other).await.unwrap() > 0
        })
        .await;
        recorder.kill9().await;
        // When the blocked statement ends, the server notices that the client is gone, and commits nothing.
        blocker.execute("rollback").await.unwrap();
        let recorder = ground.record().await;
        ground.poll_recorded(jobs).await;
        assert_eq!(counted(&ledger).await, summed(&mut other).await, "killed at {table}");
        store.upkeep().await.unwrap();
        assert_eq!(counted(&ledger).await, summed(&mut other).await, "merged after a kill at {table}");
        assert_eq!(counted(&ledger).await.0, jobs as u64);
        assert_eq!(recorder.stop().await, Some(0), "{}", recorder.log());
    }
}
