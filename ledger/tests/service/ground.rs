//! A vhost and a database for each test, and recorders on them.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use gpufleet_ledger::{DatabaseUrl, Ledger, migrate::migrate};
use gpufleet_local::{Postgres, Process, RabbitMq, Services, Signal, StateDir, process::ProcessSpec};
use gpufleet_schema::{
    AttemptFinished, AttemptState, Event, JobId, PoolName, Timings,
    encoding::encode_events,
    topology::{EVENTS_CLIENT, EVENTS_KEY, EVENTS_WORKER, LEDGER_QUEUE, TYPE_EVENTS, submissions_key},
};
use gpufleet_transport::{self as transport, Message, Options, Properties};
use sqlx::Connection as _;
use tokio::sync::OnceCell;

use crate::poll::{WAIT, poll};

static SERVICES: OnceCell<Arc<Services>> = OnceCell::const_new();
static PROCESSES: AtomicU32 = AtomicU32::new(0);

pub struct Ground {
    pub broker: transport::Broker,
    pub amqp_url: String,
    pub database_url: String,
    state: Arc<StateDir>,
}

/// A running `gpufleet-ledger record`.
pub struct Recorder {
    process: Process,
    ready_file: PathBuf,
}

/// The result of a run of the program.
pub struct Run {
    pub code: Option<i32>,
    pub log: String,
}

async fn services() -> &'static Arc<Services> {
    SERVICES.get_or_init(async || Services::ephemeral().await.unwrap()).await
}

impl Ground {
    /// Creates a ground with the ledger's tables.
    pub async fn fresh() -> Self {
        let ground = Self::empty().await;
        migrate(&ground.url()).await.unwrap();
        ground
    }

    pub async fn empty() -> Self {
        let services = services().await;
        let (_, endpoints) = services.space("ledger").await.unwrap();
        Self::on(endpoints.amqp_url, endpoints.database_url).await
    }

    /// Creates a ground with a broker that the test may break.
    pub async fn with_own_broker() -> (Self, RabbitMq) {
        let state = StateDir::ephemeral().unwrap();
        let own = RabbitMq::start(&state);
        let shared = async { services().await.space("ledger").await };
        let (broker, space) = tokio::join!(own, shared);
        let (broker, (_, endpoints)) = (broker.unwrap(), space.unwrap());
        let ground = Self::on(broker.url(), endpoints.database_url).await;
        migrate(&ground.url()).await.unwrap();
        (ground, broker)
    }

    /// Creates a ground with a database server that the test may break.
    pub async fn with_own_database() -> (Self, Postgres) {
        let postgres = Postgres::start(&StateDir::ephemeral().unwrap()).await.unwrap();
        postgres.create_database("ledger").await.unwrap();
        let (_, endpoints) = services().await.space("ledger").await.unwrap();
        let ground = Self::on(endpoints.amqp_url, postgres.url("ledger")).await;
        migrate(&ground.url()).await.unwrap();
        (ground, postgres)
    }

    async fn on(amqp_url: String, database_url: String) -> Self {
        let broker = transport::Broker::connect(Options::new(amqp_url.parse().unwrap(), "a test")).await.unwrap();
        broker.declare_base().await.unwrap();
        Self { broker, amqp_url, database_url, state: Arc::clone(services().await.state()) }
    }

    pub fn url(&self) -> DatabaseUrl {
        self.database_url.parse().unwrap()
    }

    pub async fn ledger(&self) -> Ledger {
        Ledger::connect(self.url()).await.unwrap()
    }

    /// Starts a recorder and waits until it records.
    pub async fn record(&self) -> Recorder {
        let recorder = self.start_recorder();
        poll("a recorder is ready", async || recorder.is_ready()).await;
        recorder
    }

    /// Starts a recorder without waiting, because it may have to wait for a service.
    pub fn start_recorder(&self) -> Recorder {
        let ready_file = self.state.path().join(format!("ready-{}", PROCESSES.fetch_add(1, Ordering::Relaxed)));
        let process = self.spawn(&["record", "--ready-file", ready_file.to_str().unwrap()]);
        Recorder { process, ready_file }
    }

    /// Runs the program to its end.
    pub async fn run(&self, arguments: &[&str]) -> Run {
        let process = self.spawn(arguments);
        assert!(process.wait(WAIT).await, "it did not end");
        Run {
            code: process.exit_status().and_then(|status| status.code()),
            log: std::fs::read_to_string(process.log()).unwrap(),
        }
    }

