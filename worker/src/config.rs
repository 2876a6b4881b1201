//! The command-line options ([`Options`]) and the validated configuration ([`Config`]).

mod cache;
mod devices;
mod environments;
mod images;
mod keys;
mod pool;
mod programs;
mod size;
mod time;
mod value;

use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use gpufleet_blobs::{BlobLocation, InvalidBlobLocation};
use gpufleet_schema::{PoolName, Priority, PublicKey, WorkerName, affinity::SLOTS, bounds::MESSAGE_BYTES_MAX};
use gpufleet_transport::BrokerUrls;

pub use self::{
    cache::CacheSpec,
    devices::{ChoiceError, DeviceChoice, DeviceName},
    environments::{EnvironmentSpec, EnvironmentsError},
    images::{CommandWords, ImageName, ImagesError},
    keys::KeysError,
    pool::{PoolSpec, PoolsError, SessionAllowance},
    programs::{Isolation, PIDS_DEFAULT, ProgramAllowance, ProgramLimit},
    size::ByteSize,
    time::{Allowance, TimeAllowances, TooLong},
};
use crate::{compiler::Sandbox, executor::CudaSpec, session::Listen};

/// The environment variables that this program reads.
pub mod env {
    pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
    pub const POOL: &str = "GPUFLEET_POOL";
    /// The former name of [`POOL`].
    pub const POOLS: &str = "GPUFLEET_POOLS";
    pub const CUDA: &str = "GPUFLEET_CUDA";
    pub const DEVICES: &str = "GPUFLEET_DEVICES";
    pub const NVML: &str = "GPUFLEET_NVML";
    pub const WORKER_NAME: &str = "GPUFLEET_WORKER_NAME";
    pub const TRUSTED_KEYS: &str = "GPUFLEET_TRUSTED_KEYS";
    pub const NO_USER_ID: &str = "GPUFLEET_NO_USER_ID";
    pub const REQUIRE_USER_ID: &str = "GPUFLEET_REQUIRE_USER_ID";
    pub const SANDBOX: &str = "GPUFLEET_SANDBOX";
    pub const CACHE_DIR: &str = "GPUFLEET_CACHE_DIR";
    pub const CACHE_SIZE: &str = "GPUFLEET_CACHE_SIZE";
    pub const EXECUTOR_USER: &str = "GPUFLEET_EXECUTOR_USER";
    pub const METRICS: &str = "GPUFLEET_METRICS";
    pub const SESSION_LISTEN: &str = "GPUFLEET_SESSION_LISTEN";
    pub const SESSION_ADVERTISE: &str = "GPUFLEET_SESSION_ADVERTISE";
    pub const ENVIRONMENTS: &str = "GPUFLEET_ENVIRONMENTS";
    pub const IMAGES: &str = "GPUFLEET_IMAGES";
    pub const PODMAN: &str = "GPUFLEET_PODMAN";
    pub const PROGRAM_FOLDER: &str = "GPUFLEET_PROGRAM_FOLDER";
    pub const BLOBS: &str = "GPUFLEET_BLOBS";
    pub const BLOB_CACHE: &str = "GPUFLEET_BLOB_CACHE";
    pub const BLOB_CACHE_SIZE: &str = "GPUFLEET_BLOB_CACHE_SIZE";
}

/// Headings of the groups in `gpufleet-worker run --help`.
mod heading {
    pub const BROKER: &str = "Broker";
    pub const POOLS: &str = "Pools";
    pub const DEVICES: &str = "Devices";
    pub const PREFETCH: &str = "Memory and prefetch";
    pub const COMPILING: &str = "Compiling and isolation";
    pub const OPERATION: &str = "Operation";
}

/// What `gpufleet-worker run --help` shows after the options.
pub const EXAMPLES: &str = "\
Examples:
  Serve the pool `default` with every GPU of this machine (the variable keeps the password out of `ps`):
    export GPUFLEET_AMQP_URL=amqp://gpufleet:secret@rabbit.example:5672/
    gpufleet-worker run

  Try a worker on a machine without a GPU:
    gpufleet-worker run --cuda emulated

  Serve two pools with two GPUs; team-a gets three times the device time of team-b:
    gpufleet-worker run --devices 0,1 --pool team-a:weight=3 --pool team-b

  Run only signed programs, with a blob store and metrics:
    gpufleet-worker run --pool vetted:allow=signed --trusted-key vetted.key.pub \\
        --blobs /srv/gpufleet/blobs --metrics 127.0.0.1:9464

