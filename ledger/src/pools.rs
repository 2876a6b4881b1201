//! Pools: what they run, and their shares of the devices. This is plain data; it queries neither the ledger nor the broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Statistics, WorkerRow};

/// A pool as heartbeats and statistics describe it, and the broker if it was asked.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Pool {
    pub pool: String,
    /// Messages in its queues; none if the broker was not asked. One message may have many jobs.
    pub messages: Option<u64>,
    /// Subscriptions to its queues; none if the broker was not asked. With 0, no worker takes its messages. A worker may have several, because
    /// the broker counts an ended subscription until its last message is settled.
    pub consumers: Option<u32>,
    /// Workers that serve it and send heartbeats.
    #[serde(default)]
    pub workers: u32,
    pub jobs_running: u32,
    /// Device memory that its running jobs declared, and that of its sessions.
    pub memory_bytes: u64,
    /// The memory that is guaranteed to it, on all devices.
    pub guaranteed_bytes: u64,
    /// The memory beyond what is guaranteed to it on the device, which other pools leave unused.
    pub borrowed_bytes: u64,
    /// Its open sessions, with those that have memory and wait for their client.
    pub sessions_open: u32,
    /// The sessions that it may have open at a time; 0 if no worker takes sessions for it.
    pub sessions_max: u32,
    /// Device memory that its sessions take: their leases, and on a GPU a context for each. `memory_bytes` includes it.
    pub session_bytes: u64,
    /// Device memory that its sessions may take together, on all devices.
    pub session_bytes_max: u64,
    /// Its host programs that have a device.
    #[serde(default)]
    pub programs_running: u32,
    /// Those that a worker has taken and that wait for a device.
    #[serde(default)]
    pub programs_waiting: u32,
    /// The host programs that its workers take at a time; 0 if no worker runs them for it.
    #[serde(default)]
    pub programs_max: u32,
    /// The environments and images that its workers offer for host programs. Not every worker needs to offer each.
    #[serde(default)]
    pub environments: Vec<String>,
    /// The share of the device time that its weight gives it, in percent. Workers may give it different weights.
    pub due_percent: Option<f64>,
    /// Of the device time that all pools were charged, in percent.
    pub got_percent: Option<f64>,
    /// The device time that it used, as `gpufleet usage` counts it.
    pub device_us: u64,
    /// The device time that it was charged: what it used, and the wait for memory and for the blob store in a slot.
    pub charged_us: u64,
}

impl Pool {
    /// Adds what a worker that serves the pool says of host programs.
    fn add_programs(&mut self, pool: &str, worker: &WorkerRow) {
        let Some(of_pool) = worker.programs_of(pool) else { return };
        self.programs_running = self.programs_running.saturating_add(of_pool.running);
        self.programs_waiting = self.programs_waiting.saturating_add(of_pool.waiting);
        self.programs_max = self.programs_max.saturating_add(of_pool.taken_max);
        self.environments.extend(of_pool.places().map(str::to_owned));
        self.environments.sort_unstable();
        self.environments.dedup();
    }

    /// Returns the pools that workers serve now, and the pools with device time in these statistics.
    pub fn all(workers: &[WorkerRow], used: &Statistics) -> Vec<Self> {
        let used = used.rows.iter().filter(|row| !row.value.is_empty());
        let mut pools: BTreeMap<&str, Self> = BTreeMap::new();
        for row in used {
            let pool = pools.entry(row.value.as_str()).or_default();
            (pool.device_us, pool.charged_us) = (row.device_us, row.charged_us);
        }
        // The sum of each pool's shares over all devices, and the number of devices.
        let (mut due, mut devices): (BTreeMap<&str, f64>, u32) = (BTreeMap::new(), 0);
        for worker in workers.iter().filter(|worker| !worker.has_left && !worker.is_silent) {
            for pool in &worker.pools {
                let of_pool = pools.entry(pool).or_default();
                of_pool.workers += 1;
                of_pool.sessions_max = of_pool.sessions_max.saturating_add(worker.sessions_max(pool));
                of_pool.add_programs(pool, worker);
            }
            for device in worker.devices.iter().filter(|device| device.out_of_service.is_none()) {
                devices += 1;
                let weights: u64 = device.pools.iter().filter_map(|pool| pool.weight).map(u64::from).sum();
                for of_device in &device.pools {
                    let pool = pools.entry(of_device.pool.as_str()).or_default();
                    pool.jobs_running = pool.jobs_running.saturating_add(of_device.jobs_running);
                    pool.memory_bytes = pool.memory_bytes.saturating_add(of_device.memory_bytes);
                    // Old workers report no guarantee. Their memory does not count as borrowed.
                    let guaranteed = of_device.guaranteed_bytes.unwrap_or(of_device.memory_bytes);
                    let borrowed = of_device.memory_bytes.saturating_sub(guaranteed);
                    pool.guaranteed_bytes =
                        pool.guaranteed_bytes.saturating_add(of_device.guaranteed_bytes.unwrap_or(0));
                    pool.borrowed_bytes = pool.borrowed_bytes.saturating_add(borrowed);
                    if let Some(sessions) = of_device.sessions {
                        pool.sessions_open = pool.sessions_open.saturating_add(sessions.open);
                        pool.session_bytes = pool.session_bytes.saturating_add(sessions.memory_bytes);
                        pool.session_bytes_max = pool.session_bytes_max.saturating_add(sessions.memory_bytes_max);
                    }
                    if let Some(weight) = of_device.weight {
                        *due.entry(of_device.pool.as_str()).or_default() += f64::from(weight) / weights.max(1) as f64;
                    }
                }
            }
        }
        let all = pools.values().fold(0, |sum: u64, pool| sum.saturating_add(pool.charged_us));
        pools
            .into_iter()
            .map(|(name, pool)| Self {
                pool: name.to_owned(),
                due_percent: due.get(name).map(|share| share * 100.0 / f64::from(devices.max(1))),
                got_percent: (all > 0).then(|| pool.charged_us as f64 * 100.0 / all as f64),
                ..pool
            })
            .collect()
    }
}
