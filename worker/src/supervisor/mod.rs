//! The supervisor: consumes task messages, schedules their jobs, replies and reports events. It never loads CUDA.

mod admission;
mod announcing;
mod answering;
mod arrays;
mod attempt_result;
mod bindings;
mod brief;
mod census;
mod clock;
mod content;
mod decoding;
mod devices;
mod envelope;
mod exposition;
mod failing_line;
mod footprints;
mod forwarding;
mod gathered_replies;
mod handle;
mod heartbeat;
mod held;
mod intake;
mod long;
mod name;
mod offering_session;
mod orders;
mod outbox;
mod owed;
mod prepared;
mod preparing;
mod preparing_program;
mod preparing_session;
mod program_claim;
mod program_files;
mod program_host;
mod program_output;
mod programs;
mod progress;
mod ready;
mod refusal;
mod running;
mod salvage;
mod service;
mod session_addresses;
mod session_reports;
mod sessions;
mod settling;
mod shell;
mod signals;
mod start;
mod stranded;
mod task_queue;

use std::{
    collections::HashSet,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::{join_all, select_all};
use gpufleet_blobs::{BlobCacheError, BlobError, BlobStore};
use gpufleet_schema::{ClassKey, Event, MessageId, WorkerName, bounds::MESSAGE_BYTES_MAX};
use gpufleet_telemetry::{Traces, TracesError};
use gpufleet_transport::{Broker, ConnectError, DeclareError, EventSink, GroupCommit, PublishError, State};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    admission::Admission,
    census::Census,
    devices::{Monitor, WorkerDevice},
    exposition::Exposition,
    footprints::Footprints,
    gathered_replies::{Recipient, ReplyList},
    handle::{DispatcherHandle, Input},
    orders::OrderLog,
    program_host::ProgramHost,
    progress::ProgressChannel,
    ready::ReadyFile,
    shell::Shell,
    signals::Signals,
    task_queue::{Route, TaskQueue, task_queues},
};
use crate::{
    compiler::{Compiler, Counts, ProgramStoreError, Target},
    config::{ChoiceError, Config},
    dispatcher::Dispatcher,
    inventory::InventoryError,
    metrics::Metrics,
    nvml,
    quarantine::Quarantine,
    scheduler::{self, Allowed, prefetch::PrefetchLimits},
    shared_state::SharedState,
};

