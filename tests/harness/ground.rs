//! A scenario's own fleet: a vhost, a database, a ledger and the requested workers.

use std::{
    fs,
    ops::Deref,
    sync::{Arc, LazyLock},
};

use gpufleet_ledger::{DatabaseUrl, Ledger};
use gpufleet_local::{Endpoints, LocalFleet, LocalFleetBuilder, QueueKind, RabbitMq, Services, Signal, Worker};
use gpufleet_schema::PoolName;
use gpufleet_transport::{Broker, Options};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::{WAIT, history::Sightings, node, poll_until, producer::ProducerRecords, witness::Witness};

/// The services that most scenarios share. They end with this process.
static SERVICES: OnceCell<Arc<Services>> = OnceCell::const_new();

/// The services that scenarios may break, one scenario at a time.
static BREAKABLE: LazyLock<Arc<Mutex<Option<Arc<Services>>>>> = LazyLock::new(Arc::default);

/// The number of nodes of the broker that scenarios share.
const NODES_VARIABLE: &str = "GPUFLEET_SCENARIO_NODES";

/// A fleet for one scenario. Its processes end when it is dropped.
#[derive(Debug)]
pub struct Ground {
    fleet: LocalFleet,
    kind: QueueKind,
    pub(crate) ledger: Ledger,
    pub(crate) witness: Witness,
    pub(crate) records: ProducerRecords,
    pub(crate) sightings: Sightings,
    /// Services for the exclusive use of one scenario.
    _held: Option<OwnedMutexGuard<Option<Arc<Services>>>>,
}

/// A worker of a [`Ground`].
#[derive(Debug)]
pub struct TestWorker(Arc<Worker>);

impl Ground {
    /// A fleet on the shared broker and database.
    pub async fn shared(label: &str) -> Self {
        Self::shared_with(label, QueueKind::default()).await
    }

    /// A fleet on the shared services, with workers that declare task queues of this kind.
    pub async fn shared_with(label: &str, kind: QueueKind) -> Self {
        let services = shared_services().await;
        Self::on(services, label, kind).await
    }

    /// A fleet with exclusive use of a broker and a database, which the scenario may break and leave broken. The broker has
    /// one node: clients of a cluster would go on to the next, as the cluster's own scenarios show.
    pub async fn breakable(label: &str) -> Self {
        let mut held = Arc::clone(&BREAKABLE).lock_owned().await;
        match &*held {
            Some(services) => repair(services).await,
            None => *held = Some(start_services(1).await),
        }
        let services = Arc::clone(held.as_ref().expect("the services were started above"));
        Self::holding(LocalFleet::builder().label(label).on(&services), held).await
    }

    /// A fleet with its own broker and database, for a scenario that breaks them for a long time.
    pub async fn alone(label: &str) -> Self {
        Self::on(&start_services(1).await, label, QueueKind::default()).await
    }

    /// A fleet whose workers have further environment variables.
    pub async fn with_environment(label: &str, environment: &[(&str, &str)]) -> Self {
        let add = |builder: LocalFleetBuilder, (name, value): &(&str, &str)| builder.worker_env(*name, *value);
        Self::shared_as(label, |builder| environment.iter().fold(builder, add)).await
    }

    /// A fleet on the shared services with further options.
    pub async fn shared_as(label: &str, options: impl FnOnce(LocalFleetBuilder) -> LocalFleetBuilder) -> Self {
        let services = shared_services().await;
        Self::of(options(LocalFleet::builder().label(label).on(services)), QueueKind::default()).await
    }

    /// A fleet with its own broker and database, and with further options.
    pub async fn alone_as(label: &str, options: impl FnOnce(LocalFleetBuilder) -> LocalFleetBuilder) -> Self {
        let builder = LocalFleet::builder().label(label).on(&start_services(1).await);
        Self::of(options(builder), QueueKind::default()).await
    }