Sizes take the units KiB, MiB and GiB (512MiB), or are in bytes. Times take s, m, h and d (30s, 1h 30m).
GPUFLEET_LOG sets the log levels, as in GPUFLEET_LOG=gpufleet_worker=debug.";

/// Options of `gpufleet-worker run`.
#[derive(Debug, Args)]
pub struct Options {
    /// URL of RabbitMQ, as in amqp://user:password@host:5672/vhost (amqps:// for TLS)
    ///
    /// Give one URL for each node of a cluster, separated by commas. Percent-encode special characters. Prefer the environment variable: other users can read a command line, and with it the password.
    #[arg(long, value_name = "URL", env = env::AMQP_URL, hide_env_values = true, help_heading = heading::BROKER)]
    amqp_url: BrokerUrls,

    /// AMQP heartbeat interval, as in 10s
    ///
    /// A connection that is silent for two intervals counts as lost. The broker then redelivers its jobs to other workers.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = value::duration, help_heading = heading::BROKER)]
    heartbeat: Duration,

    /// Republish jobs without the AMQP user-id property
    ///
    /// Needed if the broker's name for the user differs from the one in the URL, because it then rejects the property. The worker then ignores
    /// the users of all jobs, and the ledger does not record them.
    #[arg(long, env = env::NO_USER_ID, help_heading = heading::BROKER)]
    no_user_id: bool,

    /// Accept only jobs whose message has the AMQP user-id property, which the broker validates
    ///
    /// Without it, a producer can submit a job without a user, whose reply may go to any client. A message without the property is
    /// dead-lettered. Pools with users=NAME always require it.
    #[arg(long, env = env::REQUIRE_USER_ID, conflicts_with = "no_user_id", help_heading = heading::BROKER)]
    require_user_id: bool,

