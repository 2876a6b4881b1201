//! The fleet of a scenario: a vhost, a database, a recorder and workers.

use std::{fs, ops::Deref, sync::Arc};

use gpufleet_ledger::{DatabaseUrl, Ledger};
use gpufleet_local::{Endpoints, LocalFleet, LocalFleetBuilder, RabbitMq, Services, Signal, Worker};
use gpufleet_schema::PoolName;
use gpufleet_transport::{Broker, Options};
use tokio::sync::OnceCell;

use crate::{
    WAIT, background,
    busy::Clock,
    exclusive::{Exclusive, Held},
    history::Sightings,
    node, poll_until,
    producer::{Producer, ProducerRecords},
    recorder::Recorder,
    witness::Witness,
};

/// The services that most scenarios share. They end with this process.
static SERVICES: OnceCell<Arc<Services>> = OnceCell::const_new();

/// The services that scenarios may break. Each set is used by one scenario at a time.
static BREAKABLE: Exclusive = Exclusive::new(BREAKABLE_MAX);

/// The number of sets. A second broker and database cost little memory, and the scenarios that break them then finish before the others.
const BREAKABLE_MAX: usize = 2;

/// The variable for the number of nodes of the shared broker.
const NODES_VARIABLE: &str = "GPUFLEET_SCENARIO_NODES";

/// A fleet for one scenario. Its processes end when it is dropped.
#[derive(Debug)]
pub struct Ground {
    fleet: LocalFleet,
    pub(crate) ledger: Ledger,
    pub(crate) witness: Witness,
    pub(crate) records: ProducerRecords,
    pub(crate) sightings: Sightings,
    pub(crate) clock: Clock,
    /// The recorder of the events; `None` if it is a process of the fleet.
    _recorder: Option<Recorder>,
    /// Services for the exclusive use of one scenario.
    held: Option<Held>,
}

/// A worker of a [`Ground`].
#[derive(Debug)]
pub struct TestWorker(Arc<Worker>);

impl Ground {
    /// Creates a fleet on the shared broker and database.
    pub async fn shared(label: &str) -> Self {
        Self::shared_as(label, |builder| builder).await
    }

    /// Creates a fleet with exclusive use of a broker and a database, which the scenario may break and leave broken. The broker has one
    /// node: clients of a cluster would connect to the next node, as the cluster's scenarios show.
    pub async fn breakable(label: &str) -> Self {
        let held = BREAKABLE.take(async || start_services(1).await, repair).await;
        Self::holding(LocalFleet::builder().label(label), held).await
    }

    /// Creates a fleet with its own broker and database, for a scenario that breaks them for a long time.
    pub async fn alone(label: &str) -> Self {
        Self::alone_as(label, |builder| builder).await
    }

    /// Creates a fleet on the shared services, whose workers have further environment variables.
    pub async fn with_environment(label: &str, environment: &[(&str, &str)]) -> Self {
        let add = |builder: LocalFleetBuilder, (name, value): &(&str, &str)| builder.worker_env(*name, *value);
        Self::shared_as(label, |builder| environment.iter().fold(builder, add)).await
    }

    /// Creates a fleet on the shared services, with a worker.
    pub async fn with_worker(label: &str) -> (Self, TestWorker) {
        let ground = Self::shared(label).await;
        let worker = ground.worker().await;
        (ground, worker)
    }

    /// Creates a fleet on the shared services, with a producer.
    pub async fn with_client(label: &str) -> (Self, Producer) {
        let ground = Self::shared(label).await;
        let producer = ground.client().await;
        (ground, producer)
    }

    /// Creates a fleet on the shared services, with a worker and a producer.
    pub async fn served(label: &str) -> (Self, TestWorker, Producer) {
        let (ground, worker) = Self::with_worker(label).await;
        let producer = ground.client().await;
        (ground, worker, producer)
    }

    /// Creates a fleet on the shared services whose recorder is a process, for scenarios that stop it or read its log.
    pub async fn with_recorder_process(label: &str) -> Self {
        Self::shared_as(label, |builder| builder.recorder_process(true)).await
    }

    /// Creates a fleet on the shared services with further options. Unless these say otherwise, its recorder runs in the test's process.
    pub async fn shared_as(label: &str, options: impl FnOnce(LocalFleetBuilder) -> LocalFleetBuilder) -> Self {
        let services = shared_services().await;
        let builder = LocalFleet::builder().label(label).on(services).recorder_process(false);
        Self::of(options(builder)).await
    }

    /// Creates a fleet with its own broker and database, and with further options.
    pub async fn alone_as(label: &str, options: impl FnOnce(LocalFleetBuilder) -> LocalFleetBuilder) -> Self {
        let builder = LocalFleet::builder().label(label).on(&start_services(1).await);
        Self::of(options(builder)).await
    }

    /// Creates a fleet on services that no other scenario uses in the meantime.
    pub(crate) async fn holding(builder: LocalFleetBuilder, held: Held) -> Self {
        let mut ground = Self::of(builder.on(&held)).await;
        ground.held = Some(held);
        ground
    }

