//! Writes rows of `device_samples`, with one statement for all heartbeats of a batch.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::recorder::samples::{Key, Sample};

/// Writes each sample once. Samples of a day without a partition are omitted, because that day was just dropped.
pub(super) async fn write(samples: &BTreeMap<Key, Sample>, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (mut workers, mut devices, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let (mut running, mut declared, mut used) = (Vec::new(), Vec::new(), Vec::new());
    let (mut utilization, mut temperature, mut power) = (Vec::new(), Vec::new(), Vec::new());
    for (Key { worker, device, at }, sample) in samples {
        workers.push(worker.as_str());
        devices.push(*device);
        times.push(*at);
        running.push(sample.jobs_running);
        declared.push(sample.declared_bytes);
        used.push(sample.memory_used_bytes);
        utilization.push(sample.utilization_percent);
        temperature.push(sample.temperature_celsius);
        power.push(sample.power_milliwatts);
    }
    sqlx::query!(
        r#"/* recorder::write::samples */
        insert into device_samples
            (worker, device, at, jobs_running, declared_bytes, memory_used_bytes, utilization_percent, temperature_celsius,
             power_milliwatts)
        select new.* from unnest($1::text[], $2::int[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[],
                                 $7::int[], $8::int[], $9::bigint[])
            as new (worker, device, at, jobs_running, declared_bytes, memory_used_bytes, utilization_percent,
                    temperature_celsius, power_milliwatts)
        where to_regclass('device_samples_' || to_char(new.at at time zone 'UTC', 'YYYY_MM_DD')) is not null
        on conflict (worker, device, at) do nothing"#,
        &workers as &[&str],
        &devices,
        &times,
        &running as &[Option<i64>],
        &declared,
        &used as &[Option<i64>],
        &utilization as &[Option<i32>],
        &temperature as &[Option<i32>],
        &power as &[Option<i64>],
    )
    .execute(connection)
    .await?;
    Ok(())
}