    /// Pool to serve, with optional settings, as in team-a:weight=3,memory=50%; repeatable
    ///
    ///   weight=N           share of the device time if several pools have work [default: 1]
    ///   memory=N%          memory guaranteed on each device; lent after one second without work
    ///   allow=catalog      run catalog kernels only
    ///   allow=signed       also run programs signed by a trusted key (see --trusted-key)
    ///   allow=source       run any program (default)
    ///   time-default=TIME  time limit of a job that sets none [default: 10m]
    ///   time-max=TIME      longest time limit a job may ask for; a job that asks for more fails
    ///   queue-default=TIME queue limit of a job that sets none [default: unlimited]
    ///   queue-max=TIME     longest queue limit a job may ask for; a job that asks for more fails
    ///   users=NAME,NAME    broker users who may submit jobs to the pool [default: all that RabbitMQ lets publish to it]
    ///   affinity           prefer workers that have a job's largest input on a device; give it to all workers of the pool
    ///   executors=N        executor processes on each device, to keep long jobs apart (1 to 8) [default: 1]
    ///   sessions=N         take up to N sessions of `gpufleet run` at a time [default: 0]; needs allow=source
    ///   session-memory=N%  memory of each device that all sessions together may have [default: 50%]
    ///   session-time-max=TIME  longest time limit of a session [default: 8h]
    ///   session-idle=TIME  end a session that makes no calls for this long [default: 10m]
    ///   programs=N         run up to N host programs of `gpufleet run --on-worker` at a time, each with a whole device
    ///                      [default: 0]; needs allow=source
    ///   program-time-max=TIME  longest time limit of a host program [default: 24h]
    ///   program-network    let host programs use the network
    ///   program-isolation=environment|podman  run them in an environment (see --environment) or in a container (see --image)
    ///                      [default: environment]
    ///   program-memory=SIZE  main memory of a host program, or off [default: 80% of the machine's]
    ///   program-pids=N     processes and threads of a host program, or off [default: 4096]
    ///
    /// In GPUFLEET_POOL, separate several pools with spaces.
    #[arg(
        long = "pool",
        value_name = "POOL",
        env = env::POOL,
        value_delimiter = ' ',
        default_value = "default",
        verbatim_doc_comment,
        help_heading = heading::POOLS
    )]
    pools: Vec<PoolSpec>,

    /// Address and ports on which sessions accept their programs, as in 0.0.0.0:9480-9499; each open session takes one port
    ///
    /// The connections use TLS 1.3. Only a client that has the secret of a session's offer can use it.
    #[arg(long, value_name = "IP:PORTS", env = env::SESSION_LISTEN, default_value = SESSION_LISTEN_DEFAULT, help_heading = heading::POOLS)]
    session_listen: Listen,

    /// Host name or address under which clients reach the sessions of this worker
    ///
    /// [default: the address that --session-listen names; for 0.0.0.0 the address from which this machine reaches the broker, then its host
    /// name]
    #[arg(long, value_name = "HOST", env = env::SESSION_ADVERTISE, help_heading = heading::POOLS)]
    session_advertise: Option<String>,

    /// Environment that host programs may run in: a folder with a virtual environment, as in torch=/opt/torch; repeatable
    ///
    /// Programs run with its folder `bin` first in PATH. They can read the folder, and not change it. Separate several with spaces in the
    /// variable.
    #[arg(
        long = "environment",
        value_name = "NAME=FOLDER",
        env = env::ENVIRONMENTS,
        value_delimiter = ' ',
        help_heading = heading::POOLS
    )]
    environments: Vec<EnvironmentSpec>,

    /// Container image that host programs may run in, by its name in `podman images`, as in localhost/torch:2.9; repeatable
    ///
    /// The worker pulls no images. Separate several with spaces in the variable.
    #[arg(long = "image", value_name = "IMAGE", env = env::IMAGES, value_delimiter = ' ', help_heading = heading::POOLS)]
    images: Vec<ImageName>,

    /// Podman for host programs in containers, with options, as in "podman --root /data/containers --runtime runc"
    #[arg(long, value_name = "COMMAND", env = env::PODMAN, default_value = "podman", help_heading = heading::POOLS)]
    podman: CommandWords,

    /// Folder in which each host program has a folder for its files until it has ended
    ///
    /// It needs room for the files of all programs that run. [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER", env = env::PROGRAM_FOLDER, help_heading = heading::POOLS)]
    program_folder: Option<PathBuf>,

    /// File of ed25519 public keys (PEM, or one line of base64 each) trusted by pools with allow=signed; repeatable
    #[arg(
        long = "trusted-key",
        value_name = "FILE",
        env = env::TRUSTED_KEYS,
        value_delimiter = ' ',
        help_heading = heading::POOLS
    )]
    trusted_keys: Vec<PathBuf>,

    /// CUDA driver: system, emulated, auto, or the path of a libcuda
    ///
    /// `emulated` runs kernels on the CPU. `auto` takes the system's driver if it has a device, and the emulated one otherwise.
    #[arg(long, value_name = "DRIVER", env = env::CUDA, default_value = "system", help_heading = heading::DEVICES)]
    cuda: CudaSpec,

    /// Devices to use: all, or a list of numbers and UUIDs, as in 0,1 or GPU-8932f937
    ///
    /// The beginning of a UUID is enough. A MIG slice is a device of its own, as in MIG-41b35014.
    #[arg(long, value_name = "DEVICES", env = env::DEVICES, default_value = "all", help_heading = heading::DEVICES)]
    devices: DeviceChoice,

    /// NVML library, which gives the temperature, power and utilization in heartbeats
    ///
    /// The worker also finds the MIG slices of GPUs through NVML. [default: libnvidia-ml.so.1; none with --cuda emulated]
    #[arg(long, value_name = "LIBRARY", env = env::NVML, help_heading = heading::DEVICES)]
    nvml: Option<String>,

    /// Jobs in flight on each device (1 to 256), so that copies and kernels overlap
    #[arg(
        long,
        value_name = "N",
        default_value_t = PLACES_DEFAULT,
        value_parser = value::whole(1_u32..=256),
        help_heading = heading::DEVICES
    )]
    jobs_per_device: u32,

    /// Device memory, on each device and for each executor of a pool, for inputs that stay there after their job (8GiB); 0 disables this
    ///
    /// An input that is a blob is then copied to the device once for all jobs of an executor that use it. These inputs give way to jobs, and
    /// to other executors. [default: half of the device's memory]
    #[arg(long, value_name = "SIZE", help_heading = heading::DEVICES)]
    resident_inputs: Option<ByteSize>,

    /// Spare executors per device: 0, or 1 to replace a killed executor at once
    ///
    /// A spare executor holds a CUDA context, which takes device memory. [default: 1 on the emulated device and on GPUs with at least 16 GiB,
    /// else 0]
    #[arg(long, value_name = "N", value_parser = value::whole(0_u32..=1), help_heading = heading::PREFETCH)]
    spare_executors: Option<u32>,

    /// Maximum number of messages to prefetch for each pool and priority
    ///
    /// The worker prefetches less if jobs are long: enough messages for a few tens of milliseconds of work. Prefetched jobs are unavailable
    /// to other workers.
    #[arg(
        long,
        value_name = "N",
        default_value_t = PREFETCH_DEFAULT,
        value_parser = value::whole(1..=u16::MAX),
        help_heading = heading::PREFETCH
    )]
    prefetch: u16,

    /// Maximum size of all prefetched messages together, as in 1GiB
    ///
    /// [default: 512MiB, or more for many pools: twice the largest message for each queue]
    #[arg(long, value_name = "SIZE", help_heading = heading::PREFETCH)]
    prefetch_bytes: Option<ByteSize>,

    /// Blob store for arrays too large for a message, shared with the clients: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME
    ///
    /// The credentials of a bucket come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. A user who can write to the store can store
    /// arrays. A client that knows the digest of an array can read it. Without a blob store, the worker forwards jobs that need one to
    /// workers that have one.
    #[arg(long, value_name = "STORE", env = env::BLOBS, help_heading = heading::PREFETCH)]
    blobs: Option<OsString>,

    /// Folder on a local disk that keeps what the worker reads from a bucket; several workers of this user may share it
    ///
    /// A blob that many jobs use then crosses the network once for each host. Not used if the blob store is a folder, because Linux caches
    /// its files. [default: none]
    #[arg(long, value_name = "FOLDER", env = env::BLOB_CACHE, help_heading = heading::PREFETCH)]
    blob_cache: Option<PathBuf>,

    /// Maximum size of the folder of --blob-cache, as in 200GiB
    ///
    /// The worker evicts the least recently used blobs first.
    #[arg(
        long,
        value_name = "SIZE",
        env = env::BLOB_CACHE_SIZE,
        default_value = BLOB_CACHE_SIZE_DEFAULT,
        help_heading = heading::PREFETCH
    )]
    blob_cache_size: ByteSize,

    /// Time limit for compiling one program, at most 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = value::duration, help_heading = heading::COMPILING)]
    compile_limit: Duration,

    /// Compiler sandbox: best-effort, or strict to refuse CUDA C if the kernel lacks Landlock or seccomp
    ///
    /// `best-effort` compiles without the missing part and logs a warning.
    #[arg(long, value_name = "MODE", env = env::SANDBOX, default_value = "best-effort", help_heading = heading::COMPILING)]
    sandbox: Sandbox,

    /// User (name or number) that executors and compilers run as when the worker runs as root
    ///
    /// This user needs access to the device nodes. [default: nobody]
    #[arg(long, value_name = "USER", env = env::EXECUTOR_USER, help_heading = heading::COMPILING)]
    executor_user: Option<String>,

    /// Cache folder for compiled CUDA C, shared by all workers of this user
    ///
    /// [default: gpufleet/modules in the user's cache folder, or modules in the CacheDirectory= of systemd]
    #[arg(long, value_name = "FOLDER", env = env::CACHE_DIR, help_heading = heading::COMPILING)]
    cache_dir: Option<PathBuf>,

    /// Maximum size of the cache of compiled CUDA C, as in 512MiB; 0 disables it
    ///
    /// The worker evicts the least recently used programs first.
    #[arg(long, value_name = "SIZE", env = env::CACHE_SIZE, default_value = cache::SIZE_DEFAULT, help_heading = heading::COMPILING)]
    cache_size: ByteSize,

    /// Name of this worker in replies, in the ledger and in `gpufleet workers` [default: HOST-PID]
    ///
    /// Each connected worker needs a name of its own. A worker whose name is taken waits three heartbeats, in case the other one has just
    /// died, and then exits with 2.
    #[arg(long, value_name = "NAME", env = env::WORKER_NAME, help_heading = heading::OPERATION)]
    name: Option<WorkerName>,

    /// Grace period for running jobs after SIGTERM, Ctrl-C or `gpufleet workers drain`, as in 30s or 10m
    ///
    /// After the grace period, or at a second signal, the worker kills running jobs and requeues them.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = value::duration, help_heading = heading::OPERATION)]
    grace: Duration,

    /// Address to serve Prometheus metrics on, as in 127.0.0.1:9464 [default: none]
    ///
    /// The path is /metrics. Metrics name pools and devices, so use a loopback or private address. With port 0, the worker takes a free
    /// port and logs it.
    #[arg(long, value_name = "ADDRESS", env = env::METRICS, value_parser = value::address, help_heading = heading::OPERATION)]
    metrics: Option<SocketAddr>,

    /// File to create once the worker accepts jobs; it holds the process id
    #[arg(long, value_name = "PATH", help_heading = heading::OPERATION)]
    ready_file: Option<PathBuf>,

    /// Format of log lines on stderr: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = heading::OPERATION)]
    pub log_format: crate::telemetry::LogFormat,
}