    fn spawn(&self, arguments: &[&str]) -> Process {
        let name = format!("recorder-{}", PROCESSES.fetch_add(1, Ordering::Relaxed));
        ProcessSpec::new(&name, Path::new(env!("CARGO_BIN_EXE_gpufleet-ledger")))
            .args(arguments)
            .env("GPUFLEET_AMQP_URL", &self.amqp_url)
            .env("GPUFLEET_DATABASE_URL", &self.database_url)
            .spawn(&self.state)
            .unwrap()
    }

    pub async fn publish(&self, events: &[Event]) {
        self.publish_body(encode_events(events).unwrap()).await;
    }

    pub async fn publish_body(&self, body: Vec<u8>) {
        self.publish_through(EVENTS_WORKER, EVENTS_KEY.to_owned(), body).await;
    }

    /// Publishes a body the way clients publish submissions to the default pool.
    pub async fn publish_submissions(&self, body: Vec<u8>) {
        self.publish_through(EVENTS_CLIENT, submissions_key(&PoolName::default()), body).await;
    }

    async fn publish_through(&self, exchange: &'static str, routing_key: String, body: Vec<u8>) {
        let user_id = Some(self.broker.urls().user().to_owned());
        let properties = Properties { kind: Some(TYPE_EVENTS.to_owned()), user_id, ..Properties::default() };
        self.broker.publish(Message { exchange, routing_key, body, properties }).await.unwrap();
    }

    /// Publishes batches of `size` jobs that succeeded, with pipelined confirms.
    pub async fn publish_jobs(&self, batches: usize, size: usize) -> Vec<JobId> {
        let ids: Vec<JobId> = (0..batches * size).map(|_| JobId::new()).collect();
        let bodies = ids.chunks(size).map(|ids| ids.iter().map(|job_id| succeeded(*job_id)).collect::<Vec<_>>());
        let published = bodies.map(async |events| self.publish(&events).await);
        futures::future::join_all(published).await;
        ids
    }

    pub async fn poll_recorded(&self, jobs: usize) {
        // The database may be unreachable for a while.
        let count = async || -> Result<i64, sqlx::Error> {
            let mut connection = sqlx::PgConnection::connect(&self.database_url).await?;
            let sql = "select count(*) from jobs where state = 'succeeded'";
            sqlx::query_scalar(sql).fetch_one(&mut connection).await
        };
        poll("all jobs are recorded", async || count().await.is_ok_and(|counted| counted == jobs as i64)).await;
    }

    /// Returns the number of transactions that wrote the attempts.
    pub async fn commits(&self) -> u64 {
        let mut connection = sqlx::PgConnection::connect(&self.database_url).await.unwrap();
        let sql = "select count(distinct xmin::text) from attempts";
        let commits: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        commits.unsigned_abs()
    }

    pub async fn waiting_messages(&self) -> u32 {
        self.broker.queue_depth(LEDGER_QUEUE).await.unwrap().unwrap().messages
    }
}

impl Recorder {
    pub fn is_ready(&self) -> bool {
        assert!(self.process.is_alive(), "the recorder ended:\n{}", self.log());
        self.ready_file.exists()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap()
    }

    /// Returns a field of the recorder's memory status, such as `VmHWM`, the peak.
    pub fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    pub fn ready_file(&self) -> &Path {
        &self.ready_file
    }

    pub async fn kill9(self) {
        self.process.kill9().await.unwrap();
    }

    /// Stops the recorder and returns its exit code.
    pub async fn stop(&self) -> Option<i32> {
        self.process.signal(Signal::Terminate);
        assert!(self.process.wait(WAIT).await, "the recorder did not stop:\n{}", self.log());
        self.process.exit_status().and_then(|status| status.code())
    }
}

pub fn succeeded(job_id: JobId) -> Event {
    let worker = "worker-1".parse().unwrap();
    Event::AttemptFinished(AttemptFinished {
        device: Some(0),
        output_bytes: 16,
        timings: Timings { launches_us: vec![5], total_us: 50, ..Timings::default() },
        ..AttemptFinished::new(job_id, 1, worker, 1_763_164_800_000, AttemptState::Succeeded)
    })
}
