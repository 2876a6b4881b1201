//! The label keys that have an index.

use sqlx::PgConnection;

/// The keys whose index is complete.
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
