//! Reads the kept outputs of a job.

use chrono::{DateTime, Utc};
use gpufleet_schema::{JobId, JobState, PoolName};
use sqlx::PgConnection;

use super::{
    job,
    ledger::{Ledger, ask},
};
use crate::{LedgerError, OutputRow};

impl Ledger {
    /// Returns the bytes of a kept output that is in the ledger, as little-endian elements. None if the output is a blob, has expired, or
    /// does not exist.
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

/// The outputs of a job that another job may use as inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOutputs {
    pub state: JobState,
    /// Whether the job ran in the pool that asks. If it did not, there are no outputs.
    pub is_of_pool: bool,
    pub outputs: Vec<OutputRow>,
}

impl Ledger {
    /// Returns the kept outputs of a job, for another job of this pool. `None` if no event has named the job. A job of another pool has no
    /// outputs here.
    pub async fn outputs_for_pool(&self, job_id: JobId, pool: &PoolName) -> Result<Option<PoolOutputs>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let found = ask("reading a job's pool", read_pool(lease.connection(), job_id, pool)).await?;
        let Some((state, is_of_pool)) = found else {
            lease.keep();
            return Ok(None);
        };
        let outputs = match is_of_pool {
            true => ask("reading a job's outputs", read(lease.connection(), job_id)).await?,
            false => Vec::new(),
        };
        lease.keep();
        Ok(Some(PoolOutputs { state, is_of_pool, outputs }))
    }
}

async fn read_pool(
    connection: &mut PgConnection,
    job_id: JobId,
    pool: &PoolName,
) -> Result<Option<(JobState, bool)>, sqlx::Error> {
    let key = job::key(connection, job_id).await?;
    let record = sqlx::query!(
        r#"/* queries::outputs_for_pool */
        select j.state as "state!", (j.pool = $3) is true as "is_of_pool!"
        from jobs j
        where j.job_id = $1 and j.id_at = $2"#,
        job_id.as_uuid(),
        key,
        pool.as_str(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(record.map(|record| (JobState::of(&record.state), record.is_of_pool)))
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
