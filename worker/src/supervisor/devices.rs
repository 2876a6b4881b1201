//! The devices of this worker and their executors: for each device and pool one or more, restarted when they end.

mod activity;
mod lease;
mod memory;
mod mode;
mod monitor;
mod probe;
mod restarter;
mod spare;

use std::sync::Arc;

use futures::future::join_all;
use gpufleet_schema::{
    BlobDigest, DeviceClass, DeviceProgram, DeviceSeen, DeviceSessions, PoolUse, RanOn, UtilizationBy, WorkerName,
};
use tokio::sync::watch;
use tracing::info;

use self::{
    activity::{Activity, Use},
    lease::Leases,
    memory::MemoryReports,
    restarter::{Home, Restarter},
    spare::Spare,
};
pub(super) use self::{
    activity::{Presence, ProgramPresence, SessionPresence},
    lease::DeviceLease,
    monitor::Monitor,
};
use super::handle::DispatcherHandle;
use crate::{
    compiler::Compiler,
    config::{Config, PoolSpec, SessionAllowance},
    executor::{ComputeMode, DeviceInfo, Executor, ExecutorOptions, Sizes},
    metrics::{Gauges, Metrics},
    scheduler::{DeviceId, ExecutorId, PoolId, SessionTerms},
};

/// Minimum memory of a device that has a spare executor by default, in bytes. A context takes some hundreds of megabytes, so on a smaller
/// device a spare would leave too little for jobs.
const SPARE_DEVICE_BYTES_MIN: u64 = 16 << 30;

/// Memory of a CUDA context on a GPU, in bytes: an upper estimate, because contexts of recent GPUs and drivers take 0.4 to 0.6 GiB.
const SESSION_OVERHEAD_BYTES: u64 = 640 << 20;

/// The process of an executor; `None` while it restarts.
type CurrentExecutor = watch::Receiver<Option<Arc<Executor>>>;

/// A device of this worker and its current executors.
#[derive(Debug)]
pub(super) struct WorkerDevice {
    pub(super) id: DeviceId,
    pub(super) info: DeviceInfo,
    /// The device's class, for forwarding.
    pub(super) class: DeviceClass,
    /// The current executors, by pool and index.
    executors: Vec<Vec<CurrentExecutor>>,
    sick: watch::Receiver<Option<String>>,
    spare: Option<Arc<Spare>>,
    leases: Leases,
    activity: Arc<Activity>,
    memory: Arc<MemoryReports>,
}

impl WorkerDevice {
    /// Starts the executors of each pool. Each is restarted until it is stopped or the device is out of service.
    pub(super) fn open(
        info: DeviceInfo,
        config: &Config,
        compiler: &Arc<Compiler>,
        dispatcher: &Arc<DispatcherHandle>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let id = DeviceId(info.ordinal);
        metrics.device_opened(id);
        let options = ExecutorOptions {
            uuid: Some(info.uuid.clone()),
            streams: config.jobs_per_device as usize,
            compiler: Arc::clone(compiler),
            user: config.executor_user.clone(),
            resident_bytes_max: config.resident_inputs.unwrap_or(info.memory_bytes / 2),
            ..ExecutorOptions::new(info.ordinal, config.cuda.clone())
        };
        let contexts = config.pools.iter().map(|pool| u64::from(pool.executors)).sum();
        let memory = MemoryReports::new(id, slots(config), info.memory_bytes, contexts, Arc::clone(dispatcher));
        let of_pool = |pool: &PoolSpec| (0..pool.executors).map(|_| watch::channel(None)).unzip();
        let (currents, executors): (Vec<Vec<_>>, Vec<Vec<_>>) = config.pools.iter().map(of_pool).unzip();
        let first: CurrentExecutor = executors[0][0].clone();
        let leases = Leases::new();
        let spare =
            has_spare(config, &info).then(|| Spare::keep(options.clone(), first, Arc::clone(&memory), leases.clone()));
        let sick = watch::Sender::new(None);
        let (dispatcher, metrics) = (Arc::clone(dispatcher), Arc::clone(metrics));
        let home = Home { options, dispatcher, memory, metrics, spare: spare.clone(), leases: leases.clone(), sick };
        let home = Arc::new(home);
        match mode::unfit(&info, contexts) {
            Some(reason) => home.take_out_of_service(reason),
            None => {
                for (pool, of_pool) in (0..).map(PoolId).zip(currents) {
                    for (index, current) in (0..).zip(of_pool) {
                        let id = ExecutorId { device: id, pool, index };
                        tokio::spawn(Restarter { id, home: Arc::clone(&home), current }.run());
                    }
                }
            }
        }
        let (sick, memory) = (home.sick.subscribe(), Arc::clone(&home.memory));
        let (major, minor) = info.compute_capability;
        let class = DeviceClass::new(&info.name, [major, minor], info.memory_bytes, config.blobs.is_some());
        let activity = Activity::new(config.pools.len());
        Self { id, info, class, executors, sick, spare, leases, activity, memory }
    }

