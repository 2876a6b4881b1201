//! A fleet that keeps running after the command that started it: `gpufleet local up`, `down` and `status`.
//!
//! The state directory identifies everything: processes by their records, addresses by [`ENDPOINTS`]. Starting and
//! stopping are serialised by a lock file; [`status`] only reads.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;

use crate::{
    blobs::BlobKind,
    console,
    error::{FileContext as _, LocalError},
    fleet::{
        Cuda, Executables, LEDGER, MIGRATE, RecorderOptions, Worker, WorkerOptions, ready_file, worker_name,
        worker_number,
    },
    postgres::Postgres,
    process::{Identity, POLL, Process, Signal, kill_all, of_state},
    progress::Progress,
    s3, secret,
    services::{Endpoints, Services},
    state::StateDir,
};

mod differences;
mod environment;
mod store;

pub use differences::differences;
pub use environment::environment;
use store::Store;

/// The file with the fleet's addresses, which is written when the whole fleet is up. Only its owner can read it.
pub const ENDPOINTS: &str = "endpoints.json";
const LOCK: &str = "lock";
/// The name of the database, and the prefix of process names.
const SPACE: &str = "gpufleet";
/// The setting of each pool that makes `gpufleet run` work.
const SESSIONS: &str = ":sessions=4";
/// Time limit for the lock. A concurrent start takes ten seconds, and a stop with running jobs up to a minute and a half.
const LOCK_WITHIN: Duration = Duration::from_secs(180);
/// Time limit for the start of a worker. A draining worker has ended by then.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for a migration that an interrupted start has left running. It takes a fraction of a second.
const MIGRATED_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for a worker to stop: a little more than its grace period.
const WORKER_STOP_WITHIN: Duration = Duration::from_secs(40);
const SERVICE_STOP_WITHIN: Duration = Duration::from_secs(30);

/// Options of `up`. An option that is not set has its default for a new process and does not affect a running one.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The state directory. [`crate::state::default_dir`] is the usual one.
    pub dir: PathBuf,
    /// The number of workers. By default, as many as the last start had, or one.
    pub workers: Option<u32>,
    /// The pools that new workers serve. If empty, the pool `default`.
    pub pools: Vec<String>,
    /// The device of new workers. By default a GPU if there is one, else the emulator.
    pub cuda: Option<Cuda>,
    /// The kind of the blob store. By default a folder.
    pub blobs: Option<BlobKind>,
    /// Whether to start the console too. One that was started before is started again in any case.
    pub console: bool,
}

/// The state of the fleet in a state directory.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    pub dir: PathBuf,
    pub logs: PathBuf,
    pub state: FleetState,
    pub processes: Vec<ProcessStatus>,
    /// The URL of the console, if it runs.
    pub console: Option<String>,
    /// The addresses of the fleet, with passwords. If processes have died, these are the last known addresses.
    #[serde(skip)]
    pub endpoints: Option<Endpoints>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetState {
    /// Nothing was started, or it was stopped.
    Down,
    /// Every process runs.
    Up,
    /// A process has died, or a start was interrupted.
    Degraded,
}

#[derive(Debug, Clone, Serialize)]
pub struct ProcessStatus {
    pub name: String,
    pub pid: u32,
    pub alive: bool,
    /// The time for which the process has run, in seconds. `None` if it is dead.
    pub seconds: Option<u64>,
    #[serde(skip)]
    pub since: Option<SystemTime>,
    pub log: PathBuf,
}

impl UpOptions {
    /// Options with this state directory and no other choices.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), workers: None, pools: Vec::new(), cuda: None, blobs: None, console: false }
    }
}

/// Starts all processes of the fleet that do not run, so it also repairs a fleet after a crash. It adds workers and
/// never removes any; [`differences`] lists the options that running processes do not have. If the future is cancelled,
/// started processes keep running, and `down` stops them.
pub async fn up(options: &UpOptions, progress: &dyn Progress) -> Result<Status, LocalError> {
    up_from(None, options, progress).await
}

