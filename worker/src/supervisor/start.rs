//! Opens what a worker needs before its first message: devices, compiler, stores, and the broker connection.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use gpufleet_blobs::{BlobCache, BlobStore};
use gpufleet_schema::ClassKey;
use gpufleet_transport::{Broker, DeclareError, Options};
use tracing::{error, info, warn};

use super::{WorkerError, devices::WorkerDevice, handle::DispatcherHandle, signals::Signals, task_queue::more_queues};
use crate::{
    compiler::{Compiler, ProgramStore, ProgramStoreError, Sandbox},
    config::{CacheSpec, Config},
    inventory::{self, Source},
    metrics::Metrics,
};

/// How long an outcome waits for the broker's confirm. Giving up would run the job again and, after some repetitions, dead-letter it
/// although the job is not the cause. So while the broker is unreachable or has an alarm, the worker waits and keeps its messages. The
/// prefetch bounds their number, and the grace period of a draining worker bounds the wait.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How long the start waits for the other devices once the first one is in service: far longer than a healthy device takes.
const LATE_DEVICE_PATIENCE: Duration = Duration::from_secs(20);
/// Pause between attempts to reach the broker.
const RECONNECT_PAUSE: Duration = Duration::from_secs(2);

/// Opens the devices. This comes before the broker connection, so that a missing driver is reported even if the broker is unreachable. A
/// device that does not start is out of service; the others keep working.
pub(super) async fn devices(
    config: &Config,
    dispatcher: &Arc<DispatcherHandle>,
    compiler: &Arc<Compiler>,
    metrics: &Arc<Metrics>,
) -> Result<Vec<WorkerDevice>, WorkerError> {
    let source = Source { cuda: config.cuda.clone(), nvml: config.nvml.clone(), user: config.executor_user.clone() };
    let chosen = config.devices.choose(&inventory::list(&source).await?)?;
    let devices: Vec<_> =
        chosen.into_iter().map(|info| WorkerDevice::open(info, config, compiler, dispatcher, metrics)).collect();
    let mut settling: FuturesUnordered<_> = devices.iter().map(WorkerDevice::settled).collect();
    let one_in_service = async {
        while settling.next().await.is_some() {
            if devices.iter().any(|device| device.is_up()) {
                break;
            }
        }
    };
    one_in_service.await;
    // Wait briefly for the other devices; a slower one is added later.
    let others = async { while settling.next().await.is_some() {} };
    if tokio::time::timeout(LATE_DEVICE_PATIENCE, others).await.is_err() {
        warn!("some devices are not in service yet, starting without them");
    }
    drop(settling);
    match devices.iter().map(|device| device.sick_reason()).collect::<Option<Vec<_>>>() {
        Some(reasons) => Err(WorkerError::DevicesLost(reasons.join("; "))),
        None => Ok(devices),
    }
}