/// Default of `--prefetch`, in messages: some tens of milliseconds of work for jobs of half a millisecond on four slots. A higher value
/// would gain nothing, and would cause more requeues when long jobs follow short ones.
const PREFETCH_DEFAULT: u16 = 256;
/// Default of `--prefetch-bytes`, in bytes. The worker holds them in addition to staging memory; they are few compared with the memory of a
/// machine with a GPU.
const PREFETCH_BYTES_DEFAULT: u64 = 512 << 20;
/// Default of `--blob-cache-size`: some hundreds of large arrays.
const BLOB_CACHE_SIZE_DEFAULT: &str = "20GiB";
/// Default of `--session-listen`: room for twenty sessions. Nothing listens while no session is open.
const SESSION_LISTEN_DEFAULT: &str = "0.0.0.0:9480-9499";
/// Default number of jobs in flight on each device: one copies in, one computes, one copies out, and one waits for the next slot.
const PLACES_DEFAULT: u32 = 4;

/// A worker's validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub broker: BrokerUrls,
    /// Whether republished messages carry this worker's user.
    pub user_id: bool,
    /// Whether messages without a validated user are refused.
    pub require_user_id: bool,
    pub pools: Vec<PoolSpec>,
    pub trusted_keys: Vec<PublicKey>,
    pub session_listen: Listen,
    /// The host that clients reach sessions at, if it is not the one that the worker finds itself.
    pub session_advertise: Option<String>,
    /// The folders of the environments that host programs may run in, by name.
    pub environments: BTreeMap<String, PathBuf>,
    /// The container images that host programs may run in.
    pub images: Vec<String>,
    /// The command line that runs podman, without a subcommand.
    pub podman: Vec<String>,
    /// The folder for the files of host programs.
    pub program_folder: PathBuf,
    pub cuda: CudaSpec,
    pub devices: DeviceChoice,
    /// NVIDIA's management library; by default none for emulated devices.
    pub nvml: Option<String>,
    pub name: WorkerName,
    pub host: String,
    pub prefetch: u16,
    pub prefetch_bytes: u64,
    pub jobs_per_device: u32,
    /// Device memory per device and pool for inputs that stay after their job, in bytes; `None` means half of the device's memory.
    pub resident_inputs: Option<u64>,
    /// Spare executors per device; `None` means that the device's kind and memory decide.
    pub spare_executors: Option<u32>,
    pub grace: Duration,
    pub heartbeat: Duration,
    pub compile_limit: Duration,
    pub sandbox: Sandbox,
    pub executor_user: Option<String>,
    pub cache: CacheSpec,
    /// The blob store, if there is one.
    pub blobs: Option<BlobLocation>,
    /// The folder that caches blobs read from a bucket, if there is one.
    pub blob_cache: Option<PathBuf>,
    pub blob_cache_bytes: u64,
    /// The address to serve metrics on, if they are served.
    pub metrics: Option<SocketAddr>,
    pub ready_file: Option<PathBuf>,
}