    /// Returns when every pool has its first executor on this device, or the device is out of service.
    pub(super) async fn settled(&self) {
        let up = |executor: &CurrentExecutor| {
            let mut executor = executor.clone();
            // An error means that the restarter has ended because the device is out of service.
            async move { drop(executor.wait_for(Option::is_some).await) }
        };
        join_all(self.first_executors().map(up)).await;
        if self.is_in_service() {
            let (device, info) = (self.id.0, &self.info);
            let executors = self.executors.iter().map(Vec::len).sum::<usize>();
            info!(device, uuid = info.uuid, name = info.name, emulated = info.emulated, executors, "device opened");
        }
    }

    /// Returns whether every pool has its first executor on this device. Its others may follow.
    pub(super) fn is_up(&self) -> bool {
        self.first_executors().all(|executor| executor.borrow().is_some())
    }

    fn first_executors(&self) -> impl Iterator<Item = &CurrentExecutor> {
        self.executors.iter().filter_map(|of_pool| of_pool.first())
    }

    /// Counts a job with this much declared memory as running on the device, until the result is dropped.
    pub(super) fn enter(&self, pool: PoolId, bytes: u64) -> Presence {
        self.activity.enter(pool, bytes)
    }

    /// Has all executors leave the device for a host program, until the result is dropped. Returns once they have left. Cancelling lets
    /// them start again.
    pub(super) async fn lease(&self) -> DeviceLease {
        let lease = self.leases.begin();
        let gone = |executor: &CurrentExecutor| {
            let mut executor = executor.clone();
            // An error means that the restarter has ended because the device is out of service.
            async move { drop(executor.wait_for(Option::is_none).await) }
        };
        join_all(self.executors.iter().flatten().map(gone)).await;
        if let Some(spare) = &self.spare {
            spare.gone().await;
        }
        lease
    }

    /// Counts a host program as running on the device, until the result is dropped.
    pub(super) fn run_program(&self, pool: PoolId, program: DeviceProgram) -> ProgramPresence {
        self.activity.run_program(pool, self.info.memory_bytes, program)
    }

    /// Returns whether a host program of the pool has the device.
    pub(super) fn runs_program_of(&self, pool: PoolId) -> bool {
        self.activity.program(pool).is_some()
    }

    /// Counts a session with this much memory as open on the device, until the result is dropped.
    pub(super) fn open_session(&self, pool: PoolId, bytes: u64) -> SessionPresence {
        self.activity.open_session(pool, bytes)
    }

