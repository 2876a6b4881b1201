//! The workers that have reported, with their devices.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::{Ledger, ask};
use crate::{DeviceRow, LedgerError, WorkerRow};

impl Ledger {
    /// All workers that ever reported, the latest heard of first, with the devices of their latest heartbeat.
    pub async fn workers(&self) -> Result<Vec<WorkerRow>, LedgerError> {
        let mut lent = self.connections.take().await?;
        let mut devices = ask("reading devices", read_devices(lent.connection())).await?;
        let mut workers = ask("reading workers", read_workers(lent.connection())).await?;
        self.connections.give_back(lent);
        for worker in &mut workers {
            worker.devices = devices.remove(&worker.worker).unwrap_or_default();
        }
        Ok(workers)
    }
}

async fn read_workers(connection: &mut PgConnection) -> Result<Vec<WorkerRow>, sqlx::Error> {
    let records = sqlx::query!(
        "/* queries::workers */
        select worker, host, pid, revision, pools, jobs_running, first_seen_at, last_seen_at, has_left
        from workers order by last_seen_at desc, worker"
    )
    .fetch_all(connection)
    .await?;
    let count = |number: i64| u32::try_from(number).expect("written from a u32");
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
            has_left: record.has_left,
            devices: Vec::new(),
        })
        .collect())
}

async fn read_devices(connection: &mut PgConnection) -> Result<HashMap<String, Vec<DeviceRow>>, sqlx::Error> {
    let records = sqlx::query!(
        "/* queries::devices */
        select d.worker, d.device, d.uuid, d.name, d.emulated, d.compute_major, d.compute_minor, d.memory_bytes,
               d.driver_version
        from devices d join workers w using (worker, last_seen_at)
        order by d.worker, d.device"
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
        });
    }
    Ok(devices)
}