    /// A fleet on services that no other scenario uses in the meantime.
    pub(crate) async fn holding(builder: LocalFleetBuilder, held: OwnedMutexGuard<Option<Arc<Services>>>) -> Self {
        let mut ground = Self::of(builder, QueueKind::default()).await;
        ground._held = Some(held);
        ground
    }

    async fn on(services: &Arc<Services>, label: &str, kind: QueueKind) -> Self {
        Self::of(LocalFleet::builder().label(label).on(services).queue_kind(kind), kind).await
    }

    async fn of(builder: LocalFleetBuilder, kind: QueueKind) -> Self {
        let fleet = builder.workers(0).start().await;
        // The error contains the end of the failed program's log.
        let fleet = fleet.unwrap_or_else(|error| panic!("{error}"));
        let url: DatabaseUrl = fleet.endpoints().database_url.parse().unwrap();
        let ledger = Ledger::connect(url).await.unwrap();
        Witness::make_queue(&fleet).await;
        let witness = Witness::begin(&fleet.endpoints().amqp_url).await;
        let (records, sightings) = (ProducerRecords::default(), Sightings::default());
        let ground = Self { fleet, kind, ledger, witness, records, sightings, _held: None };
        ground.declare_pools(&["default"]).await;
        ground
    }

    /// Declares the queues of these pools, for producers that start before any worker.
    pub async fn declare_pools(&self, pools: &[&str]) {
        let broker = self.connect().await;
        if let Err(error) = broker.declare_base().await {
            let log = self.services().state().logs().join("broker-node.log");
            panic!("{error}; the broker's log:\n{}", fs::read_to_string(log).unwrap_or_default());
        }
        for pool in pools {
            broker.declare_pool(&pool.parse::<PoolName>().unwrap()).await.unwrap();
        }
        broker.close().await;
    }

    pub fn services(&self) -> &Services {
        self.fleet.services()
    }

    pub fn endpoints(&self) -> &Endpoints {
        self.fleet.endpoints()
    }

    /// The URL of this ground's vhost on the broker's first node, for programs that take one URL.
    pub fn node_url(&self) -> String {
        self.services().broker().vhost_url(self.fleet.space())
    }

    pub fn fleet(&self) -> &LocalFleet {
        &self.fleet
    }

    /// Starts a worker and waits until it accepts jobs.
    pub async fn worker(&self) -> TestWorker {
        self.worker_with(&[]).await
    }

    pub async fn worker_with(&self, arguments: &[&str]) -> TestWorker {
        let worker = self.start_worker(arguments);
        worker.wait_ready().await.unwrap_or_else(|error| panic!("{error}"));
        worker
    }

    /// Starts a worker without waiting.
    pub fn start_worker(&self, arguments: &[&str]) -> TestWorker {
        TestWorker(self.fleet.launch_worker(arguments).unwrap())
    }

    /// Starts a worker with further variables in its environment, such as the emulator's, without waiting.
    pub fn start_worker_in(&self, arguments: &[&str], environment: &[(&str, &str)]) -> TestWorker {
        TestWorker(self.fleet.launch_worker_in(arguments, environment).unwrap())
    }

    /// A direct connection to the broker.
    pub async fn broker(&self) -> Broker {
        self.connect().await
    }

    /// A connection to one node, whose reply queues are classic ones. A quorum queue refuses messages only once it holds more
    /// than it may.
    pub async fn node_broker(&self) -> Broker {
        self.connect_to(&self.node_url()).await
    }

    async fn connect(&self) -> Broker {
        self.connect_to(&self.endpoints().amqp_url).await
    }

    async fn connect_to(&self, url: &str) -> Broker {
        let queue_kind = match self.kind {
            QueueKind::Quorum => gpufleet_transport::QueueKind::Quorum,
            QueueKind::Classic => gpufleet_transport::QueueKind::Classic,
        };
        let options = Options::new(url.parse().unwrap(), "a scenario");
        Broker::connect(Options { queue_kind, connect_deadline: WAIT, ..options }).await.unwrap()
    }

