//! Reads the declared label keys.

use sqlx::PgConnection;

use super::ledger::{Ledger, ask};
use crate::LedgerError;

impl Ledger {
    /// Returns the label keys by which jobs are counted, in the order of their declaration.
    pub async fn label_keys(&self) -> Result<Vec<String>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let keys = sqlx::query_scalar!("/* queries::label_keys */ select key from label_keys order by number");
        let keys = ask("reading the label keys", keys.fetch_all(lease.connection())).await?;
        lease.keep();
        Ok(keys)
    }
}

/// Returns the keys whose index is complete.
pub(super) async fn indexed(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "/* queries::indexed_labels */
        select k.key from label_keys k
        join pg_class c on c.relname = 'jobs_label_' || k.number
        join pg_index i on i.indexrelid = c.oid and i.indrelid = 'jobs'::regclass and i.indisvalid"
    )
    .fetch_all(connection)
    .await
}
