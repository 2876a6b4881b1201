//! The executors of this worker, one for each device and pool, started again when they die.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;
use gpufleet_schema::{DeviceSeen, RanOn, WorkerName};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::admission::Admission;
use crate::{
    config::Config,
    executor::{DeviceInfo, Executor, ExecutorOptions, LostCause, StartError},
    scheduler::{DeviceId, Event, PoolId},
};

/// Starts in a row that may fail before a device counts as sick. A bad kernel takes an executor down, not the next start.
const START_FAILURES_MAX: u32 = 5;
/// A driver that is being reset needs a moment; the pause doubles with each failure.
const START_PAUSE: Duration = Duration::from_millis(200);

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
        admission.tell(Event::Device { device: id, places: places(config), bytes: info.memory_bytes });
        let (sick, sick_seen) = watch::channel(None);
        let sick = Arc::new(sick);
        let mut executors = Vec::new();
        for (pool, (executor, _)) in (0..).map(PoolId).zip(started) {
            let (current, seen) = watch::channel(None);
            let (options, admission, sick) = (options.clone(), Arc::clone(&admission), Arc::clone(&sick));
            tokio::spawn(Keeper { pool, options, admission, current, sick }.keep(executor));
            executors.push(seen);
        }
        Ok(Self { id, info, executors, sick: sick_seen })
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
        }
    }
}

/// Jobs on a device at once: a pool with memory of its own brings a place of its own, so that the others lose none by it.
fn places(config: &Config) -> u32 {
    let own = config.pools.iter().filter(|pool| pool.promise.memory_permille > 0).count();
    config.jobs_per_device + own as u32
}

struct Keeper {
    pool: PoolId,
    options: ExecutorOptions,
    admission: Arc<Admission>,
    current: watch::Sender<Option<Arc<Executor>>>,
    sick: Arc<watch::Sender<Option<String>>>,
}

impl Keeper {
    async fn keep(self, first: Executor) {
        let device = DeviceId(self.options.device);
        let mut next = Some(first);
        while let Some(executor) = next {
            let executor = Arc::new(executor);
            self.current.send_replace(Some(Arc::clone(&executor)));
            self.admission.tell(Event::ExecutorUp(device, self.pool));
            let loss = executor.lost().await;
            self.admission.tell(Event::ExecutorDown(device, self.pool));
            self.current.send_replace(None);
            if loss.cause == LostCause::Stopped {
                return;
            }
            warn!(device = device.0, reason = loss.reason, "executor gone, starting another");
            next = self.start_again().await;
        }
    }

    async fn start_again(&self) -> Option<Executor> {
        let mut pause = START_PAUSE;
        for failures in 1..=START_FAILURES_MAX {
            match Executor::start(self.options.clone()).await {
                Ok((executor, _)) => {
                    info!(device = self.options.device, pid = executor.pid(), "executor started");
                    return Some(executor);
                }
                Err(reason) => {
                    warn!(device = self.options.device, failures, %reason, "executor did not start");
                    if failures == START_FAILURES_MAX {
                        error!(device = self.options.device, "device out of service");
                        self.admission.tell(Event::DeviceGone(DeviceId(self.options.device)));
                        self.sick.send_replace(Some(reason.to_string()));
                    } else {
                        tokio::time::sleep(pause).await;
                        pause *= 2;
                    }
                }
            }
        }
        None
    }
}
