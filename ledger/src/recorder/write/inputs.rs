//! Writes rows of `job_inputs`.

use std::collections::BTreeMap;

use gpufleet_schema::JobId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::jobs::FinalAttempts;
use crate::recorder::change::JobChange;

/// Writes which blobs the jobs use as inputs, and which of the jobs have ended. All events of a job name the same
/// blobs.
pub(super) async fn write(
    jobs: &BTreeMap<JobId, JobChange>,
    outcomes: &FinalAttempts,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let (mut job_ids, mut digests) = (Vec::new(), Vec::new());
    for (job_id, change) in jobs {
        for digest in change.info.iter().flat_map(|info| &info.blobs) {
            job_ids.push(job_id.as_uuid());
            digests.push(digest.as_str());
        }
    }
    if !job_ids.is_empty() {
        sqlx::query!(
            "/* recorder::write::inputs */
            insert into job_inputs (job_id, digest) select * from unnest($1::uuid[], $2::text[])
            on conflict (job_id, digest) do nothing",
            &job_ids,
            &digests as &[&str],
        )
        .execute(&mut *connection)
        .await?;
    }
    let ended: Vec<Uuid> = outcomes.keys().map(|job_id| job_id.as_uuid()).collect();
    if !ended.is_empty() {
        sqlx::query!(
            "/* recorder::write::inputs::end */
            update job_inputs set ended_at = now() where job_id = any($1) and ended_at is null",
            &ended,
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}
