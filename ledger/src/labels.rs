//! Declares label keys. Each gets indexes, so that the history finds its jobs at any age.
//!
//! An index is built one partition at a time, without blocking writers. If the build is interrupted, the next `add` of the key continues
//! it.

use std::time::Duration;

use gpufleet_schema::bounds::TEXT_BYTES_MAX;
use serde::Serialize;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::{DatabaseUrl, LedgerError, database::Purpose, migrate, patience::patiently};

/// The pause between two attempts to become the only session that changes label keys.
const LEAD_AGAIN: Duration = Duration::from_millis(200);
/// The maximum number of declared keys. Each of them costs the recorder an index entry for every job that has the label.
pub const DECLARED_MAX: usize = 8;

/// A declared label key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeclaredLabel {
    pub key: String,
    /// Whether its index is complete. The history ignores incomplete indexes.
    pub is_ready: bool,
}

/// Why a key was not declared or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("{DECLARED_MAX} label keys have an index already: {}; remove one with `gpufleet-ledger labels remove`", keys.join(", "))]
    TooMany { keys: Vec<String> },
    #[error("the label key {key:?} is not declared; `gpufleet-ledger labels list` lists the keys")]
    Unknown { key: String },
    #[error("a label key has 1 to {TEXT_BYTES_MAX} bytes")]
    Length,
}

/// A declared key. It has two indexes, like the other filters of the history: one of all jobs, and one by state of the jobs that have not
/// succeeded.
struct Declared {
    number: i32,
    /// The key as an SQL literal.
    literal: String,
}

/// An index of a key. The table's index has a part for each partition.
struct Index {
    name: String,
    /// The suffix of a part's name, which follows the name of its partition.
    suffix: String,
    definition: String,
}

/// Declares a key and builds its indexes. If cancelled, the indexes stay incomplete, which slows no query.
pub async fn add(url: &DatabaseUrl, key: &str) -> Result<(), LabelError> {
    if key.is_empty() || key.len() > TEXT_BYTES_MAX {
        return Err(LabelError::Length);
    }
    let mut connection = lead(url).await?;
    declare(&mut connection, key).await.map_err(failed)?;
    let Some(declared) = find(&mut connection, key).await.map_err(failed)? else {
        let keys = read(&mut connection).await.map_err(failed)?;
        return Err(LabelError::TooMany { keys: keys.into_iter().map(|label| label.key).collect() });
    };
    for index in declared.indexes() {
        index.build(&mut connection).await.map_err(failed)?;
    }
    // The planner ignores an index if the statistics of its expression are missing.
    connection.execute("/* labels::analyze */ analyze jobs").await.map_err(failed)?;
    Ok(())
}

/// Lists the declared keys, even while another process changes them.
pub async fn list(url: &DatabaseUrl) -> Result<Vec<DeclaredLabel>, LabelError> {
    let mut connection = open(url).await?;
    Ok(read(&mut connection).await.map_err(failed)?)
}

/// Removes the indexes of a key. Jobs keep their labels.
pub async fn remove(url: &DatabaseUrl, key: &str) -> Result<(), LabelError> {
    let mut connection = lead(url).await?;
    let Some(declared) = find(&mut connection, key).await.map_err(failed)? else {
        return Err(LabelError::Unknown { key: key.to_owned() });
    };
    let [by_state, of_all] = declared.indexes().map(|index| index.name);
    let number = declared.number;
    let drop = format!("drop index if exists {of_all}, {by_state}; delete from label_keys where number = {number}");
    patiently(&mut connection, &drop).await.map_err(failed)?;
    Ok(())
}

async fn open(url: &DatabaseUrl) -> Result<PgConnection, LedgerError> {
    let mut connection = migrate::connect(url, Purpose::Maintain).await?;
    migrate::check_version(&mut connection).await?;
    Ok(connection)
}

