//! Restarts an executor whenever it ends, until its device is out of service. While a host program has the device, no executor is there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use super::{
    lease::{Leases, STOP_GRACE},
    memory::MemoryReports,
    probe,
    spare::Spare,
};
use crate::{
    executor::{Executor, ExecutorOptions, Loss, LostCause},
    metrics::Metrics,
    scheduler::{Change, DeviceId, ExecutorId},
    supervisor::handle::DispatcherHandle,
};

/// Number of consecutive failed starts after which a device is taken out of service. A bad kernel ends an executor but does not break the
/// next start.
const START_FAILURES_MAX: u32 = 5;
/// Pause after the first failed start, doubled with each failure, because a driver reset takes a moment.
const START_PAUSE: Duration = Duration::from_millis(200);

/// Pause between starts while other executors leave too little device memory.
const ROOM_PAUSE: Duration = Duration::from_secs(5);

/// Interval at which an executor reports free device memory, because other processes allocate and free memory unannounced.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// The state that the restarters of one device share.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) options: ExecutorOptions,
    pub(super) dispatcher: Arc<DispatcherHandle>,
    pub(super) memory: Arc<MemoryReports>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) spare: Option<Arc<Spare>>,
    pub(super) leases: Leases,
    /// Why the device is out of service.
    pub(super) sick: watch::Sender<Option<String>>,
}

impl Home {
    fn device(&self) -> DeviceId {
        DeviceId(self.options.device)
    }

    /// Takes the device out of service; the first reason is kept. Every restarter of the device then ends its executor.
    pub(super) fn take_out_of_service(&self, reason: String) {
        let is_first = self.sick.send_if_modified(|sick| {
            let is_first = sick.is_none();
            sick.get_or_insert_with(|| reason.clone());
            is_first
        });
        if is_first {
            error!(device = self.options.device, reason, "device out of service");
            self.dispatcher.tell_devices(Change::DeviceGone(self.device()));
            self.spare.iter().for_each(|spare| spare.retire());
        }
    }

    /// Waits until no host program has the device. Returns false if the device is out of service by then.
    async fn is_free_again(&self) -> bool {
        tokio::select! {
            () = self.leases.free() => true,
            () = self.is_sick() => false,
        }
    }

    async fn is_sick(&self) {
        // `self` holds the sender, so the wait ends only with a reason.
        drop(self.sick.subscribe().wait_for(Option::is_some).await);
    }
}

/// Restarts one executor.
pub(super) struct Restarter {
    pub(super) id: ExecutorId,
    pub(super) home: Arc<Home>,
    pub(super) current: watch::Sender<Option<Arc<Executor>>>,
}

impl Restarter {
    pub(super) async fn run(self) {
        let (home, device) = (&self.home, self.home.device());
        let Some(first) = self.start().await else { return };
        home.memory.learn_heap(first.device().heap_bytes);
        let mut executor = Arc::new(first);
        loop {
            self.current.send_replace(Some(Arc::clone(&executor)));
            home.dispatcher.tell_devices(Change::ExecutorUp(self.id));
            let (pool, index) = (self.id.pool.0, self.id.index);
            debug!(device = device.0, pool, executor = index, pid = executor.pid(), "executor ready");
            home.memory.listen_to(&executor, Some(self.id));
            let loss = tokio::select! {
                loss = executor.lost() => Some(loss),
                () = home.is_sick() => {
                    executor.kill();
                    Some(executor.lost().await)
                }
                () = home.leases.leased() => {
                    executor.stop(STOP_GRACE).await;
                    None
                }
                () = self.look_after_memory(&executor) => unreachable!("the loop has no end"),
            };
            let lost = Instant::now();
            home.dispatcher.tell_devices(Change::ExecutorDown(self.id));
            home.memory.forget(&executor);
            self.current.send_replace(None);
            let Some(loss) = loss else {
                let Some(next) = self.start().await else { return };
                executor = Arc::new(next);
                continue;
            };
            if loss.cause == LostCause::Stopped {
                return;
            }
            home.metrics.executor_lost(device, loss.cause);
            let Some(next) = self.successor(&loss).await else { return };
            let gap_us = lost.elapsed().as_micros() as u64;
            warn!(
                device = device.0,
                pool = self.id.pool.0,
                executor = self.id.index,
                pid = next.pid(),
                gap_us,
                reason = loss.reason,
                "executor lost, another took over"
            );
            executor = next;
        }
    }

    /// Asks the executor to release cached memory when another executor needs it, and to report free memory at intervals; never returns.
    async fn look_after_memory(&self, process: &Executor) {
        let release_request = self.home.dispatcher.release_request(self.id);
        let mut interval = tokio::time::interval(MEASURE_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = release_request.notified() => {
                    let (device, pool, executor) = (self.id.device.0, self.id.pool.0, self.id.index);
                    info!(device, pool, executor, "another executor needs cached device memory, releasing it");
                    process.give_back();
                }
                _ = interval.tick() => process.measure(),
            }
        }
    }

    /// Returns the next executor, or `None` if the device is out of service.
    async fn successor(&self, loss: &Loss) -> Option<Arc<Executor>> {
        if loss.cause != LostCause::Device
            && let Some(spare) = &self.home.spare
            && let Some(executor) = spare.take().await
        {
            return Some(executor);
        }
        let executor = Arc::new(self.start().await?);
        info!(device = self.home.options.device, pid = executor.pid(), "executor started");
        if loss.cause == LostCause::Device
            && let Err(problem) = probe::passes(&executor).await
        {
            self.home.take_out_of_service(format!("{}; then the probe kernel failed: {problem}", loss.reason));
            return None;
        }
        Some(executor)
    }

    /// Starts an executor, once no host program has the device. After several failures, takes the device out of service and returns
    /// `None`. A start that fails because this worker's other executors leave too little memory does not count as a failure.
    async fn start(&self) -> Option<Executor> {
        let device = self.home.options.device;
        let mut pause = START_PAUSE;
        let mut failures = 0;
        while failures < START_FAILURES_MAX {
            let started = tokio::select! {
                biased;
                () = self.home.is_sick() => return None,
                () = self.home.leases.leased() => None,
                started = Executor::start(self.home.options.clone()) => Some(started),
            };
            let Some(started) = started else {
                if self.home.is_free_again().await {
                    continue;
                }
                return None;
            };
            match started {
                Ok((executor, _)) => return Some(executor),
                Err(reason) if reason.is_out_of_memory() && self.home.memory.is_in_use() => {
                    let (pool, executor) = (self.id.pool.0, self.id.index);
                    warn!(device, pool, executor, %reason, "not enough device memory to start an executor, trying again");
                    self.home.dispatcher.ask_all_back(self.home.device());
                    tokio::select! {
                        () = tokio::time::sleep(ROOM_PAUSE) => {}
                        () = self.home.is_sick() => return None,
                    }
                }
                Err(reason) => {
                    failures += 1;
                    warn!(device, failures, %reason, "executor failed to start");
                    if failures == START_FAILURES_MAX {
                        self.home.take_out_of_service(reason.to_string());
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
