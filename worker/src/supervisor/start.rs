//! What has to be there before the first message: devices, then a broker.

use std::{sync::Arc, time::Duration};

use gpufleet_transport::{Broker, ConnectError, Options};
use tracing::{error, info, warn};

use super::{WorkerError, admission::Admission, devices::DeviceSlot, signals::Signals};
use crate::{
    compiler::{Compiler, Sandbox, Store, StoreError},
    config::{CacheSpec, Config},
    executor::ExecutorOptions,
};

/// Between attempts to reach a broker that is not there yet.
const RECONNECT_PAUSE: Duration = Duration::from_secs(2);

/// Devices come first: a machine without a driver should say so even when its broker is away.
pub(super) async fn devices(
    config: &Config,
    admission: &Arc<Admission>,
    compiler: &Arc<Compiler>,
) -> Result<Vec<DeviceSlot>, WorkerError> {
    let mut slots = Vec::new();
    for &device in &config.devices {
        let options = ExecutorOptions {
            lanes: config.jobs_per_device as usize,
            compiler: Arc::clone(compiler),
            user: config.executor_user.clone(),
            ..ExecutorOptions::new(device, config.cuda.clone())
        };
        let slot = DeviceSlot::open(options, config, Arc::clone(admission))
            .await
            .map_err(|source| WorkerError::Device { device, source })?;
        slots.push(slot);
    }
    Ok(slots)
}

/// The compiled programs on disk. A folder that was named has to be usable; without the usual one, a worker compiles more.
pub(super) fn store(cache: &CacheSpec) -> Result<Option<Store>, StoreError> {
    let Some(folder) = cache.folder.as_ref().filter(|_| cache.bytes_max > 0) else {
        info!("compiled programs are not kept on disk");
        return Ok(None);
    };
    match Store::open(folder, cache.bytes_max) {
        Ok(store) => {
            info!(folder = %folder.display(), bytes_max = cache.bytes_max, "compiled programs are kept on disk");
            Ok(Some(store))
        }
        Err(error) if cache.is_told => Err(error),
        Err(error) => {
            warn!(%error, "compiled programs are not kept on disk, --cache-dir names another folder");
            Ok(None)
        }
    }
}

/// Has everything known about the compiler before the first job that needs it.
pub(super) async fn prepare_compiler(compiler: Arc<Compiler>, sandbox: Sandbox) {
    compiler.prepare().await;
    tell_sandbox(&compiler, sandbox).await;
}

/// Says once what is closed to compilers here, and what should be and is not.
async fn tell_sandbox(compiler: &Compiler, sandbox: Sandbox) {
    let checked = match compiler.check_sandbox().await {
        Ok(checked) => checked,
        Err(error) => return warn!(%error, "compiler sandbox not checked"),
    };
    let closed = checked.closed;
    match closed.missing() {
        None => info!(files = closed.files, calls = closed.calls, network = closed.network, "compiler sandbox closed"),
        Some(missing) => warn!(missing, ?sandbox, "compiler sandbox is open, the kernel can't close it"),
    }
    if closed.missing().is_none() && !checked.open.is_empty() {
        error!(open = checked.open.join(", "), "compiler sandbox leaks");
    }
}

/// Connects and declares. A broker that is away is waited for, until a signal (`None`); one that refuses us is an error.
pub(super) async fn broker(config: &Config, signals: &mut Signals) -> Result<Option<Broker>, WorkerError> {
    let broker = loop {
        let mut options = Options::new(config.broker.clone(), format!("gpufleet-worker {}", config.name));
        options.queue_kind = config.queue_kind;
        options.heartbeat = config.heartbeat;
        let attempt = tokio::select! {
            attempt = Broker::connect(options) => attempt,
            _ = signals.next() => return Ok(None),
        };
        match attempt {
            Ok(broker) => break broker,
            Err(error @ (ConnectError::Unreachable { .. } | ConnectError::Timeout { .. })) => {
                warn!(%error, "broker away, trying again");
            }
            Err(refused) => return Err(WorkerError::Connect(Box::new(refused))),
        }
        tokio::select! {
            () = tokio::time::sleep(RECONNECT_PAUSE) => {}
            _ = signals.next() => return Ok(None),
        }
    };
    broker.declare_base().await?;
    for pool in &config.pools {
        broker.declare_pool(&pool.name).await?;
    }
    info!(broker = %config.broker, "connected");
    Ok(Some(broker))
}
