//! The kept outputs of a job.

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;

use super::{Ledger, ask};
use crate::{LedgerError, OutputRow};

impl Ledger {
    /// The bytes of a kept output that the ledger holds itself, as little-endian elements. None if the output is a blob, has expired, or does
    /// not exist.
    pub async fn output_bytes(&self, job_id: JobId, name: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let data = ask(
            "reading an output",
            sqlx::query_scalar!(
                "/* queries::output_bytes */
                select data from job_outputs where job_id = $1 and name = $2 and expires_at > now()",
                job_id.as_uuid(),
                name,
            )
            .fetch_optional(lease.connection()),
        )
        .await?;
        lease.keep();
        Ok(data.flatten())
    }
}

struct OutputRecord {
    name: String,
    dtype: String,
    shape: Vec<i64>,
    digest: Option<String>,
    expires_at: DateTime<Utc>,
    is_expired: bool,
}

pub(super) async fn read(connection: &mut PgConnection, job_id: JobId) -> Result<Vec<OutputRow>, sqlx::Error> {
    let records = sqlx::query_as!(
        OutputRecord,
        r#"/* queries::outputs */
        select name, dtype, shape, digest, expires_at, expires_at <= now() as "is_expired!"
        from job_outputs where job_id = $1 order by position"#,
        job_id.as_uuid(),
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(OutputRow::from).collect())
}

impl From<OutputRecord> for OutputRow {
    fn from(record: OutputRecord) -> Self {
        Self {
            dtype: record.dtype.parse().expect("the recorder wrote the name of a dtype"),
            name: record.name,
            shape: record.shape.into_iter().map(i64::unsigned_abs).collect(),
            digest: record.digest.map(|digest| digest.parse().expect("the table holds only digests")),
            expires_at: record.expires_at,
            is_expired: record.is_expired,
        }
    }
}
