//! Runs statements that lock others out of a table for a moment.
//!
//! Other statements queue behind a waiting lock request. So such a statement waits only briefly, gives up, and retries later.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::disposition::Disposition;

/// How long a statement waits for its locks, and other statements behind it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// The retries, three minutes in all. gpufleet's queries end within 25 s, their statement timeout, but new ones may follow them.
const RETRIES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(100))
    .with_max_delay(Duration::from_secs(2))
    .with_max_times(100);

/// Runs statements as one transaction, and retries until they get their locks. After an error or a cancellation the caller drops the
/// connection, because the transaction may be open.
pub(crate) async fn patiently(connection: &mut PgConnection, statements: &str) -> Result<(), sqlx::Error> {
    let sql = format!("begin; set local lock_timeout = '{}ms'; {statements}; commit", LOCK_TIMEOUT.as_millis());
    let mut delays = RETRIES.build();
    loop {
        let Err(problem) = connection.execute(AssertSqlSafe(sql.as_str())).await else { return Ok(()) };
        connection.execute("rollback").await?;
        match delays.next() {
            Some(delay) if Disposition::is_lock_timeout(&problem) => tokio::time::sleep(delay).await,
            _ => return Err(problem),
        }
    }
}
