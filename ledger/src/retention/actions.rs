//! Deletes old audited actions. There are few of these rows, so their table has no partitions.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

/// The number of rows to delete in one transaction, so that no recorder waits for long.
const ROWS_PER_TRANSACTION: i64 = 1000;

pub(super) async fn delete(connection: &mut PgConnection, before: DateTime<Utc>) -> Result<(), sqlx::Error> {
    loop {
        let deleted = sqlx::query!(
            "/* retention::actions */
            delete from actions where action_id in (select action_id from actions where at < $1 order by at limit $2)",
            before,
            ROWS_PER_TRANSACTION,
        )
        .execute(&mut *connection)
        .await?;
        if deleted.rows_affected() == 0 {
            return Ok(());
        }
    }
}
