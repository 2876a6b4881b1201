//! Finds the second half of each job's primary key. Most ids contain it. For other jobs, `job_keys` stores it at their first event.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    job_time::id_at,
    recorder::{change::JobChange, months},
};

/// `id_at` of each job of a batch.
pub(super) type Keys = HashMap<JobId, DateTime<Utc>>;

/// Finds the keys of jobs, and stores a key for each job that needs one. If two recorders do so for the same job at once, the second waits
/// for the first one's commit and finds its key.
pub(super) async fn resolve(
    jobs: &BTreeMap<JobId, JobChange>,
    today: NaiveDate,
    connection: &mut PgConnection,
) -> Result<Keys, sqlx::Error> {
    let (mut columns, now) = (Columns::default(), Utc::now());
    for (job_id, change) in jobs.iter().filter(|(job_id, _)| !months::is_keyed_by_id(**job_id, today)) {
        columns.push(*job_id, months::time_of_first_event(change.created_at, now));
    }
    if !columns.job_id.is_empty() {
        columns.write(connection).await?;
    }
    // Looks up all jobs: an id whose time is near today now may have been too far ahead at the job's first event.
    let ids: Vec<Uuid> = jobs.keys().map(|job_id| job_id.as_uuid()).collect();
    let noted = sqlx::query!(
        "/* recorder::write::keys::noted */ select job_id, id_at from job_keys where job_id = any($1)",
        &ids
    )
    .fetch_all(connection)
    .await?;
    let mut keys: Keys = jobs.keys().map(|job_id| (*job_id, id_at(*job_id))).collect();
    keys.extend(noted.into_iter().map(|row| (JobId::from_uuid(row.job_id), row.id_at)));
    Ok(keys)
}

#[derive(Default)]
struct Columns {
    job_id: Vec<Uuid>,
    /// The key under which a release without `job_keys` may have stored the row.
    id_at: Vec<DateTime<Utc>>,
    first_event: Vec<DateTime<Utc>>,
}

impl Columns {
    fn push(&mut self, job_id: JobId, first_event: DateTime<Utc>) {
        self.job_id.push(job_id.as_uuid());
        self.id_at.push(id_at(job_id));
        self.first_event.push(first_event);
    }

    async fn write(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "/* recorder::write::keys */
            insert into job_keys (job_id, id_at)
            select new.job_id, coalesce(jobs.id_at, new.first_event)
            from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) as new (job_id, id_at, first_event)
            left join jobs on jobs.job_id = new.job_id and jobs.id_at = new.id_at
            order by new.job_id
            on conflict (job_id) do nothing",
            &self.job_id,
            &self.id_at,
            &self.first_event,
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}