    /// Takes note of the memory that a session holds now; none after its end.
    pub(super) fn session_holds(&self, gate: u32, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.memory.session_holds(gate, bytes),
            None => self.memory.forget_session(gate),
        }
    }

    /// Returns the memory that a session takes in addition to its lease, in bytes: its context.
    pub(super) fn session_overhead(&self) -> u64 {
        if self.info.emulated { 0 } else { SESSION_OVERHEAD_BYTES }
    }

    /// Returns the process of an executor on this device, or `None` while it restarts.
    pub(super) fn executor(&self, id: ExecutorId) -> Option<Arc<Executor>> {
        self.executors[id.pool.0 as usize][id.index as usize].borrow().clone()
    }

    pub(super) fn executors(&self) -> impl Iterator<Item = Arc<Executor>> {
        self.executors.iter().flatten().filter_map(|executor| executor.borrow().clone())
    }

    /// Returns whether an executor of the pool has the input on the device.
    pub(super) fn has_input(&self, pool: PoolId, input: BlobDigest, bytes: u64) -> bool {
        let mut of_pool = self.executors[pool.0 as usize].iter();
        of_pool.any(|executor| executor.borrow().as_ref().is_some_and(|executor| executor.has_input(input, bytes)))
    }

    /// Returns the reason once the device is out of service.
    pub(super) async fn out_of_service(&self) -> String {
        let mut sick = self.sick.clone();
        match sick.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("that is what was waited for"),
            Err(_) => "its restarter ended".to_owned(),
        }
    }

    /// Returns the device memory that a buffer of this size takes, with alignment, in bytes.
    pub(super) fn taken(&self, bytes: u64) -> u64 {
        Sizes::of(self.info.emulated).taken(bytes)
    }

    pub(super) fn is_in_service(&self) -> bool {
        self.sick.borrow().is_none()
    }

    /// Returns why the device is out of service, if it is.
    pub(super) fn sick_reason(&self) -> Option<String> {
        self.sick.borrow().as_ref().map(|reason| format!("device {}: {reason}", self.id.0))
    }

    pub(super) fn ran_on(&self, worker: WorkerName) -> RanOn {
        RanOn { worker, device: self.id.0, device_name: self.info.name.clone(), emulated: self.info.emulated }
    }

    pub(super) fn is_emulated(&self) -> bool {
        self.info.emulated
    }

    /// Returns the device's part of a heartbeat. If NVML does not report the utilization, it is that of this worker's jobs.
    pub(super) fn seen(&self, config: &Config, monitor: &Monitor) -> DeviceSeen {
        let (major, minor) = self.info.compute_capability;
        let reading = monitor.reading(&self.info.uuid);
        let busy = self.activity.busy_percent();
        let told = reading.as_ref().and_then(|reading| reading.utilization_percent);
        let utilization_by = match (told, busy) {
            (Some(_), _) => Some(UtilizationBy::Nvml),
            (None, Some(_)) => Some(UtilizationBy::Worker),
            (None, None) => None,
        };
        let uses = self.activity.pools();
        let pools = config.pools.iter().zip(&uses).zip((0..).map(PoolId)).map(|((pool, held), id)| PoolUse {
            pool: pool.name.clone(),
            jobs_running: held.jobs,
            memory_bytes: held.bytes,
            weight: Some(pool.guarantee.weight),
            guaranteed_bytes: Some(pool.guarantee.bytes(self.info.memory_bytes)),
            sessions: self.sessions_seen(pool.sessions, held),
            program: self.activity.program(id),
        });
        DeviceSeen {
            index: self.info.ordinal,
            uuid: self.info.uuid.clone(),
            name: self.info.name.clone(),
            emulated: self.info.emulated,
            compute_capability: [major, minor],
            memory_bytes: self.info.memory_bytes,
            driver_version: self.info.driver_version,
            out_of_service: self.sick.borrow().clone(),
            jobs_running: Some(uses.iter().map(|held| held.jobs).sum()),
            pools: pools.collect(),
            memory_used_bytes: reading.as_ref().and_then(|reading| reading.memory_used_bytes),
            utilization_percent: told.or(busy),
            utilization_by,
            temperature_celsius: reading.as_ref().and_then(|reading| reading.temperature_celsius),
            power_milliwatts: reading.and_then(|reading| reading.power_milliwatts),
        }
    }
}

impl WorkerDevice {
    /// Returns what a heartbeat says of a pool's sessions on the device, if it may have some.
    fn sessions_seen(&self, allowance: SessionAllowance, held: &Use) -> Option<DeviceSessions> {
        let terms = SessionTerms { memory_permille: allowance.memory_permille, insists: false, is_whole: false };
        let takes_some = allowance.count > 0 && self.info.compute_mode == ComputeMode::Shared;
        takes_some.then(|| DeviceSessions {
            open: held.sessions,
            memory_bytes: held.session_bytes,
            memory_bytes_max: terms.bytes_max(self.info.memory_bytes),
            overhead_bytes: self.session_overhead(),
        })
    }

    /// Sets the device's gauges.
    pub(super) fn show(&self, config: &Config, gauges: &Gauges) {
        let device = gauges.device(self.id, &self.info);
        device.set_in_service(self.is_in_service());
        for ((pool, held), id) in config.pools.iter().zip(self.activity.pools()).zip((0..).map(PoolId)) {
            device.set_use(&pool.name, held.jobs, held.sessions, held.bytes);
            device.set_programs(&pool.name, self.runs_program_of(id));
        }
    }
}

/// Returns the number of slots of a device. Each pool with guaranteed memory adds a slot of its own, so that the other pools lose none.
fn slots(config: &Config) -> u32 {
    let own = config.pools.iter().filter(|pool| pool.guarantee.memory_permille > 0).count();
    config.jobs_per_device + own as u32
}

/// Returns whether the device gets a spare executor.
fn has_spare(config: &Config, device: &DeviceInfo) -> bool {
    let is_cheap = device.emulated || device.memory_bytes >= SPARE_DEVICE_BYTES_MIN;
    device.compute_mode == ComputeMode::Shared && config.spare_executors.map_or(is_cheap, |count| count > 0)
}
