//! What was typed ([`Options`]) and what it means ([`Config`]).

mod cache;
mod devices;
mod keys;
mod pool;
mod size;
mod time;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use gpufleet_schema::{Priority, PublicKey, WorkerName, bounds::MESSAGE_BYTES_MAX};
use gpufleet_transport::{BrokerUrl, QueueKind};

pub use self::{
    cache::CacheSpec,
    devices::{ChoiceError, DeviceChoice, DeviceName},
    keys::KeysError,
    pool::{PoolSpec, PoolsError},
    size::Size,
};
use crate::{compiler::Sandbox, executor::CudaSpec};

/// Names of the environment variables that this program reads.
pub mod env {
    pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
    pub const POOLS: &str = "GPUFLEET_POOLS";
    pub const CUDA: &str = "GPUFLEET_CUDA";
    pub const DEVICES: &str = "GPUFLEET_DEVICES";
    pub const NVML: &str = "GPUFLEET_NVML";
    pub const WORKER_NAME: &str = "GPUFLEET_WORKER_NAME";
    pub const QUEUE_KIND: &str = "GPUFLEET_QUEUE_KIND";
    pub const TRUSTED_KEYS: &str = "GPUFLEET_TRUSTED_KEYS";
    pub const NO_USER_ID: &str = "GPUFLEET_NO_USER_ID";
    pub const SANDBOX: &str = "GPUFLEET_SANDBOX";
    pub const CACHE_DIR: &str = "GPUFLEET_CACHE_DIR";
    pub const CACHE_SIZE: &str = "GPUFLEET_CACHE_SIZE";
    pub const EXECUTOR_USER: &str = "GPUFLEET_EXECUTOR_USER";
    pub const METRICS: &str = "GPUFLEET_METRICS";
    pub const BLOBS: &str = "GPUFLEET_BLOBS";
}

/// Options of `gpufleet-worker run`.
#[derive(Debug, Args)]
pub struct Options {
    /// RabbitMQ, as amqp://user:password@host:5672/vhost
    #[arg(long, value_name = "URL", env = env::AMQP_URL, hide_env_values = true)]
    amqp_url: BrokerUrl,

    /// A pool whose queues this worker serves, as in default or team-a:weight=3,memory=50%; may be given several times. Pools with
    /// work share the devices' time by weight. The memory is the pool's own on every device, and lent once it has had no work for a second. With
    /// allow=catalog a pool runs catalog kernels only, with allow=signed also what a trusted key has signed. A job that sets no
    /// limits runs for time-default (10m) and waits for queue-default (for ever); one that asks for more than time-max or queue-max fails
    #[arg(long = "pool", value_name = "POOL", env = env::POOLS, value_delimiter = ' ', default_value = "default")]
    pools: Vec<PoolSpec>,

    /// A file of ed25519 public keys, in PEM or as lines of base64, that pools with allow=signed trust; may be given several times
    #[arg(long = "trusted-key", value_name = "FILE", env = env::TRUSTED_KEYS, value_delimiter = ' ')]
    trusted_keys: Vec<PathBuf>,

    /// The CUDA driver: system, emulated, auto (the system's if it has a device, else emulated), or a path to a libcuda
    #[arg(long, value_name = "DRIVER", env = env::CUDA, default_value = "system")]
    cuda: CudaSpec,

    /// The devices to take: all, or some by number or uuid (or the beginning of one), as in 0,1 or GPU-8932f937,MIG-41b35014. A
    /// slice of a GPU (MIG) is a device like any other
    #[arg(long, value_name = "DEVICES", env = env::DEVICES, default_value = "all")]
    devices: DeviceChoice,

    /// NVIDIA's management library, which tells heartbeats of temperature, power and use, and of slices of GPUs [default:
    /// libnvidia-ml.so.1; none with --cuda emulated]
    #[arg(long, value_name = "LIBRARY", env = env::NVML)]
    nvml: Option<String>,

    /// This worker's name in replies and the ledger [default: the host's name and the process id]
    #[arg(long, value_name = "NAME", env = env::WORKER_NAME)]
    name: Option<WorkerName>,

