//! Writes rows of `workers` and `devices`, with one statement each for all heartbeats of a batch.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::recorder::change::{CLOCK_STEP_MIN, DeviceChange, WorkerChange};

/// The maximum difference between the delays of two consecutive heartbeats for the second to count as fresh. Batches and transactions make
/// the delay vary by less. Heartbeats that waited together differ by more, because they were sent ten seconds apart.
const PACE: Duration = Duration::from_secs(2);

/// Keeps the latest heartbeat by the worker's clock, unless that clock was set back by more than [`CLOCK_STEP_MIN`]. `first_seen_at` only
/// moves back.
///
/// `heard_at` is a time of the database's clock. A heartbeat may have waited in the broker for hours, or the worker's clock may be wrong,
/// and one heartbeat does not show which. Two consecutive heartbeats do: if both are equally far behind the database's clock, the worker's
/// clock is slow, and the heartbeat was just sent. Otherwise the heartbeat's own time counts, but never a time in the future. If that time
/// is wrong, or the clock was just set, the next heartbeat corrects it long before the worker counts as silent.
pub(super) async fn write(
    workers: &BTreeMap<String, WorkerChange>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let mut columns = WorkerColumns::default();
    for (worker, change) in workers {
        columns.push(worker, change);
    }
    // This must run before the heartbeats are written. A heartbeat that is already stored was redelivered, so its delay is not current.
    sqlx::query!(
        r#"/* recorder::write::workers::heard */
        update workers set
            heard_at = case
                when now() - new.last_seen_at - workers.behind between -make_interval(secs => $5) and make_interval(secs => $5)
                    then now()
                else greatest(workers.heard_at, least(new.last_seen_at, now()))
            end,
            behind = now() - new.last_seen_at,
            first_seen_at = least(workers.first_seen_at, new.first_seen_at)
        from unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::bool[])
            as new (worker, first_seen_at, last_seen_at, has_left)
        where workers.worker = new.worker
            and ((workers.last_seen_at, workers.has_left) <> (new.last_seen_at, new.has_left)
                or new.first_seen_at < workers.first_seen_at)"#,
        &columns.worker as &[&str],
        &columns.first_seen_at,
        &columns.last_seen_at,
        &columns.has_left,
        PACE.as_secs_f64(),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        r#"/* recorder::write::workers */
        insert into workers as known
            (worker, first_seen_at, last_seen_at, host, pid, revision, pools, jobs_running, has_left, heard_at, behind,
             sessions, programs)
        select worker, first_seen_at, last_seen_at, host, pid, revision, pools::text[], jobs_running, has_left,
               least(last_seen_at, now()), now() - last_seen_at, sessions, programs
        from unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::bigint[], $6::text[], $7::text[],
                    $8::bigint[], $9::bool[], $11::jsonb[], $12::jsonb[])
            as new (worker, first_seen_at, last_seen_at, host, pid, revision, pools, jobs_running, has_left, sessions,
                    programs)
        on conflict (worker) do update set
            last_seen_at = excluded.last_seen_at,
            host = excluded.host,
            pid = excluded.pid,
            revision = excluded.revision,
            pools = excluded.pools,
            jobs_running = excluded.jobs_running,
            has_left = excluded.has_left,
            sessions = excluded.sessions,
            programs = excluded.programs
        where (excluded.last_seen_at, excluded.has_left) > (known.last_seen_at, known.has_left)
            or excluded.last_seen_at < known.last_seen_at - make_interval(secs => $10)"#,
        &columns.worker as &[&str],
        &columns.first_seen_at,
        &columns.last_seen_at,
        &columns.host as &[&str],
        &columns.pid,
        &columns.revision as &[&str],
        &columns.pools,
        &columns.jobs_running,
        &columns.has_left,
        CLOCK_STEP_MIN.as_secs_f64(),
        &columns.sessions as &[Option<Value>],
        &columns.programs as &[Option<Value>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps the row of a device that later heartbeats do not list, because old attempts ran on it. A device in the latest heartbeat gets that
/// heartbeat's time, even if the clock was set back.
pub(super) async fn write_devices(
    devices: &BTreeMap<(String, i32), DeviceChange>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let mut columns = DeviceColumns::default();
    for ((worker, device), change) in devices {
        columns.push(worker, *device, change);
    }
    if columns.worker.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"/* recorder::write::devices */
        insert into devices as known
            (worker, device, last_seen_at, uuid, name, emulated, compute_major, compute_minor, memory_bytes, driver_version,
             out_of_service, jobs_running, pools, memory_used_bytes, utilization_percent, utilization_by,
             temperature_celsius, power_milliwatts)
        select * from unnest($1::text[], $2::int[], $3::timestamptz[], $4::text[], $5::text[], $6::bool[], $7::int[],
                             $8::int[], $9::bigint[], $10::int[], $11::text[], $12::bigint[], $13::jsonb[],
                             $14::bigint[], $15::int[], $16::text[], $17::int[], $18::bigint[])
        on conflict (worker, device) do update set
            last_seen_at = excluded.last_seen_at,
            uuid = excluded.uuid,
            name = excluded.name,
            emulated = excluded.emulated,
            compute_major = excluded.compute_major,
            compute_minor = excluded.compute_minor,
            memory_bytes = excluded.memory_bytes,
            driver_version = excluded.driver_version,
            out_of_service = excluded.out_of_service,
            jobs_running = excluded.jobs_running,
            pools = excluded.pools,
            memory_used_bytes = excluded.memory_used_bytes,
            utilization_percent = excluded.utilization_percent,
            utilization_by = excluded.utilization_by,
            temperature_celsius = excluded.temperature_celsius,
            power_milliwatts = excluded.power_milliwatts
        where excluded.last_seen_at > known.last_seen_at
            or (excluded.last_seen_at < known.last_seen_at
                and excluded.last_seen_at = (select w.last_seen_at from workers w where w.worker = excluded.worker))"#,
        &columns.worker as &[&str],
        &columns.device,
        &columns.last_seen_at,
        &columns.uuid as &[&str],
        &columns.name as &[&str],
        &columns.emulated,
        &columns.compute_major,
        &columns.compute_minor,
        &columns.memory_bytes,
        &columns.driver_version,
        &columns.out_of_service as &[Option<&str>],
        &columns.jobs_running as &[Option<i64>],
        &columns.pools,
        &columns.memory_used_bytes as &[Option<i64>],
        &columns.utilization_percent as &[Option<i32>],
        &columns.utilization_by as &[Option<&str>],
        &columns.temperature_celsius as &[Option<i32>],
        &columns.power_milliwatts as &[Option<i64>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(Default)]
struct WorkerColumns<'a> {
    worker: Vec<&'a str>,
    first_seen_at: Vec<DateTime<Utc>>,
    last_seen_at: Vec<DateTime<Utc>>,
    host: Vec<&'a str>,
    pid: Vec<i64>,
    revision: Vec<&'a str>,
    pools: Vec<String>,
    jobs_running: Vec<i64>,
    has_left: Vec<bool>,
    sessions: Vec<Option<Value>>,
    programs: Vec<Option<Value>>,
}

#[derive(Default)]
struct DeviceColumns<'a> {
    worker: Vec<&'a str>,
    device: Vec<i32>,
    last_seen_at: Vec<DateTime<Utc>>,
    uuid: Vec<&'a str>,
    name: Vec<&'a str>,
    emulated: Vec<bool>,
    compute_major: Vec<i32>,
    compute_minor: Vec<i32>,
    memory_bytes: Vec<i64>,
    driver_version: Vec<i32>,
    out_of_service: Vec<Option<&'a str>>,
    jobs_running: Vec<Option<i64>>,
    pools: Vec<Value>,
    memory_used_bytes: Vec<Option<i64>>,
    utilization_percent: Vec<Option<i32>>,
    utilization_by: Vec<Option<&'a str>>,
    temperature_celsius: Vec<Option<i32>>,
    power_milliwatts: Vec<Option<i64>>,
}