/// Why a worker could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0}")]
    Inventory(#[from] InventoryError),
    #[error("{0}")]
    Choice(#[from] ChoiceError),
    #[error("{0}")]
    Connect(Box<ConnectError>),
    #[error("{0}")]
    Declare(#[from] DeclareError),
    #[error("another worker named {:?} is connected to the broker; give each worker a name of its own with --name", .0.as_str())]
    NameTaken(WorkerName),
    #[error("failed to write the ready file {path}: {source}")]
    ReadyFile { path: String, source: std::io::Error },
    #[error("failed to listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    #[error("failed to read earlier orders from the control stream: {0}")]
    Orders(#[source] PublishError),
    #[error("{0}")]
    Cache(#[from] ProgramStoreError),
    #[error("{0}; check the store given with --blobs")]
    Blobs(#[from] BlobError),
    #[error("{0}; choose another folder with --blob-cache")]
    BlobCache(#[from] BlobCacheError),
    #[error("failed to serve metrics on {address}: {source}; choose another address or port with --metrics")]
    Metrics { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Traces(#[from] TracesError),
    #[error("this machine can't run host programs (programs=N): {0}")]
    Programs(String),
    #[error("failed to look into the folder of host programs {path}: {source}; choose another with --program-folder")]
    ProgramFolder { path: String, source: std::io::Error },
    #[error("no device is left in service: {0}")]
    DevicesLost(String),
}

/// The shared state for handling messages.
#[derive(Debug)]
pub(crate) struct Supervisor {
    config: Config,
    broker: Broker,
    events: EventSink,
    dispatcher: Arc<DispatcherHandle>,
    devices: Vec<WorkerDevice>,
    monitor: Monitor,
    compiler: Arc<Compiler>,
    /// The blob store, if one is configured.
    blobs: Option<BlobStore>,
    orders: Arc<OrderLog>,
    quarantine: SharedState<Quarantine>,
    /// What host programs run with.
    program_host: ProgramHost,
    footprints: Footprints,
    gathered_replies: GroupCommit<Recipient, ReplyList>,
    census: Census,
    progress: ProgressChannel,
    metrics: Arc<Metrics>,
    /// The exporter of spans; `None` unless the environment names a collector.
    traces: Option<Traces>,
    /// Cancelled when the worker starts to drain.
    leaving: CancellationToken,
    /// Cancelled when the grace period of the draining worker is over.
    out_of_grace: CancellationToken,
}

/// Interval at which a worker that drains without a broker connection checks whether its last job has ended.
const IDLE_LOOK: Duration = Duration::from_millis(100);
/// Time limit for publishing the last events and closing the connection after the last job.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(5);
/// Grace period of idle executors at exit; after it they are killed.
const EXECUTOR_GRACE: Duration = Duration::from_secs(1);

/// Runs a worker until it has drained after a signal or an order, or its last device is lost. Returns `Ok` if it drained. Work that takes
/// long, like compiling or copying large arrays, runs in `background`, so that this runtime needs no second thread.
pub async fn run(config: Config, background: Handle) -> Result<(), WorkerError> {
    let mut signals = Signals::listen().map_err(WorkerError::Signals)?;
    let ready = ReadyFile::withdrawn(config.ready_file.clone())?;
    let metrics = Arc::new(Metrics::new(&config));
    let traces = Traces::from_environment("gpufleet-worker")?;
    let exposition = Exposition::begin(config.metrics, &metrics).await?;
    let guarantees: Vec<_> = config.pools.iter().map(|pool| pool.guarantee).collect();
    let mark = MessageId::new();
    let (handle, mail) = DispatcherHandle::new(background);
    let dispatcher = Dispatcher::new(Instant::now(), config.name.clone(), mark, &guarantees);
    let store = start::store(&config.cache)?;
    let blobs = tokio::select! {
        blobs = start::blobs(&config, &metrics) => blobs?,
        // A network file system may hang.
        _ = signals.next() => return Ok(()),
    };
    let program_host = ProgramHost::prepare(&config)?;
    let compiler = Compiler::new(None).with_sandbox(config.sandbox).with_user(config.executor_user.clone());
    let compiler = compiler.with_time_limit(config.compile_limit).with_pools(config.pools.len());
    let compiler = Arc::new(compiler.with_store(store));
    tokio::spawn(start::prepare_compiler(Arc::clone(&compiler), config.sandbox));
    let devices = tokio::select! {
        devices = start::devices(&config, &handle, &compiler, &metrics) => devices?,
        // A driver may be slow or hang. The processes that open devices die with this one.
        _ = signals.next() => return Ok(()),
    };
    // NVML knows only NVIDIA's devices, so the default library is not loaded without a GPU.
    let has_gpu = devices.iter().any(|device| !device.is_emulated());
    let library = config.nvml.clone().filter(|name| has_gpu || name != nvml::LIBRARY);
    let monitor = Monitor::start(library, config.executor_user.clone());
    let classes = start::classes(&devices);
    let Some(broker) = start::broker(&config, &classes, &mut signals).await? else { return Ok(()) };
    tokio::select! {
        claimed = name::claim(&broker, &config.name, config.heartbeat) => claimed?,
        _ = signals.next() => return Ok(()),
    }
    let queues = task_queues(&config.pools, &classes);
    let orders = OrderLog::new(config.name.clone(), mark, Arc::clone(&handle));
    let events = EventSink::of_worker(broker.clone());
    let progress = ProgressChannel::over(broker.progress_publisher());
    let (quarantine, footprints, census) = Default::default();
    let supervisor = Arc::new(Supervisor {
        events,
        compiler,
        blobs,
        config,
        broker,
        dispatcher: handle,
        devices,
        monitor,
        orders,
        quarantine,
        program_host,
        footprints,
        gathered_replies: GroupCommit::default(),
        census,
        progress,
        metrics,
        traces,
        leaving: CancellationToken::new(),
        out_of_grace: CancellationToken::new(),
    });
    exposition.is_of(&supervisor);
    let (shell, prefetch) = Shell::new(Arc::clone(&supervisor), dispatcher, mail, &queues);
    supervisor.serve(&mut signals, ready, queues, shell, prefetch).await
}

impl Supervisor {
    async fn serve(
        self: Arc<Self>,
        signals: &mut Signals,
        ready: ReadyFile,
        queues: Vec<TaskQueue>,
        shell: Shell,
        prefetch: Vec<watch::Receiver<u16>>,
    ) -> Result<(), WorkerError> {
        let dispatching = tokio::spawn(shell.run());
        let following = tokio::spawn(Arc::clone(&self.orders).follow(self.broker.clone()));
        tokio::select! {
            // Once this is done, every earlier order is known.
            known = self.orders.catch_up(&self.broker) => known.map_err(WorkerError::Orders)?,
            // The broker may have gone away in the meantime.
            _ = signals.next() => return Ok(()),
            reason = self.all_devices_lost() => return Err(WorkerError::DevicesLost(reason)),
        }
        // The worker's own announcement is not yet in the control stream, so add it here.
        self.orders.roster().hear(self.announcement(), 0);
        let task_queues = queues.iter().filter(|queue| queue.route == Route::Pool).cloned().collect();
        let (intakes, subscribed) = self.open_intakes(queues, prefetch);
        let announcing = tokio::spawn(announcing::announce(Arc::clone(&self)));
        let collecting = stranded::collect(Arc::clone(&self), task_queues);
        let leaving = self.leaving.clone();
        let collecting = tokio::spawn(async move { leaving.run_until_cancelled(collecting).await });
        let heartbeat = tokio::spawn(heartbeat::beat(Arc::clone(&self), self.leaving.clone()));
        let binding = tokio::spawn(bindings::keep(Arc::clone(&self)));
        let naming = tokio::spawn(name::keep(self.broker.clone(), self.config.name.clone()));
        let watchdog = tokio::spawn(service::feed_watchdog(Arc::clone(&self.dispatcher)));

        let mut had_signal = false;
        let end = tokio::select! {
            signal = signals.next() => {
                info!(signal, grace = ?self.config.grace, "draining");
                had_signal = true;
                Ok(())
            }
            () = self.orders.drain() => {
                info!(grace = ?self.config.grace, "draining");
                Ok(())
            }
            reason = self.all_devices_lost() => Err(WorkerError::DevicesLost(reason)),
            Err(error) = self.announce(&ready, subscribed) => Err(error),
        };

        drop(ready);
        self.metrics.set_ready(false);
        service::stopping();
        self.leaving.cancel();
        self.dispatcher.tell(Input::Drain);
        let left = async {
            join_all(intakes).await;
            let _ended = collecting.await;
            self.dispatcher.idle().await;
        };
        self.finish_running(left, signals.second(had_signal)).await;
        // These tasks may be waiting for an unreachable broker.
        heartbeat.abort();
        announcing.abort();
        binding.abort();
        naming.abort();
        following.abort();
        self.say_goodbye().await;
        watchdog.abort();
        dispatching.abort();
        end
    }

    /// Subscribes to each queue. Returns the subscriptions' tasks and their states. A queue that the broker has not started does not block
    /// the others.
    fn open_intakes(
        self: &Arc<Self>,
        queues: Vec<TaskQueue>,
        prefetch: Vec<watch::Receiver<u16>>,
    ) -> (Vec<JoinHandle<()>>, Vec<watch::Receiver<bool>>) {
        let (mut intakes, mut subscribed) = (Vec::new(), Vec::new());
        for (queue, mut prefetch) in queues.into_iter().zip(prefetch) {
            let first = *prefetch.borrow_and_update();
            let (dispatcher, index) = (Arc::clone(&self.dispatcher), queue.index);
            let stop = match queue.route {
                Route::Class(class) => self.end_of_class(class),
                Route::Pool | Route::AffinitySlot(_) | Route::Session | Route::Program => self.leaving.clone(),
            };
            let (name, priority) = (queue.name(), self.consumer_priority(&queue));
            let admission = self.admission(&queue);
            let subscription =
                self.broker.subscribe(name, first, priority, queue.pass_to(admission, Arc::clone(&dispatcher)));
            subscribed.push(subscription.status());
            intakes.push(tokio::spawn(intake::attend(dispatcher, subscription, index, prefetch, stop)));
        }
        (intakes, subscribed)
    }

    fn admission(&self, queue: &TaskQueue) -> Admission {
        Admission::new(&self.config, &self.config.pools[queue.id.0 as usize])
    }

    fn prefetch_limits(&self) -> PrefetchLimits {
        PrefetchLimits {
            messages_max: self.config.prefetch,
            bytes_max: self.config.prefetch_bytes,
            message_bytes_max: MESSAGE_BYTES_MAX as u64,
        }
    }

    /// Returns a token that is cancelled when the last device of the class is out of service, or when the worker drains. Other workers then
    /// take the jobs that were forwarded to the class.
    fn end_of_class(self: &Arc<Self>, class: ClassKey) -> CancellationToken {
        let (end, supervisor) = (self.leaving.child_token(), Arc::clone(self));
        let ended = end.clone();
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            let of_class = supervisor.devices.iter().filter(|device| device.class.key == class);
            join_all(of_class.map(WorkerDevice::out_of_service)).await;
            ended.cancel();
        }));
        end
    }

    /// Reports that the worker is ready once it has subscribed to every queue.
    async fn announce(&self, ready: &ReadyFile, subscribed: Vec<watch::Receiver<bool>>) -> Result<(), WorkerError> {
        for mut subscribed in subscribed {
            // An error means that the intake has ended because the worker drains.
            let _ended = subscribed.wait_for(|subscribed| *subscribed).await;
        }
        ready.announce()?;
        self.metrics.set_ready(true);
        service::ready(self.config.name.as_str());
        info!(worker = %self.config.name, pools = %pool_names(&self.config), devices = self.devices.len(), "ready");
        Ok(())
    }

    /// Returns the reason once the last device is out of service.
    async fn all_devices_lost(&self) -> String {
        let mut waiting: Vec<_> = self.devices.iter().map(|device| Box::pin(device.out_of_service())).collect();
        loop {
            let (reason, _, rest) = select_all(waiting).await;
            if rest.is_empty() {
                return reason;
            }
            waiting = rest;
        }
    }

    /// Waits for running jobs within the grace period. At its end, or at a second signal, their executors are killed and the broker
    /// redelivers the jobs to other workers. Sessions end for good. Without a broker connection, it waits only for running jobs.
    async fn finish_running(&self, left: impl Future<Output = ()>, second_signal: impl Future<Output = &'static str>) {
        let mut left = pin!(left);
        tokio::select! {
            () = &mut left => return,
            () = self.cut_off_and_idle() => return info!("broker unreachable and no job running, exiting at once"),
            () = tokio::time::sleep(self.config.grace) => warn!("grace period is over, requeueing running jobs"),
            signal = second_signal => warn!(signal, "second signal, requeueing running jobs"),
        }
        self.devices.iter().flat_map(WorkerDevice::executors).for_each(|executor| executor.kill());
        self.out_of_grace.cancel();
        if tokio::time::timeout(FAREWELL_DEADLINE, left).await.is_err() {
            warn!("some deliveries not settled, the broker will redeliver them");
        }
    }

    /// Returns once the broker is unreachable and no job occupies a slot. All messages then came over a closed connection: they can't be
    /// settled, and the broker redelivers them anyway.
    async fn cut_off_and_idle(&self) {
        loop {
            self.cut_off().await;
            if self.dispatcher.snapshot().await.running == 0 {
                return;
            }
            tokio::time::sleep(IDLE_LOOK).await;
        }
    }

    /// Returns once there is no connection to the broker.
    async fn cut_off(&self) {
        let is_away = |state: &State| matches!(state, State::Reconnecting { .. } | State::Closed);
        let mut state = self.broker.state();
        // An error means that the connection was closed for good.
        let _ended = state.wait_for(is_away).await;
    }

    /// Sends the last heartbeat if the broker is reachable, and stops the executors.
    async fn say_goodbye(&self) {
        let told = async {
            tokio::select! {
                sent = self.events.send_confirmed(vec![Event::WorkerSeen(self.seen(true).await)]) => {
                    if let Err(error) = sent {
                        warn!(%error, "last events not confirmed");
                    }
                    self.broker.close().await;
                }
                () = self.cut_off() => info!("broker unreachable, the ledger will report this worker as silent"),
            }
        };
        let executors = self.devices.iter().flat_map(WorkerDevice::executors);
        let ended = join_all(executors.map(|executor| async move { executor.stop(EXECUTOR_GRACE).await }));
        let exported = async {
            if let Some(traces) = &self.traces {
                traces.flush(FAREWELL_DEADLINE).await;
            }
        };
        let farewell = async { tokio::join!(told, ended, exported) };
        if tokio::time::timeout(FAREWELL_DEADLINE, farewell).await.is_err() {
            warn!("the broker did not confirm the last events in time");
        }
        let Counts { memory, disk, compiled } = self.compiler.counts();
        info!(compiled, from_memory = memory, from_disk = disk, "stopped");
    }

    fn device(&self, id: scheduler::DeviceId) -> &WorkerDevice {
        self.devices.iter().find(|device| device.id == id).expect("the scheduler knows only devices that were opened")
    }

    /// Returns the compile targets of these devices, each once.
    fn targets(&self, allowed: Allowed) -> HashSet<Target> {
        self.devices.iter().filter(|device| allowed.has(device.id)).map(|device| device.info.target()).collect()
    }
}

fn pool_names(config: &Config) -> String {
    config.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(" ")
}