    /// The most messages that the broker sends ahead for each pool and priority. It sends what some tens of milliseconds need:
    /// hundreds of tiny jobs, one or two long ones
    #[arg(long, value_name = "N", default_value_t = PREFETCH_DEFAULT, value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: u16,

    /// The most bytes of messages that it sends ahead, all pools and priorities together [default: 512MiB, or twice the largest
    /// message for each of them]
    #[arg(long, value_name = "SIZE")]
    prefetch_bytes: Option<Size>,

    /// Jobs in flight on each device, so that copies and kernels overlap
    #[arg(long, value_name = "N", default_value_t = PLACES_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs_per_device: u32,

    /// Executors per device that wait, started, to take over from one that is killed [default: 1 where a context's memory is
    /// cheap: on the emulated device, and on GPUs with at least 16 GiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1))]
    spare_executors: Option<u32>,

    /// How long running jobs may go on after SIGTERM or Ctrl-C; a second signal ends the grace
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    grace: Duration,

    /// How long the broker and this worker may be silent towards each other; after two such times a connection counts as lost, and
    /// the broker gives the jobs on it to others
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    heartbeat: Duration,

    /// Publish jobs that come again without the name of the broker's user. For a broker that knows this worker by another name than
    /// the URL does, and therefore refuses what carries it; the ledger then forgets whose such jobs are
    #[arg(long, env = env::NO_USER_ID)]
    no_user_id: bool,

    /// What task queues are made of: quorum or classic; all parts of a fleet must agree
    #[arg(long, value_name = "KIND", env = env::QUEUE_KIND, default_value = "quorum")]
    queue_kind: QueueKind,

    /// How long one program may take to compile, at most 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    compile_limit: Duration,

    /// Where the kernel can't close the compiler's sandbox: best-effort compiles all the same and says so, strict compiles no CUDA C
    #[arg(long, value_name = "MODE", env = env::SANDBOX, default_value = "best-effort")]
    sandbox: Sandbox,

    /// Whom executors and compilers become when the worker is root, by name or number; the device's nodes must be open to them [default: nobody]
    #[arg(long, value_name = "USER", env = env::EXECUTOR_USER)]
    executor_user: Option<String>,

    /// Where compiled CUDA C is kept, so that it is compiled once for all workers of this user and machine [default: gpufleet/modules in
    /// the user's cache folder, or modules in the one that systemd gives]
    #[arg(long, value_name = "FOLDER", env = env::CACHE_DIR)]
    cache_dir: Option<PathBuf>,

    /// How much of it is kept, as in 512MiB; what was not used for longest goes first, and 0 keeps none
    #[arg(long, value_name = "SIZE", env = env::CACHE_SIZE, default_value = cache::SIZE_DEFAULT)]
    cache_size: Size,

    /// The blob store: a folder that producers see as well, where arrays wait that no message carries. Whoever may write there may store
    /// some, and whoever knows an array's digest may read it. Without it, jobs that bring or return such arrays are forwarded to other workers
    #[arg(long, value_name = "FOLDER", env = env::BLOBS)]
    blobs: Option<PathBuf>,

    /// Where Prometheus finds /metrics, as in 127.0.0.1:9464; without it nothing is served. Whoever reaches the address can read names of
    /// pools and devices, so let it be the loopback's or a private network's; port 0 takes a free one, which the log tells
    #[arg(long, value_name = "ADDRESS", env = env::METRICS)]
    metrics: Option<SocketAddr>,

    /// A file that is made once the worker takes jobs
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// How log lines are written to stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: crate::telemetry::LogFormat,
}

/// Tens of milliseconds of work for jobs of half a millisecond on four places. More gain nothing, and are more to hand back where long
/// jobs follow tiny ones.
const PREFETCH_DEFAULT: u16 = 256;
/// A worker holds it beside what its executors stage; small beside what a machine with a GPU has.
const PREFETCH_BYTES_DEFAULT: u64 = 512 << 20;
/// One job copies in, one computes, one copies out, and one waits to take the next place.
const PLACES_DEFAULT: u32 = 4;

