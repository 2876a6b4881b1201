//! Lists the workers that have reported, with their devices.

use std::collections::HashMap;

use gpufleet_schema::{PoolUse, ProgramsSeen, SessionsSeen};
use sqlx::{PgConnection, types::Json};

use super::ledger::{Ledger, ask};
use crate::{DeviceRow, LedgerError, WorkerFilter, WorkerRow};

impl Ledger {
    /// Returns the workers that pass the filter, with the devices of their latest heartbeat.
    pub async fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let mut workers = ask("reading workers", read_workers(lease.connection(), filter)).await?;
        let names: Vec<String> = workers.iter().map(|worker| worker.worker.clone()).collect();
        let mut devices = ask("reading devices", read_devices(lease.connection(), &names)).await?;
        lease.keep();
        for worker in &mut workers {
            worker.devices = devices.remove(&worker.worker).unwrap_or_default();
        }
        Ok(workers)
    }
}

async fn read_workers(connection: &mut PgConnection, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, sqlx::Error> {
    let records = sqlx::query!(
        r#"/* queries::workers */
        select w.worker, w.host, w.pid, w.revision, w.pools, w.jobs_running, w.first_seen_at, w.last_seen_at, w.has_left,
               w.heard_at, h.is_silent as "is_silent!", w.sessions as "sessions: Json<SessionsSeen>",
               w.programs as "programs: Json<ProgramsSeen>"
        from workers w join worker_hearing h using (worker)
        where ($1::text is null or w.worker = $1)
          and ($2::float8 is null or (not w.has_left and w.heard_at > now() - make_interval(secs => $2)))
        order by w.heard_at desc, w.worker
        limit $3"#,
        filter.name.as_deref(),
        filter.heard_within.map(|within| within.as_secs_f64()),
        i64::from(filter.limit.clamp(1, WorkerFilter::LIMIT_MAX)),
    )
    .fetch_all(connection)
    .await?;
    Ok(records
        .into_iter()
        .map(|record| WorkerRow {
            worker: record.worker,
            host: record.host,
            pid: count(record.pid),
            revision: record.revision,
            pools: record.pools,
            jobs_running: count(record.jobs_running),
            first_seen_at: record.first_seen_at,
            last_seen_at: record.last_seen_at,
            heard_at: record.heard_at,
            is_silent: record.is_silent,
            has_left: record.has_left,
            sessions: record.sessions.map(|sessions| sessions.0),
            programs: record.programs.map(|programs| programs.0),
            devices: Vec::new(),
        })
        .collect())
}

async fn read_devices(
    connection: &mut PgConnection,
    workers: &[String],
) -> Result<HashMap<String, Vec<DeviceRow>>, sqlx::Error> {
    let records = sqlx::query!(
        r#"/* queries::devices */
        select d.worker, d.device, d.uuid, d.name, d.emulated, d.compute_major, d.compute_minor, d.memory_bytes,
               d.driver_version, d.out_of_service, d.jobs_running, d.pools as "pools: Json<Vec<PoolUse>>",
               d.memory_used_bytes, d.utilization_percent, d.utilization_by, d.temperature_celsius, d.power_milliwatts
        from devices d join workers w using (worker, last_seen_at)
        where d.worker = any($1)
        order by d.worker, d.device"#,
        workers,
    )
    .fetch_all(connection)
    .await?;
    let mut devices: HashMap<String, Vec<DeviceRow>> = HashMap::new();
    for record in records {
        devices.entry(record.worker).or_default().push(DeviceRow {
            device: record.device.unsigned_abs(),
            uuid: record.uuid,
            name: record.name,
            emulated: record.emulated,
            compute_capability: [record.compute_major.unsigned_abs(), record.compute_minor.unsigned_abs()],
            memory_bytes: record.memory_bytes.unsigned_abs(),
            driver_version: record.driver_version.unsigned_abs(),
            out_of_service: record.out_of_service,
            jobs_running: record.jobs_running.map(count),
            pools: record.pools.map(|pools| pools.0).unwrap_or_default(),
            memory_used_bytes: record.memory_used_bytes.map(i64::unsigned_abs),
            utilization_percent: record.utilization_percent.map(i32::unsigned_abs),
            utilization_by: record.utilization_by,
            temperature_celsius: record.temperature_celsius.map(i32::unsigned_abs),
            power_milliwatts: record.power_milliwatts.map(count),
        });
    }
    Ok(devices)
}

fn count(number: i64) -> u32 {
    u32::try_from(number).expect("written from a u32")
}
