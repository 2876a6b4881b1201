//! The executors of this worker, one for each device and pool, started again when they die.

mod keeper;
mod memory;
mod probe;
mod spare;

use std::sync::Arc;

use futures::future::try_join_all;
use gpufleet_schema::{DeviceSeen, RanOn, WorkerName};
use tokio::sync::watch;
use tracing::info;

use self::{
    keeper::{Home, Keeper},
    memory::Memory,
    spare::Spare,
};
use super::admission::Admission;
use crate::{
    config::Config,
    executor::{DeviceInfo, Executor, ExecutorOptions, Sizes, StartError},
    scheduler::{DeviceId, Event, PoolId},
};

/// A context takes some hundred megabytes of a GPU's memory: on a device smaller than this, a spare one would cost jobs too much.
const SPARE_DEVICE_BYTES_MIN: u64 = 16 << 30;

/// One device: what it is, and who runs jobs on it now.
#[derive(Debug)]
pub(super) struct DeviceSlot {
    pub(super) id: DeviceId,
    pub(super) info: DeviceInfo,
    /// By pool: the executor of the moment, `None` while the next one starts.
    executors: Vec<watch::Receiver<Option<Arc<Executor>>>>,
    sick: watch::Receiver<Option<String>>,
}

impl DeviceSlot {
    /// Starts an executor for each pool, and keeps them running until they are told to stop.
    pub(super) async fn open(
        options: ExecutorOptions,
        config: &Config,
        admission: Arc<Admission>,
    ) -> Result<Self, StartError> {
        let id = DeviceId(options.device);
        let starts = config.pools.iter().map(|_| Executor::start(options.clone()));
        let started = try_join_all(starts).await?;
        let info = started.first().expect("a worker serves a pool").1.clone();
        info!(device = id.0, name = info.name, emulated = info.emulated, executors = started.len(), "device opened");
        let heaps = info.heap_bytes.saturating_mul(started.len() as u64);
        let bytes = info.memory_bytes.saturating_sub(heaps);
        admission.tell(Event::Device { device: id, places: places(config), bytes });
        let memory = Memory::new(id, bytes, heaps, Arc::clone(&admission));
        let spare = has_spare(config, &info).then(|| Spare::keep(options.clone(), Arc::clone(&memory)));
        let home = Arc::new(Home { options, admission, memory, spare, sick: watch::Sender::new(None) });
        let mut executors = Vec::new();
        for (pool, (executor, _)) in (0..).map(PoolId).zip(started) {
            let (current, seen) = watch::channel(None);
            tokio::spawn(Keeper { pool, home: Arc::clone(&home), current }.keep(executor));
            executors.push(seen);
        }
        let sick = home.sick.subscribe();
        Ok(Self { id, info, executors, sick })
    }

    /// The pool's executor. `None` while the next one starts.
    pub(super) fn executor(&self, pool: PoolId) -> Option<Arc<Executor>> {
        self.executors[pool.0 as usize].borrow().clone()
    }

    pub(super) fn executors(&self) -> impl Iterator<Item = Arc<Executor>> {
        self.executors.iter().filter_map(|executor| executor.borrow().clone())
    }

    /// Resolves, with the reason, when no executor can be had on this device any more.
    pub(super) async fn out_of_service(&self) -> String {
        let mut sick = self.sick.clone();
        match sick.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("that is what was waited for"),
            Err(_) => "its keeper ended".to_owned(),
        }
    }

    /// What a buffer of so many bytes takes here.
    pub(super) fn taken(&self, bytes: u64) -> u64 {
        Sizes::of(self.info.emulated).taken(bytes)
    }

    pub(super) fn is_in_service(&self) -> bool {
        self.sick.borrow().is_none()
    }

    pub(super) fn ran_on(&self, worker: WorkerName) -> RanOn {
        RanOn { worker, device: self.id.0, device_name: self.info.name.clone(), emulated: self.info.emulated }
    }

    pub(super) fn seen(&self) -> DeviceSeen {
        let (major, minor) = self.info.compute_capability;
        DeviceSeen {
            index: self.info.ordinal,
            uuid: self.info.uuid.clone(),
            name: self.info.name.clone(),
            emulated: self.info.emulated,
            compute_capability: [major, minor],
            memory_bytes: self.info.memory_bytes,
            driver_version: self.info.driver_version,
            out_of_service: self.sick.borrow().clone(),
        }
    }
}

/// Jobs on a device at once: a pool with memory of its own brings a place of its own, so that the others lose none by it.
fn places(config: &Config) -> u32 {
    let own = config.pools.iter().filter(|pool| pool.promise.memory_permille > 0).count();
    config.jobs_per_device + own as u32
}

/// Whether one more executor waits than there are pools.
fn has_spare(config: &Config, device: &DeviceInfo) -> bool {
    let is_cheap = device.emulated || device.memory_bytes >= SPARE_DEVICE_BYTES_MIN;
    config.spare_executors.map_or(is_cheap, |count| count > 0)
}
