//! `gpufleet-ledger record`.

use std::{
    future, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use backon::Retryable as _;
use gpufleet_blobs::BlobLocation;
use gpufleet_ledger::{
    DatabaseUrl, LedgerError, analysis,
    pruning::BlobPruner,
    recorder::{Metrics, Recorder, Store, count_dropped_replies},
    retention::{Keeper, Kept},
};
use gpufleet_service::{metrics, server, signals};
use gpufleet_telemetry::Traces;
use gpufleet_transport::{Backoff, Broker, BrokerUrls, ConnectError, DeclareError, Options as BrokerOptions};
use tokio::{fs, runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    exit::{Exit, Failure},
    options::Record,
    services::{broker_url, database_url, invalid, warn_of_wait},
};

/// How long a stopping recorder waits for the collector of traces.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

/// The validated options.
struct Config {
    database: DatabaseUrl,
    broker: BrokerUrls,
    /// The store to prune.
    pruned: Option<BlobLocation>,
}

pub(super) async fn run(options: Record) -> Result<(), Failure> {
    let config = Config::of(&options)?;
    info!(version = env!("CARGO_PKG_VERSION"), database = %config.database, broker = %config.broker, "recording");
    let stop = signals::stop().map_err(|error| Failure::new(Exit::Internal, error).doing("listen for signals"))?;
    let traces = Traces::from_environment("gpufleet-ledger").map_err(invalid)?;
    let metrics = match options.metrics {
        Some(address) => Some(serve_metrics(address, traces.clone()).await?),
        None => None,
    };
    // A stop while waiting for the database or the broker is a success.
    let Some(store) = connect_database(&config.database, &stop).await? else { return Ok(()) };
    let Some(broker) = connect_broker(&config.broker, &stop).await? else {
        store.close().await;
        return Ok(());
    };
    let pruning = config.pruned.map(|location| {
        let pruner = BlobPruner::new(config.database.clone(), location, options.every);
        tokio::spawn(pruner.run(stop.clone()))
    });
    let kept = Kept {
        jobs: options.keep_jobs,
        attempts: options.keep_attempts,
        samples: options.keep_samples,
        actions: options.keep_actions,
    };
    let keeping = (kept != Kept::default()).then(|| {
        let keeper = Keeper::new(config.database.clone(), kept, options.keep_archive, options.keep_every);
        let (runtime, stop) = (Handle::current(), stop.clone());
        // On a thread of its own, because it compresses whole months.
        tokio::task::spawn_blocking(move || runtime.block_on(keeper.run(stop)))
    });
    let analyzing = tokio::spawn(analysis::run(config.database.clone(), stop.clone()));
    let mut recorder = Recorder::new(broker.clone(), store, stop.clone()).traces(traces.clone());
    if let Some(metrics) = metrics {
        recorder = recorder.metrics(Arc::clone(&metrics));
        tokio::spawn(show_readiness(Arc::clone(&metrics), recorder.ready()));
        let broker = broker.clone();
        tokio::spawn(async move { metrics.watch(broker).await });
    }
    let telling = options.ready_file.map(|path| tokio::spawn(tell_readiness(path, recorder.ready())));
    let counting = tokio::spawn(count_dropped_replies(broker.clone()));
    let ended = recorder.run().await;
    counting.abort();
    // Stops the other tasks too if the recorder failed.
    stop.cancel();
    for task in [pruning, keeping, Some(analyzing)].into_iter().flatten() {
        task.await.ok();
    }
    if let Some(telling) = telling {
        // The task ends after the recorder, because it removes the readiness file then.
        telling.await.ok();
    }
    broker.close().await;
    if let Some(traces) = traces {
        traces.flush(FLUSH_DEADLINE).await;
    }
    info!("stopped");
    ended.map_err(|error| Failure::from(error).doing("record events"))
}

/// Serves metrics from now on, even while the recorder waits for the database and the broker.
async fn serve_metrics(address: SocketAddr, traces: Option<Traces>) -> Result<Arc<Metrics>, Failure> {
    let (listener, address) = server::listen(address).await.map_err(|error| {
        let refused =
            format!("failed to serve metrics on {address}: {error}; choose another address or port with --metrics");
        Failure::new(Exit::Usage, anyhow::anyhow!(refused))
    })?;
    info!(%address, "serving metrics");
    let shown = Arc::<Metrics>::default();
    let served = Arc::clone(&shown);
    tokio::spawn(metrics::serve(listener, move || {
        if let Some(traces) = &traces {
            served.set_spans(traces);
        }
        future::ready(served.text())
    }));
    Ok(shown)
}

/// Shows whether the recorder is ready until it ends.
async fn show_readiness(metrics: Arc<Metrics>, mut ready: watch::Receiver<bool>) {
    loop {
        metrics.set_ready(*ready.borrow_and_update());
        if ready.changed().await.is_err() {
            return metrics.set_ready(false);
        }
    }
}

/// Keeps the ready file present while the recorder is ready, until the recorder ends.
async fn tell_readiness(path: PathBuf, mut ready: watch::Receiver<bool>) {
    loop {
        let is_ready = *ready.borrow_and_update();
        let told = if is_ready { fs::write(&path, "").await } else { remove(&path).await };
        if let Err(error) = told {
            warn!(path = %path.display(), %error, "failed to update the ready file");
        }
        if ready.changed().await.is_err() {
            remove(&path).await.ok();
            return;
        }
    }
}

async fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Config {
    /// Validates the options, and reports every problem at once.
    fn of(options: &Record) -> Result<Self, Failure> {
        let pruned = options.prune_blobs.clone().map(BlobLocation::try_from).transpose();
        match (database_url(&options.database.database_url.0), broker_url(&options.amqp_url.0), pruned) {
            (Ok(database), Ok(broker), Ok(pruned)) => Ok(Self { database, broker, pruned }),
            (database, broker, pruned) => {
                let problems = [
                    database.err().map(|problem| problem.to_string()),
                    broker.err().map(|problem| problem.to_string()),
                    pruned.err().map(|problem| problem.to_string()),
                ];
                Err(invalid(anyhow::anyhow!(problems.into_iter().flatten().collect::<Vec<_>>().join("; "))))
            }
        }
    }
}

/// Connects to the database, and waits while it is unreachable. A refused login, or tables of another version, is an error at once, because
/// waiting does not help.
async fn connect_database(url: &DatabaseUrl, stop: &CancellationToken) -> Result<Option<Store>, Failure> {
    let connected =
        (|| Store::connect(url.clone())).retry(Backoff::DELAYS).when(LedgerError::may_pass).notify(warn_of_wait);
    let connected = stop.run_until_cancelled(connected).await.transpose();
    connected.map_err(|problem| Failure::from(problem).doing("open the ledger"))
}

async fn connect_broker(urls: &BrokerUrls, stop: &CancellationToken) -> Result<Option<Broker>, Failure> {
    let connected = (|| connect_and_declare(urls))
        .retry(Backoff::DELAYS)
        .when(Refusal::may_pass)
        .notify(|refusal, delay| warn!(error = %refusal.problem, ?delay, "waiting for the broker"));
    let connected = stop.run_until_cancelled(connected).await.transpose();
    connected.map_err(|refusal| Failure::new(Exit::Broker, refusal.problem))
}

/// Why the broker can't be used, and whether waiting may help.
struct Refusal {
    problem: anyhow::Error,
    may_pass: bool,
}

impl Refusal {
    fn may_pass(&self) -> bool {
        self.may_pass
    }
}

impl From<ConnectError> for Refusal {
    fn from(error: ConnectError) -> Self {
        Self { may_pass: error.may_pass(), problem: error.into() }
    }
}

impl From<DeclareError> for Refusal {
    fn from(error: DeclareError) -> Self {
        let may_pass = match error {
            DeclareError::Timeout { .. } | DeclareError::Closed { .. } => true,
            DeclareError::Mismatch { .. }
            | DeclareError::Refused { .. }
            | DeclareError::Forbidden { .. }
            | DeclareError::NoExchange { .. } => false,
        };
        Self { problem: error.into(), may_pass }
    }
}

async fn connect_and_declare(urls: &BrokerUrls) -> Result<Broker, Refusal> {
    let broker = Broker::connect(BrokerOptions::new(urls.clone(), "gpufleet-ledger")).await?;
    if let Err(error) = broker.declare_ledger().await {
        broker.close().await;
        return Err(error.into());
    }
    Ok(broker)
}
