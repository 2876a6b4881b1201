//! Finds the blobs that jobs use.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use gpufleet_schema::{BlobDigest, JobId};
use serde::Serialize;

use super::ledger::{Ledger, ask};
use crate::LedgerError;

/// How long a blob stays usable after it was last stored or used. Pruning keeps it for twice as long. This leaves time for differing
/// clocks, unrecorded events and a recorder that is hours behind.
pub const BLOB_GRACE: Duration = Duration::from_secs(24 * 3600);
/// The maximum time since a recorder last caught up. If it is exceeded, the ledger may not know a job that has used a blob within the grace
/// period.
const BEHIND_MAX: Duration = Duration::from_secs(12 * 3600);

/// A job that uses a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlobUse {
    pub job_id: JobId,
    /// The kept output that the blob contains. None if the blob is an input of a job that has not ended.
    pub output: Option<String>,
    /// Until when the output is kept.
    pub until: Option<DateTime<Utc>>,
}

/// The reason why the blobs in use are unknown.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(
        "the recorder has not caught up since {}, so the ledger may not know of jobs that need a blob; check that `gpufleet-ledger record` runs",
        since.format("%F %T UTC")
    )]
    Behind { since: DateTime<Utc> },
    #[error(
        "no recorder has caught up with the events yet, so the ledger may not know of jobs that need a blob; start `gpufleet-ledger record`"
    )]
    NeverCaughtUp,
}

impl Ledger {
    /// Returns the blobs that must not be removed. These are inputs of jobs that have not ended, or ended less than twice the grace period
    /// ago, and kept outputs that have not expired, or expired less than that ago.
    ///
    /// Fails if the recorder is so far behind that other blobs may be in use.
    pub async fn live_blobs(&self) -> Result<HashSet<BlobDigest>, MarkError> {
        let mut lease = self.connection.lease().await?;
        let progress = sqlx::query!(
            r#"/* queries::recorder_progress */
            select caught_up_at, caught_up_at < now() - make_interval(secs => $1) as "is_behind!" from recorder_progress"#,
            BEHIND_MAX.as_secs_f64(),
        );
        let progress = ask("reading the recorder's progress", progress.fetch_optional(lease.connection())).await?;
        match progress {
            None => return Err(MarkError::NeverCaughtUp),
            Some(progress) if progress.is_behind => return Err(MarkError::Behind { since: progress.caught_up_at }),
            Some(_) => {}
        }
        let live = sqlx::query_scalar!(
            r#"/* queries::live_blobs */
            select digest as "digest!" from job_inputs
            where ended_at is null or ended_at > now() - make_interval(secs => $1)
            union
            select digest from job_outputs
            where digest is not null and expires_at > now() - make_interval(secs => $1)"#,
            (2 * BLOB_GRACE).as_secs_f64(),
        );
        let live = ask("reading the blobs in use", live.fetch_all(lease.connection())).await?;
        lease.keep();
        Ok(live.iter().map(|digest| parsed(digest)).collect())
    }

    /// Returns the jobs that use blobs now, by digest. If `digests` is given, only those of these blobs.
    pub async fn blob_uses(
        &self,
        digests: Option<&[BlobDigest]>,
    ) -> Result<HashMap<BlobDigest, Vec<BlobUse>>, LedgerError> {
        let digests: Option<Vec<String>> = digests.map(|digests| digests.iter().map(ToString::to_string).collect());
        let mut lease = self.connection.lease().await?;
        let records = sqlx::query!(
            r#"/* queries::blob_uses */
            select digest as "digest!", job_id as "job_id!", null::text as output, null::timestamptz as until from job_inputs
            where ended_at is null and ($1::text[] is null or digest = any($1))
            union all
            select digest, job_id, name, expires_at from job_outputs
            where digest is not null and expires_at > now() and ($1::text[] is null or digest = any($1))
            order by 2, 3"#,
            digests.as_deref(),
        );
        let records = ask("reading which jobs use blobs", records.fetch_all(lease.connection())).await?;
        lease.keep();
        let mut uses: HashMap<BlobDigest, Vec<BlobUse>> = HashMap::new();
        for record in records {
            let job = BlobUse { job_id: JobId::from_uuid(record.job_id), output: record.output, until: record.until };
            uses.entry(parsed(&record.digest)).or_default().push(job);
        }
        Ok(uses)
    }
}

fn parsed(digest: &str) -> BlobDigest {
    digest.parse().expect("the tables hold only digests")
}
