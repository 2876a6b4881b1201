//! Retired partitions, which belong to no table any more, and the rows of other tables that go with them.

use std::fmt;

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use uuid::Uuid;

/// The number of jobs whose rows in other tables are deleted in one transaction, so that no recorder waits for long.
const JOBS_PER_TRANSACTION: i64 = 2000;

/// A detached partition: `retired_jobs_2025_10_1763622000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Retired {
    name: String,
}

impl Retired {
    /// Returns the name of the month and the time at which it was retired.
    pub(super) fn file_stem(&self) -> &str {
        self.name.strip_prefix(PREFIX).expect("it was found by this prefix")
    }

    /// Returns whether the partition is archived. Samples of devices are not.
    pub(super) fn is_archived(&self) -> bool {
        !self.file_stem().starts_with("device_samples_")
    }

    fn has_jobs(&self) -> bool {
        self.file_stem().starts_with("jobs_")
    }
}

const PREFIX: &str = "retired_";

impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Lists all retired partitions, including those of interrupted runs.
pub(super) async fn list(connection: &mut PgConnection) -> Result<Vec<Retired>, sqlx::Error> {
    sqlx::query_as!(
        Retired,
        r#"/* retention::retired */
        select relname::text as "name!" from pg_class
        where relkind = 'r' and relname ~ '^retired_(jobs_\d{4}_\d{2}|attempts_\d{4}_\d{2}|device_samples_\d{4}_\d{2}_\d{2})_\d+$' and pg_table_is_visible(oid)
        order by 1"#
    )
    .fetch_all(connection)
    .await
}

/// Deletes the rows of other tables that belong to its jobs, then drops the partition.
pub(super) async fn drop(connection: &mut PgConnection, partition: &Retired) -> Result<(), sqlx::Error> {
    if partition.has_jobs() {
        let jobs =
            format!("select job_id from {partition} where job_id > $1 order by job_id limit {JOBS_PER_TRANSACTION}");
        let mut last = Uuid::nil();
        loop {
            let ids: Vec<Uuid> =
                sqlx::query_scalar(AssertSqlSafe(jobs.as_str())).bind(last).fetch_all(&mut *connection).await?;
            let Some(id) = ids.last() else { break };
            last = *id;
            delete(connection, &ids).await?;
        }
    }
    connection.execute(AssertSqlSafe(format!("drop table {partition}"))).await?;
    Ok(())
}

/// Deletes the rows of other tables that belong to these jobs.
async fn delete(connection: &mut PgConnection, job_ids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query!("/* retention::outputs */ delete from job_outputs where job_id = any($1)", job_ids)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("/* retention::inputs */ delete from job_inputs where job_id = any($1)", job_ids)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("/* retention::keys */ delete from job_keys where job_id = any($1)", job_ids)
        .execute(connection)
        .await?;
    Ok(())
}