/// Opens a session that is the only one to change label keys, until it ends. It polls for the lock, because a statement that waits for it
/// would hold a snapshot, and index builds wait for the end of snapshots.
async fn lead(url: &DatabaseUrl) -> Result<PgConnection, LedgerError> {
    let mut connection = open(url).await?;
    loop {
        let leads = sqlx::query_scalar!(
            r#"/* labels::lead */ select pg_try_advisory_lock(hashtext('gpufleet labels')) as "leads!""#
        );
        if leads.fetch_one(&mut connection).await.map_err(failed)? {
            return Ok(connection);
        }
        tokio::time::sleep(LEAD_AGAIN).await;
    }
}

fn failed(source: sqlx::Error) -> LedgerError {
    LedgerError::Database { operation: "changing the label keys", source }
}

async fn declare(connection: &mut PgConnection, key: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "/* labels::declare */
        insert into label_keys (number, key)
        select number, $1::text from generate_series(1, $2) as number
        where number not in (select number from label_keys)
        order by number limit 1
        on conflict (key) do nothing",
        key,
        DECLARED_MAX as i32,
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn find(connection: &mut PgConnection, key: &str) -> Result<Option<Declared>, sqlx::Error> {
    sqlx::query_as!(
        Declared,
        r#"/* labels::find */ select number, quote_literal(key) as "literal!" from label_keys where key = $1"#,
        key
    )
    .fetch_optional(connection)
    .await
}

async fn read(connection: &mut PgConnection) -> Result<Vec<DeclaredLabel>, sqlx::Error> {
    sqlx::query_as!(
        DeclaredLabel,
        r#"/* labels::read */
        select key, exists (
            select from pg_index where indexrelid = to_regclass('jobs_label_' || number) and indisvalid
        ) as "is_ready!"
        from label_keys order by number"#
    )
    .fetch_all(connection)
    .await
}

impl Declared {
    /// Returns the indexes to build, in order. The history uses the key when the last one is complete, so the others are complete by then.
    fn indexes(&self) -> [Index; 2] {
        let (number, value) = (self.number, format!("(labels ->> {})", self.literal));
        let index = |suffix: String, definition| Index { name: format!("jobs{suffix}"), suffix, definition };
        let by_state = format!("({value}, state, id_at, job_id) where {value} is not null and state <> 'succeeded'");
        // Not a partial index, because Postgres uses the statistics of an expression from whole indexes only.
        let of_all = format!("({value}, id_at, job_id)");
        [index(format!("_label_{number}_state"), by_state), index(format!("_label_{number}"), of_all)]
    }
}

impl Index {
    /// Builds the missing parts. The index is complete when the part of the last partition is attached.
    async fn build(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Self { name, suffix, definition } = self;
        patiently(connection, &format!("create index if not exists {name} on only jobs {definition}")).await?;
        for partition in self.missing(connection).await? {
            let part = format!("{partition}{suffix}");
            // An interrupted build leaves an index that no query can use.
            connection.execute(AssertSqlSafe(format!("drop index concurrently if exists {part}"))).await?;
            let build = format!("create index concurrently {part} on {partition} {definition}");
            connection.execute(AssertSqlSafe(build)).await?;
            patiently(connection, &format!("alter index {name} attach partition {part}")).await?;
        }
        Ok(())
    }

    /// Returns the partitions without a part of the index. Partitions that recorders create from now on get theirs at once.
    async fn missing(&self, connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_scalar!(
            r#"/* labels::missing */
            select p.inhrelid::regclass::text as "partition!" from pg_inherits p
            where p.inhparent = 'jobs'::regclass and not exists (
                select from pg_index i join pg_inherits on pg_inherits.inhrelid = i.indexrelid
                where i.indrelid = p.inhrelid and pg_inherits.inhparent = $1::text::regclass
            )
            order by 1 desc"#,
            self.name,
        )
        .fetch_all(connection)
        .await
    }
}