impl<'a> WorkerColumns<'a> {
    fn push(&mut self, worker: &'a str, change: &'a WorkerChange) {
        let seen = &change.seen;
        // Quoted, because a pool may be called NULL. Pool names contain neither quotes nor backslashes.
        let pools: Vec<String> = seen.pools.iter().map(|pool| format!("\"{pool}\"")).collect();
        self.worker.push(worker);
        self.first_seen_at.push(change.first_seen_at);
        self.last_seen_at.push(change.last_seen_at);
        self.host.push(&seen.host);
        self.pid.push(seen.pid.into());
        self.revision.push(&seen.revision);
        self.pools.push(format!("{{{}}}", pools.join(",")));
        self.jobs_running.push(seen.jobs_running.into());
        self.has_left.push(seen.leaving);
        self.sessions.push(seen.sessions.as_ref().map(|sessions| json!(sessions)));
        self.programs.push(seen.programs.as_ref().map(|programs| json!(programs)));
    }
}

impl<'a> DeviceColumns<'a> {
    fn push(&mut self, worker: &'a str, device: i32, change: &'a DeviceChange) {
        let [major, minor] = change.compute_capability;
        self.worker.push(worker);
        self.device.push(device);
        self.last_seen_at.push(change.last_seen_at);
        self.uuid.push(&change.uuid);
        self.name.push(&change.name);
        self.emulated.push(change.emulated);
        self.compute_major.push(major);
        self.compute_minor.push(minor);
        self.memory_bytes.push(change.memory_bytes);
        self.driver_version.push(change.driver_version);
        self.out_of_service.push(change.out_of_service.as_deref());
        self.jobs_running.push(change.jobs_running);
        self.pools.push(change.pools.clone());
        self.memory_used_bytes.push(change.memory_used_bytes);
        self.utilization_percent.push(change.utilization.map(|(percent, _)| percent));
        self.utilization_by.push(change.utilization.as_ref().map(|(_, by)| by.name()));
        self.temperature_celsius.push(change.temperature_celsius);
        self.power_milliwatts.push(change.power_milliwatts);
    }
}