/// Returns the classes of the devices in service, each once.
pub(super) fn classes(devices: &[WorkerDevice]) -> Vec<ClassKey> {
    let in_service = devices.iter().filter(|device| device.is_in_service());
    in_service.map(|device| device.class.key).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Opens the disk cache of compiled programs. A configured folder must be usable; without the default folder, the worker only compiles more
/// often.
pub(super) fn store(cache: &CacheSpec) -> Result<Option<ProgramStore>, ProgramStoreError> {
    let Some(folder) = cache.folder.as_ref().filter(|_| cache.bytes_max > 0) else {
        info!("disk cache for compiled programs disabled");
        return Ok(None);
    };
    match ProgramStore::open(folder, cache.bytes_max) {
        Ok(store) => {
            info!(folder = %folder.display(), bytes_max = cache.bytes_max, "disk cache for compiled programs opened");
            Ok(Some(store))
        }
        Err(error) if cache.is_told => Err(error),
        Err(error) => {
            warn!(%error, "disk cache for compiled programs unusable, set --cache-dir to another folder");
            Ok(None)
        }
    }
}

/// Opens the blob store, if one is configured. A missing store is an error at start, because otherwise each job would fail.
pub(super) async fn blobs(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<BlobStore>, WorkerError> {
    let Some(location) = &config.blobs else { return Ok(None) };
    let store = BlobStore::open(location.clone()).await?;
    store.probe().await?;
    info!(store = %location, "blob store opened");
    let Some(folder) = &config.blob_cache else { return Ok(Some(store)) };
    if location.is_folder() {
        info!("blob cache not used, because the blob store is a folder");
        return Ok(Some(store));
    }
    let metrics = Arc::clone(metrics);
    let cache = BlobCache::open(folder, config.blob_cache_bytes, move |used| metrics.blob_cache_used(used))?;
    info!(folder = %folder.display(), bytes_max = config.blob_cache_bytes, "blob cache opened");
    Ok(Some(store.with_cache(cache)))
}

/// Identifies the compiler and checks its sandbox before the first job that needs it.
pub(super) async fn prepare_compiler(compiler: Arc<Compiler>, sandbox: Sandbox) {
    compiler.prepare().await;
    tell_sandbox(&compiler, sandbox).await;
}

/// Logs what the compiler sandbox blocks, and what it should block but does not.
async fn tell_sandbox(compiler: &Compiler, sandbox: Sandbox) {
    let checked = match compiler.check_sandbox().await {
        Ok(checked) => checked,
        Err(error) => return warn!(%error, "failed to check the compiler sandbox"),
    };
    let closed = checked.closed;
    match closed.missing() {
        None => info!(files = closed.files, calls = closed.calls, network = closed.network, "compiler sandbox closed"),
        Some(missing) => warn!(missing, ?sandbox, "compiler sandbox incomplete, the Linux kernel lacks a feature"),
    }
    if closed.missing().is_none() && !checked.open.is_empty() {
        error!(open = checked.open.join(", "), "compiler sandbox allows forbidden operations");
    }
}

/// Connects to the broker and declares the topology. While the broker is unreachable or starting, it tries again until a signal (`None`). A
/// refused login is an error.
pub(super) async fn broker(
    config: &Config,
    classes: &[ClassKey],
    signals: &mut Signals,
) -> Result<Option<Broker>, WorkerError> {
    loop {
        let attempt = tokio::select! {
            attempt = connect(config, classes) => attempt,
            _ = signals.next() => return Ok(None),
        };
        match attempt {
            Ok(broker) => {
                info!(broker = %config.broker, "connected to the broker");
                return Ok(Some(broker));
            }
            Err(error) if is_away(&error) => warn!(%error, "broker unreachable, trying again"),
            Err(refused) => return Err(refused),
        }
        tokio::select! {
            () = tokio::time::sleep(RECONNECT_PAUSE) => {}
            _ = signals.next() => return Ok(None),
        }
    }
}

async fn connect(config: &Config, classes: &[ClassKey]) -> Result<Broker, WorkerError> {
    let mut options = Options::new(config.broker.clone(), format!("gpufleet-worker {}", config.name));
    options.confirm_deadline = PATIENCE;
    options.heartbeat = config.heartbeat;
    let broker = Broker::connect(options).await.map_err(|error| WorkerError::Connect(Box::new(error)))?;
    broker.declare_base().await?;
    match broker.declare_progress().await {
        Ok(()) => {}
        // The user of an earlier release may not declare it.
        Err(error @ DeclareError::Forbidden { .. }) => {
            warn!(%error, "no progress of running jobs is published, grant the worker's permissions again");
        }
        Err(error) => return Err(error.into()),
    }
    for pool in &config.pools {
        broker.declare_pool(&pool.name).await?;
        broker.declare_more(&pool.name, more_queues(pool)).await?;
        for class in classes {
            broker.declare_forwarded(&pool.name, *class).await?;
        }
    }
    Ok(broker)
}

/// Returns whether a later attempt may succeed.
fn is_away(error: &WorkerError) -> bool {
    match error {
        WorkerError::Connect(error) => error.may_pass(),
        WorkerError::Declare(error) => matches!(error, DeclareError::Timeout { .. }),
        _ => false,
    }
}
