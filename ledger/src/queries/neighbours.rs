//! The jobs that may share an executor with a job. To cancel a running job, its worker kills the executor, and the others in it start again.
//!
//! The ledger knows the pool and the device of a job, and not its executor, of which a pool may have several on a device.

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{
    job::key,
    ledger::{Ledger, ask},
};
use crate::LedgerError;

/// A job that may run in the same executor as another one: on the same worker and device, and in the same pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Neighbour {
    #[cfg_attr(feature = "serve", schema(value_type = uuid::Uuid))]
    pub job_id: JobId,
    pub name: Option<String>,
    pub pool: Option<String>,
    pub kernel: Option<String>,
    /// Since the start of its attempt, by the clocks of the worker and the database.
    pub running_us: u64,
}

/// The maximum number of running jobs of a pool that are searched, the newest first.
const SEARCHED_MAX: i64 = 10_000;

/// What the executors of a pool on a device serve.
struct Place {
    pool: Option<String>,
    worker: String,
    device: Option<i32>,
}

impl Ledger {
    /// Returns the jobs that may start again if this job is cancelled now, the longest running one first. There are none if the job does not
    /// run, or if it is a session, which has a process of its own. Jobs that have run for less than 100 ms are not recorded yet.
    pub async fn neighbours(&self, job_id: JobId) -> Result<Vec<Neighbour>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let key = ask("reading a job's key", key(lease.connection(), job_id)).await?;
        let place = ask("reading where a job runs", read_place(lease.connection(), job_id, key)).await?;
        let neighbours = match place {
            Some(place) => ask("reading a job's neighbours", read(lease.connection(), job_id, &place)).await?,
            None => Vec::new(),
        };
        lease.keep();
        Ok(neighbours)
    }
}

async fn read_place(
    connection: &mut PgConnection,
    job_id: JobId,
    key: DateTime<Utc>,
) -> Result<Option<Place>, sqlx::Error> {
    sqlx::query_as!(
        Place,
        r#"/* queries::place */
            select j.pool, a.worker, a.device
            from jobs j
            join attempts a on a.job_id = $1 and a.id_at = $2 and a.attempt = j.attempt
            where j.job_id = $1 and j.id_at = $2 and j.state = 'running' and a.state = 'running'
              and j.program is distinct from 'session'"#,
        job_id.as_uuid(),
        key,
    )
    .fetch_optional(connection)
    .await
}

async fn read(connection: &mut PgConnection, job_id: JobId, place: &Place) -> Result<Vec<Neighbour>, sqlx::Error> {
    let records = sqlx::query!(
        r#"/* queries::neighbours */
            select j.job_id as "job_id!", j.name, j.pool, j.kernel,
                   greatest(extract(epoch from now() - a.started_at) * 1000000, 0)::bigint as "running_us!"
            from (
                select * from jobs
                where state = 'running' and pool = $2
                order by id_at desc, job_id desc
                limit $5
            ) j
            join lateral (
                select started_at from attempts
                where job_id = j.job_id and id_at = j.id_at and attempt = j.attempt
                  and state = 'running' and worker = $3 and device = $4
            ) a on true
            where j.job_id <> $1 and j.program is distinct from 'session'
            order by a.started_at, j.job_id"#,
        job_id.as_uuid(),
        place.pool,
        place.worker,
        place.device,
        SEARCHED_MAX,
    )
    .fetch_all(connection)
    .await?;
    let neighbours = records.into_iter().map(|record| Neighbour {
        job_id: JobId::from_uuid(record.job_id),
        name: record.name,
        pool: record.pool,
        kernel: record.kernel,
        running_us: record.running_us.unsigned_abs(),
    });
    Ok(neighbours.collect())
}