/// A worker's configuration, already valid.
#[derive(Debug, Clone)]
pub struct Config {
    pub broker: BrokerUrl,
    /// Whether what is published again carries this worker's user.
    pub user_id: bool,
    pub queue_kind: QueueKind,
    pub pools: Vec<PoolSpec>,
    pub trusted_keys: Vec<PublicKey>,
    pub cuda: CudaSpec,
    pub devices: DeviceChoice,
    /// NVIDIA's management library. None is tried for emulated devices, unless one was named.
    pub nvml: Option<String>,
    pub name: WorkerName,
    pub host: String,
    pub prefetch: u16,
    pub prefetch_bytes: u64,
    pub jobs_per_device: u32,
    /// Without it, the device decides.
    pub spare_executors: Option<u32>,
    pub grace: Duration,
    pub heartbeat: Duration,
    pub compile_limit: Duration,
    pub sandbox: Sandbox,
    pub executor_user: Option<String>,
    pub cache: CacheSpec,
    /// The blob store's folder, if there is one.
    pub blobs: Option<PathBuf>,
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    pub ready_file: Option<PathBuf>,
}

/// What was typed and makes no sense together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Pools(#[from] PoolsError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(
        "--prefetch-bytes {given}: with {queues} queues (for each pool and priority one, and one for forwarded jobs) give at least {least}"
    )]
    PrefetchBytes { given: Size, queues: usize, least: Size },
}

impl TryFrom<Options> for Config {
    type Error = ConfigError;

    fn try_from(options: Options) -> Result<Self, ConfigError> {
        pool::check(&options.pools)?;
        let trusted_keys = keys::read(&options.trusted_keys, &options.pools)?;
        let prefetch_bytes = prefetch_bytes(options.prefetch_bytes, options.pools.len())?;
        let host = host_name();
        let name = options.name.unwrap_or_else(|| default_name(&host));
        Ok(Self {
            broker: options.amqp_url,
            user_id: !options.no_user_id,
            queue_kind: options.queue_kind,
            pools: options.pools,
            trusted_keys,
            nvml: options.nvml.or_else(|| nvml_default(&options.cuda)),
            cuda: options.cuda,
            devices: options.devices,
            name,
            host,
            prefetch: options.prefetch,
            prefetch_bytes,
            jobs_per_device: options.jobs_per_device,
            spare_executors: options.spare_executors,
            grace: options.grace,
            heartbeat: options.heartbeat,
            compile_limit: options.compile_limit,
            sandbox: options.sandbox,
            executor_user: options.executor_user,
            cache: CacheSpec::of(options.cache_dir, options.cache_size),
            blobs: options.blobs,
            metrics: options.metrics,
            ready_file: options.ready_file,
        })
    }
}

/// One message of each queue is always asked for, and each may be as large as messages get. The devices are not known yet; most workers
/// have devices of one class.
fn prefetch_bytes(given: Option<Size>, pools: usize) -> Result<u64, ConfigError> {
    let queues = 2 * pools * Priority::ALL.len();
    let least = (queues * MESSAGE_BYTES_MAX) as u64;
    match given {
        None => Ok(PREFETCH_BYTES_DEFAULT.max(2 * least)),
        Some(given) if given.0 < least => Err(ConfigError::PrefetchBytes { given, queues, least: Size(least) }),
        Some(given) => Ok(given.0),
    }
}

/// The emulator's devices are none of NVIDIA's. Where nobody knows yet whose they are, the library is tried.
fn nvml_default(cuda: &CudaSpec) -> Option<String> {
    match cuda {
        CudaSpec::Emulated => None,
        CudaSpec::System | CudaSpec::Auto | CudaSpec::Path(_) => Some(crate::nvml::LIBRARY.to_owned()),
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "host".into(), |name| name.trim().to_owned())
}

/// A host's name may have dots, which a worker's may not.
fn default_name(host: &str) -> WorkerName {
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).take(60).collect();
    format!("{host}-{}", std::process::id()).parse().expect("letters, digits and dashes make a worker name")
}