/// Why the options are invalid or contradict each other.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{} is now {}; rename the variable", env::POOLS, env::POOL)]
    RenamedPools,
    #[error(transparent)]
    Pools(#[from] PoolsError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Environments(#[from] EnvironmentsError),
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error("--no-user-id: pool {0} has users, but jobs that this worker republishes would have none")]
    UsersWithoutIds(PoolName),
    #[error(
        "the pools take {sessions} sessions at a time, but --session-listen {listen} has fewer ports; each session needs one"
    )]
    SessionPorts { sessions: usize, listen: Listen },
    #[error("{0}; correct --blobs or GPUFLEET_BLOBS")]
    Blobs(#[from] InvalidBlobLocation),
    #[error(
        "--prefetch-bytes {given} is too small for {queues} queues (for each pool and priority two, and {SLOTS} more with affinity); give at least {least}"
    )]
    PrefetchBytes { given: ByteSize, queues: usize, least: ByteSize },
}

impl TryFrom<Options> for Config {
    type Error = ConfigError;

    fn try_from(options: Options) -> Result<Self, ConfigError> {
        // If the variable were ignored, the worker would silently serve the pool `default`.
        if std::env::var_os(env::POOLS).is_some() {
            return Err(ConfigError::RenamedPools);
        }
        pool::check(&options.pools)?;
        if let Some(pool) = options.pools.iter().find(|pool| options.no_user_id && pool.users.is_some()) {
            return Err(ConfigError::UsersWithoutIds(pool.name.clone()));
        }
        let sessions = options.pools.iter().map(|pool| usize::from(pool.sessions.count)).sum();
        if sessions > options.session_listen.places() {
            return Err(ConfigError::SessionPorts { sessions, listen: options.session_listen });
        }
        let environments = environments::check(options.environments, &options.pools)?;
        let images = images::check(options.images, &options.pools)?;
        let trusted_keys = keys::read(&options.trusted_keys, &options.pools)?;
        let prefetch_bytes = prefetch_bytes(options.prefetch_bytes, &options.pools)?;
        let host = host_name();
        let name = options.name.unwrap_or_else(|| default_name(&host));
        Ok(Self {
            broker: options.amqp_url,
            user_id: !options.no_user_id,
            require_user_id: options.require_user_id,
            pools: options.pools,
            trusted_keys,
            session_listen: options.session_listen,
            session_advertise: options.session_advertise,
            environments,
            images,
            podman: options.podman.0,
            program_folder: options.program_folder.unwrap_or_else(std::env::temp_dir),
            nvml: options.nvml.or_else(|| nvml_default(&options.cuda)),
            cuda: options.cuda,
            devices: options.devices,
            name,
            host,
            prefetch: options.prefetch,
            prefetch_bytes,
            jobs_per_device: options.jobs_per_device,
            resident_inputs: options.resident_inputs.map(|size| size.0),
            spare_executors: options.spare_executors,
            grace: options.grace,
            heartbeat: options.heartbeat,
            compile_limit: options.compile_limit,
            sandbox: options.sandbox,
            executor_user: options.executor_user,
            cache: CacheSpec::of(options.cache_dir, options.cache_size),
            blobs: options.blobs.map(BlobLocation::try_from).transpose()?,
            blob_cache: options.blob_cache,
            blob_cache_bytes: options.blob_cache_size.0,
            metrics: options.metrics,
            ready_file: options.ready_file,
        })
    }
}

