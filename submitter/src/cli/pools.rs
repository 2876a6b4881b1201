//! `gpufleet pools`: who waits, who serves, and who got how much of the devices.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use clap::Args;
use gpufleet::{Fleet, PoolDepth, schema::PoolName};
use gpufleet_ledger::{Dimension, Ledger, LedgerError, StatisticsFilter, WorkerFilter, WorkerRow};
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    history, json,
    options::{BrokerOptions, Format, LedgerOptions},
    output, quantity,
    table::{self, Column},
    waiting::Spinner,
};

/// Show the pools: waiting messages, workers, and shares of the devices
///
/// WAITING and CONSUMERS come from the broker, which counts messages; one message may have many jobs. DUE is the share of the device time
/// that the pool's weight gives it while all pools have work, GOT the share that it received of the time that all pools used.
#[derive(Debug, Args)]
#[command(after_long_help = json::POOLS)]
pub struct Options {
    /// Count the device time since then: a time ago (2h, 30d) or a local time. It is rounded down to the hour
    #[arg(long, value_name = "TIME", value_parser = history::time, default_value = "1h")]
    since: DateTime<Utc>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// A pool as broker, heartbeats and statistics describe it.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Pool {
    pub pool: String,
    /// Messages in its queues; none if the broker was not asked.
    pub messages: Option<u64>,
    pub consumers: Option<u32>,
    pub jobs_running: u32,
    /// Device memory that its running jobs declared.
    pub memory_bytes: u64,
    /// The share of the device time that its weight gives it, in percent. Workers may give it different weights.
    pub due_percent: Option<f64>,
    /// Of the device time that all pools used, in percent.
    pub got_percent: Option<f64>,
    pub device_us: u64,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = async {
        let ledger = connection::ledger(&options.ledger).await?;
        let pools = read(&ledger, options.since).await.map_err(|error| connection::ledger_complaint(&error));
        ledger.close().await;
        let mut pools = pools?;
        let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
        ask(&fleet, &mut pools).await?;
        let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
        Ok::<_, Complaint>(pools)
    };
    let pools = Spinner::new("reading the pools").around(work).await?;
    match options.output {
        Format::Json => output::emit_json(&pools)?,
        Format::Table if pools.is_empty() => output::note("no pools: no worker serves one, and no job has ended"),
        Format::Table => output::emit(&render(&pools, output::stdout_width()))?,
    }
    Ok(Exit::Success)
}

/// The pools that workers serve now, and those of jobs that ended since a time.
pub async fn read(ledger: &Ledger, since: DateTime<Utc>) -> Result<Vec<Pool>, LedgerError> {
    let workers = ledger.workers(&WorkerFilter::default()).await?;
    let filter = StatisticsFilter { by: Some(Dimension::Pool), since, pool: None };
    let used = ledger.statistics(&filter).await?;
    let used = used.rows.into_iter().map(|row| (row.value, row.device_us)).collect();
    Ok(merge(&workers, &used))
}

/// Asks the broker for the depth of each pool.
pub async fn ask(fleet: &Fleet, pools: &mut [Pool]) -> Result<(), Complaint> {
    for pool in pools {
        let Ok(name) = pool.pool.parse::<PoolName>() else { continue };
        let depth = depth(fleet, &name).await?;
        (pool.messages, pool.consumers) = (Some(depth.messages), Some(depth.consumers));
    }
    Ok(())
}

pub async fn depth(fleet: &Fleet, pool: &PoolName) -> Result<PoolDepth, Complaint> {
    fleet
        .pool_depth(pool)
        .await
        .map_err(|error| Complaint::new(Exit::Broker, connection::sentence(&super::complaint::chain(&error))))
}