/// Starts the fleet as [`up`] does, with gpufleet's programs from a directory. By default, [`crate::programs::ours`] finds them.
pub async fn up_from(
    bin_dir: Option<&Path>,
    options: &UpOptions,
    progress: &dyn Progress,
) -> Result<Status, LocalError> {
    let programs = Executables::find(bin_dir)?;
    let state = StateDir::persistent(&options.dir)?;
    let _lock = lock(&state).await?;
    let console = match options.console || console::is_recorded(&state) {
        true => Some(console::Programs::find(bin_dir)?),
        false => None,
    };
    let store = Store::choose(&state, bin_dir, options.blobs)?;
    let services = progress.step_async("start RabbitMQ and Postgres", Services::start(Arc::clone(&state))).await?;
    let endpoints = Endpoints {
        amqp_url: services.broker().url(),
        database_url: services.postgres().url(SPACE),
        blobs: store.start(&state, progress).await?,
    };
    let ledger = format!("{SPACE}-{LEDGER}");
    if !is_ready(&state, &ledger) {
        let start = async {
            if becomes_ready(&state, &ledger).await? {
                return Ok(());
            }
            end_migrations(&state).await?;
            services.postgres().ensure_database(SPACE).await?;
            programs.migrate(&state, &endpoints).await?;
            programs.start_recorder(&state, &ledger, &endpoints, &RecorderOptions::default()).await.map(drop)
        };
        progress.step_async("start the ledger", start).await?;
    }
    let mut common = WorkerOptions { cuda: options.cuda.clone().unwrap_or(Cuda::Auto), ..WorkerOptions::default() };
    if !options.pools.is_empty() {
        common.pools.clone_from(&options.pools);
    }
    // With sessions, `gpufleet run` needs no setup. Only this machine reaches the loopback address.
    common.pools.iter_mut().for_each(|pool| pool.push_str(SESSIONS));
    common.arguments.extend(["--session-listen", "127.0.0.1:0"].map(OsString::from));
    let workers = match options.workers {
        Some(workers) => workers,
        None => workers_recorded(&state)?.max(1),
    };
    for number in 1..=workers {
        let name = worker_name(SPACE, number);
        if is_ready(&state, &name) {
            continue;
        }
        let start = async {
            if becomes_ready(&state, &name).await? {
                return Ok(());
            }
            let launch = programs.worker(&state, &name, &endpoints, &common);
            Worker::launch(name.clone(), &state, launch)?.wait_ready().await
        };
        progress.step_async(&format!("start worker {number}"), start).await?;
    }
    if let Some(console) = console {
        progress.step_async("start the console", console.start(&state, &endpoints)).await?;
    }
    let file = state.path().join(ENDPOINTS);
    // Serializing fails for a path that is not UTF-8.
    let text = serde_json::to_string(&endpoints).map_err(io::Error::from).at("write", &file)?;
    secret::write_private(&file, &text)?;
    status(&options.dir)
}

/// Stops all processes of the directory; data and logs stay. Returns the names of the processes that had to be killed.
/// Does nothing if no process runs.
pub async fn down(dir: &Path, progress: &dyn Progress) -> Result<Vec<String>, LocalError> {
    let Some(state) = StateDir::existing(dir)? else { return Ok(Vec::new()) };
    let _lock = lock(&state).await?;
    let mut forced = Vec::new();
    // The console goes first, because no job needs it. Workers requeue and answer their jobs, then the recorder writes their events, then
    // the services can stop.
    for role in [Role::Console, Role::Worker, Role::Ledger, Role::Store, Role::Service, Role::PortMapper] {
        let names: Vec<String> = state.recorded()?.into_iter().filter(|name| Role::of(name) == role).collect();
        if !names.is_empty() {
            forced.extend(progress.step_async(role.stopping(), stop_all(&state, names, role)).await?);
        }
    }
    // Other processes of the directory, such as an executor whose worker has crashed.
    kill_all(&of_state(state.path())).await;
    for name in state.recorded()? {
        let record = state.record(&name);
        fs::remove_file(&record).at("remove", &record)?;
    }
    let endpoints = state.path().join(ENDPOINTS);
    if endpoints.exists() {
        fs::remove_file(&endpoints).at("remove", &endpoints)?;
    }
    Ok(forced)
}

/// Lists running and dead processes. Changes nothing.
pub fn status(dir: &Path) -> Result<Status, LocalError> {
    let Some(state) = StateDir::existing(dir)? else {
        let (dir, logs) = (dir.to_owned(), dir.join("log"));
        return Ok(Status {
            dir,
            logs,
            state: FleetState::Down,
            processes: Vec::new(),
            console: None,
            endpoints: None,
        });
    };
    let names = state.recorded()?;
    let processes: Vec<ProcessStatus> = names.iter().filter_map(|name| process_status(&state, name)).collect();
    let endpoints = read_endpoints(state.path());
    let fleet = match (processes.is_empty(), &endpoints) {
        (true, _) => FleetState::Down,
        (false, Some(_)) if processes.iter().all(|process| process.alive) => FleetState::Up,
        _ => FleetState::Degraded,
    };
    let serves = processes.iter().any(|process| process.name == console::CONSOLE && process.alive);
    let console = if serves { console::url(&state) } else { None };
    Ok(Status {
        dir: state.path().to_owned(),
        logs: state.logs().to_owned(),
        state: fleet,
        processes,
        console,
        endpoints,
    })
}

