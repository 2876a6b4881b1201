//! The executors of this worker, one for each device, started again when they die.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{DeviceSeen, RanOn, WorkerName};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::admission::Admission;
use crate::{
    executor::{DeviceInfo, Executor, ExecutorOptions, LostCause, StartError},
    scheduler::{DeviceId, Event},
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
    executor: watch::Receiver<Option<Arc<Executor>>>,
    sick: watch::Receiver<Option<String>>,
}

impl DeviceSlot {
    /// Starts the device's executor and keeps one running until `Devices` is dropped.
    pub(super) async fn open(
        options: ExecutorOptions,
        places: u32,
        admission: Arc<Admission>,
    ) -> Result<Self, StartError> {
        let id = DeviceId(options.device);
        let (executor, info) = Executor::start(options.clone()).await?;
        info!(device = id.0, name = info.name, emulated = info.emulated, pid = executor.pid(), "executor started");
        let (current, executor_seen) = watch::channel(None);
        let (sick, sick_seen) = watch::channel(None);
        let keeper = Keeper { options, places, bytes: info.memory_bytes, admission, current, sick };
        tokio::spawn(keeper.keep(executor));
        Ok(Self { id, info, executor: executor_seen, sick: sick_seen })
    }

    /// The executor of the moment. `None` while the next one starts.
    pub(super) fn executor(&self) -> Option<Arc<Executor>> {
        self.executor.borrow().clone()
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

struct Keeper {
    options: ExecutorOptions,
    places: u32,
    bytes: u64,
    admission: Arc<Admission>,
    current: watch::Sender<Option<Arc<Executor>>>,
    sick: watch::Sender<Option<String>>,
}

impl Keeper {
    async fn keep(self, first: Executor) {
        let device = DeviceId(self.options.device);
        let mut next = Some(first);
        while let Some(executor) = next {
            let executor = Arc::new(executor);
            self.current.send_replace(Some(Arc::clone(&executor)));
            self.admission.tell(Event::DeviceUp { device, places: self.places, bytes: self.bytes });
            let loss = executor.lost().await;
            self.admission.tell(Event::DeviceDown(device));
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