/// Returns the limit for all prefetched messages together, in bytes. The worker always prefetches at least one message of each queue, and
/// each may have the maximum size. The number of queues is an estimate, because the devices are not known yet; most workers have devices of
/// one class.
fn prefetch_bytes(given: Option<ByteSize>, pools: &[PoolSpec]) -> Result<u64, ConfigError> {
    // Messages of sessions are small.
    let of_priority = |pool: &PoolSpec| if pool.affinity { 2 + usize::from(SLOTS) } else { 2 };
    let queues = pools.iter().map(of_priority).sum::<usize>() * Priority::ALL.len();
    let least = (queues * MESSAGE_BYTES_MAX) as u64;
    match given {
        None => Ok(PREFETCH_BYTES_DEFAULT.max(2 * least)),
        Some(given) if given.0 < least => Err(ConfigError::PrefetchBytes { given, queues, least: ByteSize(least) }),
        Some(given) => Ok(given.0),
    }
}

/// Returns the default NVML library. Emulated devices are unknown to NVML, so they have none. With `auto`, the worker tries the library.
fn nvml_default(cuda: &CudaSpec) -> Option<String> {
    match cuda {
        CudaSpec::Emulated => None,
        CudaSpec::System | CudaSpec::Auto | CudaSpec::Path(_) => Some(crate::nvml::LIBRARY.to_owned()),
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "host".into(), |name| name.trim().to_owned())
}

/// Makes a worker name from the host name and the process id. Dots of the host name become dashes, because a worker name has no dots.
fn default_name(host: &str) -> WorkerName {
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).take(60).collect();
    format!("{host}-{}", std::process::id()).parse().expect("letters, digits and dashes make a worker name")
}