/// Returns the addresses of the fleet in the directory, if its broker and database run.
pub fn running(dir: &Path) -> Option<Endpoints> {
    let status = status(dir).ok()?;
    let is_up = |role| status.processes.iter().any(|process| Role::of(&process.name) == role && process.alive);
    let services_up =
        status.processes.iter().filter(|process| Role::of(&process.name) == Role::Service).all(|process| process.alive);
    if is_up(Role::Service) && services_up { status.endpoints } else { None }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The console and its read API.
    Console,
    Worker,
    Ledger,
    Store,
    Service,
    PortMapper,
}

impl Role {
    fn of(name: &str) -> Self {
        match name {
            "broker" | "postgres" => Self::Service,
            s3::NAME => Self::Store,
            console::CONSOLE | console::API => Self::Console,
            "epmd" => Self::PortMapper,
            name if name.ends_with(LEDGER) || name.starts_with(MIGRATE) => Self::Ledger,
            _ => Self::Worker,
        }
    }

    fn stopping(self) -> &'static str {
        match self {
            Self::Console => "stop the console",
            Self::Worker => "stop the workers",
            Self::Ledger => "stop the ledger",
            Self::Store => "stop the S3 server",
            Self::Service => "stop RabbitMQ and Postgres",
            Self::PortMapper => "stop the port mapper",
        }
    }

    fn grace(self) -> Duration {
        if self == Self::Worker { WORKER_STOP_WITHIN } else { SERVICE_STOP_WITHIN }
    }
}

/// The number of workers of the last start, including workers that have died since.
fn workers_recorded(state: &StateDir) -> Result<u32, LocalError> {
    let numbers = state.recorded()?.into_iter().filter_map(|name| worker_number(SPACE, &name));
    Ok(numbers.max().unwrap_or(0))
}

/// Whether the worker or recorder of this name runs and is ready. A draining worker has already removed its ready file.
fn is_ready(state: &Arc<StateDir>, name: &str) -> bool {
    Process::attach(state, name).is_some() && ready_file(state, name).exists()
}

/// Waits for a process that an interrupted command started; `false` if there is none, or if it ends.
async fn becomes_ready(state: &Arc<StateDir>, name: &str) -> Result<bool, LocalError> {
    let Some(process) = Process::attach(state, name) else { return Ok(false) };
    let file = ready_file(state, name);
    process.ready_or_ended(READY_WITHIN, async || file.exists()).await
}

/// Waits for migrations that an interrupted start has left running, and removes their records, because a fleet with a
/// record of a dead process counts as degraded.
async fn end_migrations(state: &Arc<StateDir>) -> Result<(), LocalError> {
    for name in state.recorded()?.into_iter().filter(|name| name.starts_with(MIGRATE)) {
        if let Some(process) = Process::attach(state, &name)
            && !process.wait(MIGRATED_WITHIN).await
        {
            process.kill_tree().await?;
        }
        let record = state.record(&name);
        if record.exists() {
            fs::remove_file(&record).at("remove", &record)?;
        }
    }
    Ok(())
}

async fn stop_all(state: &Arc<StateDir>, names: Vec<String>, role: Role) -> Result<Vec<String>, LocalError> {
    let mut stopping = tokio::task::JoinSet::new();
    for name in names {
        let Some(process) = Process::attach(state, &name) else { continue };
        let signal = if name == "postgres" { Postgres::STOP_SIGNAL } else { Signal::Terminate };
        stopping.spawn(async move {
            process.resume();
            process.stop(signal, role.grace()).await.map(|by_itself| (name, by_itself))
        });
    }
    let mut forced = Vec::new();
    while let Some(stopped) = stopping.join_next().await {
        let (name, by_itself) = stopped.expect("stopping a process does not panic")?;
        if !by_itself {
            forced.push(name);
        }
    }
    Ok(forced)
}

fn process_status(state: &Arc<StateDir>, name: &str) -> Option<ProcessStatus> {
    let identity = Identity::recorded(&state.record(name))?;
    let alive = identity.is_alive();
    let age = if alive { identity.age() } else { None };
    let since = if alive { identity.since() } else { None };
    Some(ProcessStatus {
        name: name.to_owned(),
        pid: identity.pid,
        alive,
        seconds: age.map(|age| age.as_secs()),
        since,
        log: state.log(name),
    })
}

fn read_endpoints(dir: &Path) -> Option<Endpoints> {
    serde_json::from_str(&fs::read_to_string(dir.join(ENDPOINTS)).ok()?).ok()
}

/// Blocks other commands on the same fleet until dropped; the kernel releases it when this process ends.
async fn lock(state: &StateDir) -> Result<fs::File, LocalError> {
    let path = state.path().join(LOCK);
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).at("open", &path)?;
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::Error(source)) => return Err(source).at("lock", &path),
            Err(fs::TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(LocalError::Locked { path, seconds: LOCK_WITHIN.as_secs() });
            }
            Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(POLL).await,
        }
    }
}