fn merge(workers: &[WorkerRow], used: &BTreeMap<String, u64>) -> Vec<Pool> {
    let mut pools: BTreeMap<&str, Pool> = BTreeMap::new();
    for (pool, device_us) in used.iter().filter(|(pool, _)| !pool.is_empty()) {
        pools.entry(pool).or_default().device_us = *device_us;
    }
    // The sum of the shares of each device, and the number of devices.
    let (mut due, mut devices): (BTreeMap<&str, f64>, u32) = (BTreeMap::new(), 0);
    for worker in workers.iter().filter(|worker| !worker.has_left && !worker.is_silent) {
        for pool in &worker.pools {
            pools.entry(pool).or_default();
        }
        for device in worker.devices.iter().filter(|device| device.out_of_service.is_none()) {
            devices += 1;
            let weights: u32 = device.pools.iter().filter_map(|pool| pool.weight).sum();
            for of_device in &device.pools {
                let pool = pools.entry(of_device.pool.as_str()).or_default();
                pool.jobs_running += of_device.jobs_running;
                pool.memory_bytes = pool.memory_bytes.saturating_add(of_device.memory_bytes);
                if let Some(weight) = of_device.weight {
                    *due.entry(of_device.pool.as_str()).or_default() += f64::from(weight) / f64::from(weights.max(1));
                }
            }
        }
    }
    let all: u64 = used.values().fold(0, |sum, us| sum.saturating_add(*us));
    pools
        .into_iter()
        .map(|(name, pool)| Pool {
            pool: name.to_owned(),
            due_percent: due.get(name).map(|share| share * 100.0 / f64::from(devices.max(1))),
            got_percent: (all > 0).then(|| pool.device_us as f64 * 100.0 / all as f64),
            ..pool
        })
        .collect()
}

pub const COLUMNS: [Column; 8] = [
    Column::Left("POOL"),
    Column::Right("WAITING"),
    Column::Right("CONSUMERS"),
    Column::Right("RUNNING"),
    Column::Right("MEMORY"),
    Column::Right("DUE"),
    Column::Right("GOT"),
    Column::Right("DEVICE TIME"),
];

pub fn cells(pool: &Pool) -> Vec<String> {
    fn shown<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
    let percent = |percent: Option<f64>| shown(percent.map(|percent| format!("{percent:.0} %")));
    vec![
        pool.pool.clone(),
        shown(pool.messages),
        shown(pool.consumers),
        pool.jobs_running.to_string(),
        quantity::bytes(pool.memory_bytes),
        percent(pool.due_percent),
        percent(pool.got_percent),
        quantity::micros(pool.device_us),
    ]
}

fn render(pools: &[Pool], width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = pools.iter().map(cells).collect();
    table::fit(&COLUMNS, &rows, width, &["DEVICE TIME", "MEMORY", "CONSUMERS"])
}

#[cfg(test)]
pub mod tests {
    use gpufleet::schema::PoolUse;
    use gpufleet_ledger::DeviceRow;

    use super::*;
    use crate::cli::workers;

    pub fn pools() -> Vec<Pool> {
        let of = |pool: &str, weight| PoolUse {
            pool: pool.parse().unwrap(),
            jobs_running: 2,
            memory_bytes: 1 << 30,
            weight,
        };
        let mut worker = workers::tests::worker("w1", 1, false);
        worker.pools = vec!["team-a".to_owned(), "team-b".to_owned()];
        let device =
            DeviceRow { pools: vec![of("team-a", Some(3)), of("team-b", Some(1))], ..worker.devices[0].clone() };
        worker.devices = vec![device.clone(), DeviceRow { out_of_service: Some("sick".to_owned()), ..device }];
        let mut left = workers::tests::worker("w2", 1, true);
        left.pools = vec!["gone".to_owned()];
        let used =
            BTreeMap::from([("team-a".to_owned(), 30_000_000), ("old".to_owned(), 10_000_000), (String::new(), 0)]);
        let mut pools = merge(&[worker, left], &used);
        (pools[1].messages, pools[1].consumers) = (Some(12), Some(1));
        pools
    }

    #[test]
    fn a_pool_has_its_due_share_and_what_it_got() {
        insta::assert_snapshot!(render(&pools(), None));
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::POOLS, &pools());
    }
}
