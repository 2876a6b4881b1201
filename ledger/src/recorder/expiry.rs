//! Frees the bytes of kept outputs that have expired. Their rows stay, so that a person sees when they expired.

use std::time::Duration;

use sqlx::PgConnection;

use crate::tx::Transaction;

pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// Rows of one transaction, so that the recorder soon records events again.
const ROWS_MAX: i64 = 1000;
/// Transactions in a row. What is left waits for the next time.
pub(super) const ROUNDS_MAX: usize = 20;

/// Frees the bytes of some outputs. Returns whether there may be more.
pub(super) struct FreeExpired;

impl Transaction for FreeExpired {
    const NAME: &'static str = "freeing expired outputs";
    type Output = bool;

    async fn run(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let done = sqlx::query!(
            "/* recorder::expiry */
            update job_outputs set data = null where (job_id, position) in (
                select job_id, position from job_outputs
                where expires_at <= now() and data is not null
                order by expires_at limit $1
                for update skip locked)",
            ROWS_MAX,
        )
        .execute(connection)
        .await?;
        Ok(done.rows_affected() == ROWS_MAX as u64)
    }
}