    async fn of(builder: LocalFleetBuilder) -> Self {
        let clock = Clock::new();
        let fleet = builder.worker_env(Clock::VARIABLE, clock.file()).workers(0).start().await;
        // The error contains the last lines of the failed program's log.
        let fleet = fleet.unwrap_or_else(|error| panic!("{error}"));
        let url: DatabaseUrl = fleet.endpoints().database_url.parse().unwrap();
        let ledger = Ledger::connect(url).await.unwrap();
        let recorder = match fleet.ledger() {
            Some(_) => None,
            None => Some(Recorder::start(fleet.endpoints()).await),
        };
        Witness::make_queue(&fleet).await;
        let witness = Witness::begin(&fleet.endpoints().amqp_url).await;
        let (records, sightings) = (ProducerRecords::default(), Sightings::default());
        let ground = Self { fleet, ledger, witness, records, sightings, clock, _recorder: recorder, held: None };
        ground.declare_pools(&["default"]).await;
        ground
    }

    /// Declares the queues of these pools, for producers that start before any worker.
    pub async fn declare_pools(&self, pools: &[&str]) {
        let broker = self.broker().await;
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

    /// Returns the URL of this ground's vhost on the broker's first node, for programs that accept a single URL.
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

    /// Returns a direct connection to the broker.
    pub async fn broker(&self) -> Broker {
        self.connect_to(&self.endpoints().amqp_url).await
    }

    /// Returns a connection to one node, whose reply queues are classic queues. A quorum queue refuses messages only after it has exceeded
    /// its limit.
    pub async fn node_broker(&self) -> Broker {
        self.connect_to(&self.node_url()).await
    }

    async fn connect_to(&self, url: &str) -> Broker {
        let options = Options::new(url.parse().unwrap(), "a scenario");
        Broker::connect(Options { connect_deadline: WAIT, ..options }).await.unwrap()
    }

    pub async fn worker_in(&self, arguments: &[&str], environment: &[(&str, &str)]) -> TestWorker {
        let worker = self.start_worker_in(arguments, environment);
        worker.wait_ready().await.unwrap_or_else(|error| panic!("{error}"));
        worker
    }

    /// Waits until a worker's log contains this text.
    pub async fn poll_log(&self, what: &str, worker: &TestWorker, text: &str) {
        poll_until(what, async || worker.count_in_log(text) > 0).await;
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
        let killed: Vec<_> =
            self.fleet.workers().iter().map(|worker| worker.process().clone()).chain(self.fleet.ledger()).collect();
        background::spawn(async move {
            for process in killed {
                process.wait(WAIT).await;
            }
        });
        let (services, space) = (Arc::clone(self.fleet.services()), self.fleet.space().to_owned());
        if let Some(held) = &mut self.held {
            held.leave(&space);
        } else if SERVICES.get().is_some_and(|shared| Arc::ptr_eq(shared, &services)) {
            // Deleted in the background. Hundreds of vhosts and databases would slow the later scenarios down.
            background::spawn(async move {
                if let Err(error) = services.delete_space(&space).await {
                    eprintln!("failed to delete the vhost and the database {space}: {error}");
                }
            });
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
    /// Returns how often the log contains this text.
    pub fn count_in_log(&self, text: &str) -> usize {
        fs::read_to_string(self.process().log()).map_or(0, |log| log.matches(text).count())
    }

    /// Returns the process ids of the worker's executors.
    pub fn executors(&self) -> Vec<u32> {
        children(self.pid()).into_iter().filter(|pid| command_line(*pid).contains("executor")).collect()
    }

    /// Asserts that these executors still run. The spare executor may have started in the meantime.
    pub fn assert_keeps(&self, executors: &[u32]) {
        let now = self.executors();
        let lost: Vec<_> = executors.iter().filter(|pid| !now.contains(pid)).collect();
        assert!(!executors.is_empty() && lost.is_empty(), "of the executors {executors:?}, {lost:?} have ended");
    }

    /// Returns the process ids of the worker's compilers.
    pub fn compilers(&self) -> Vec<u32> {
        children(self.pid()).into_iter().filter(|pid| command_line(*pid).contains("compile-child")).collect()
    }

    /// Kills the worker's current executors with SIGKILL.
    pub async fn kill_executor(&self) {
        let executors = self.executors();
        assert!(!executors.is_empty(), "worker {} has no executor", self.name());
        // Kills all of them at once, so that none takes over from another.
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

/// Returns the services that most scenarios share. Their broker has as many nodes as the variable says.
async fn shared_services() -> &'static Arc<Services> {
    let nodes = || std::env::var(NODES_VARIABLE).map_or(1, |nodes| nodes.parse().expect("a number of nodes"));
    SERVICES.get_or_init(|| start_services(nodes())).await
}

async fn start_services(nodes: usize) -> Arc<Services> {
    Services::ephemeral_cluster(nodes).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Repairs the services that the last scenario left, perhaps after a failure.
async fn repair(services: &Services) {
    let (nodes, postgres) = (services.nodes(), services.postgres());
    nodes.iter().for_each(RabbitMq::resume);
    RabbitMq::restart_stopped(nodes).await.unwrap();
    if postgres.pid().is_none() {
        postgres.restart().await.unwrap();
    }
    node::restore_defaults(services).await;
}

/// Returns whether a process runs. A zombie does not.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

pub(crate) fn is_suspended(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'T')
}

/// Returns the process ids of a process's children.
pub fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(state, of)| of == parent && state != 'Z')).collect()
}

/// Returns the state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Returns the command line of a process, with blanks between the words.
pub fn command_line(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map_or_else(|_| String::new(), |line| String::from_utf8_lossy(&line).replace('\0', " "))
}