    pub async fn worker_in(&self, arguments: &[&str], environment: &[(&str, &str)]) -> TestWorker {
        let worker = self.start_worker_in(arguments, environment);
        worker.wait_ready().await.unwrap_or_else(|error| panic!("{error}"));
        worker
    }

    /// Waits until a worker's log contains this text.
    pub async fn poll_log(&self, what: &str, worker: &TestWorker, text: &str) {
        let log = worker.process().log();
        poll_until(what, async || fs::read_to_string(&log).is_ok_and(|log| log.contains(text))).await;
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for worker in self.fleet.workers() {
            worker.process().signal(Signal::Kill);
        }
        if let Some(recorder) = self.fleet.ledger() {
            recorder.signal(Signal::Kill);
        }
    }
}

impl Deref for TestWorker {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl TestWorker {
    /// The process ids of the worker's executors.
    pub fn executors(&self) -> Vec<u32> {
        children(self.pid()).into_iter().filter(|pid| command_line(*pid).contains("executor")).collect()
    }

    /// Asserts that these executors still run. The spare one may have started in the meantime.
    pub fn assert_keeps(&self, executors: &[u32]) {
        let now = self.executors();
        let lost: Vec<_> = executors.iter().filter(|pid| !now.contains(pid)).collect();
        assert!(!executors.is_empty() && lost.is_empty(), "of the executors {executors:?}, {lost:?} have ended");
    }

    /// The process ids of the worker's compilers.
    pub fn compilers(&self) -> Vec<u32> {
        children(self.pid()).into_iter().filter(|pid| command_line(*pid).contains("compile-child")).collect()
    }

    /// Kills the worker's current executors with SIGKILL.
    pub async fn kill_executor(&self) {
        let executors = self.executors();
        assert!(!executors.is_empty(), "worker {} has no executor", self.name());
        // All at once, so that none of them takes over from another.
        executors.iter().for_each(|pid| signal(*pid, libc::SIGKILL));
        poll_until("executors gone", async || !executors.iter().any(|pid| is_alive(*pid))).await;
    }

    /// Suspends the worker's executors with their jobs.
    pub fn pause_executors(&self) {
        self.executors().into_iter().for_each(|pid| signal(pid, libc::SIGSTOP));
    }

    pub fn resume_executors(&self) {
        self.executors().into_iter().for_each(|pid| signal(pid, libc::SIGCONT));
    }

    /// Sends the signal and waits until the worker exits. Returns the exit code; `None` if a signal ended the worker.
    pub async fn stop(&self, signal: Signal) -> Option<i32> {
        self.process().signal(signal);
        self.ended().await
    }

    /// Waits until the worker exits. Returns the exit code; `None` if a signal ended the worker.
    pub async fn ended(&self) -> Option<i32> {
        assert!(self.process().wait(WAIT).await, "worker {} did not stop", self.name());
        self.process().exit_status().and_then(|status| status.code())
    }
}

/// Sends a signal to a child of a worker that this test started.
pub fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// The services that most scenarios share. Their broker has as many nodes as the variable says.
async fn shared_services() -> &'static Arc<Services> {
    let nodes = || std::env::var(NODES_VARIABLE).map_or(1, |nodes| nodes.parse().expect("a number of nodes"));
    SERVICES.get_or_init(|| start_services(nodes())).await
}

async fn start_services(nodes: usize) -> Arc<Services> {
    Services::ephemeral_cluster(nodes).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Repairs the services after the last scenario, which may have failed.
async fn repair(services: &Services) {
    let (nodes, postgres) = (services.nodes(), services.postgres());
    nodes.iter().for_each(RabbitMq::resume);
    RabbitMq::restart_stopped(nodes).await.unwrap();
    if postgres.pid().is_none() {
        postgres.restart().await.unwrap();
    }
    node::restore_defaults(services).await;
}

/// Whether a process runs. A zombie does not.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

pub(crate) fn is_suspended(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'T')
}

fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(state, of)| of == parent && state != 'Z')).collect()
}

/// The state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn command_line(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map_or_else(|_| String::new(), |line| String::from_utf8_lossy(&line).into_owned())
}
