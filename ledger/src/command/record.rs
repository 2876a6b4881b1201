//! `gpufleet-ledger record`.

use std::{
    io,
    path::{Path, PathBuf},
};

use gpufleet_ledger::{
    DatabaseUrl,
    recorder::{Patience, Recorder, Store, count_dropped_replies},
};
use gpufleet_transport::{Broker, BrokerUrl, ConnectError, DeclareError, Options as BrokerOptions};
use tokio::{fs, sync::watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Exit, Failure, broker_url, database_url, invalid, options::Record, stop_on_signals, wait_for};

/// The validated options.
struct Config {
    database: DatabaseUrl,
    broker: BrokerUrl,
}

pub(super) async fn run(options: Record) -> Result<(), Failure> {
    let config = Config::of(&options)?;
    info!(version = env!("CARGO_PKG_VERSION"), database = %config.database, broker = %config.broker, "recording");
    let stop = stop_on_signals().map_err(|error| Failure::new(Exit::Internal, error).doing("listen for signals"))?;
    // A stop while waiting for the database or the broker is a success.
    let Some(store) = connect_database(&config.database, &stop).await? else { return Ok(()) };
    let Some(broker) = connect_broker(&config.broker, &stop).await? else {
        store.close().await;
        return Ok(());
    };
    let recorder = Recorder::new(broker.clone(), store, stop);
    let telling = options.ready_file.map(|path| tokio::spawn(tell_readiness(path, recorder.ready())));
    let counting = tokio::spawn(count_dropped_replies(broker.clone()));
    let ended = recorder.run().await;
    counting.abort();
    if let Some(telling) = telling {
        // The task ends after the recorder, because it removes the readiness file then.
        telling.await.ok();
    }
    broker.close().await;
    info!("stopped");
    ended.map_err(|error| Failure::from(error).doing("record events"))
}

/// Keeps the readiness file present while the recorder is ready, until the recorder ends.
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
    /// Reports every problem at once.
    fn of(options: &Record) -> Result<Self, Failure> {
        match (database_url(&options.database.database_url.0), broker_url(&options.amqp_url.0)) {
            (Ok(database), Ok(broker)) => Ok(Self { database, broker }),
            (Err(database), Err(broker)) => Err(invalid(anyhow::anyhow!("{database}; {broker}"))),
            (Err(database), Ok(_)) => Err(invalid(database)),
            (Ok(_), Err(broker)) => Err(invalid(broker)),
        }
    }
}

/// Waits for an unreachable database. A refused login or other tables are errors at once, because waiting does not change them.
async fn connect_database(url: &DatabaseUrl, stop: &CancellationToken) -> Result<Option<Store>, Failure> {
    let mut patience = Patience::default();
    loop {
        let problem = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            connected = Store::connect(url.clone()) => match connected {
                Ok(store) => return Ok(Some(store)),
                Err(problem) => problem,
            },
        };
        if !problem.may_pass() {
            return Err(Failure::from(problem).doing("open the ledger"));
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = wait_for(&problem, &mut patience) => {}
        }
    }
}

async fn connect_broker(url: &BrokerUrl, stop: &CancellationToken) -> Result<Option<Broker>, Failure> {
    let mut patience = Patience::default();
    loop {
        let connected = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            connected = connect_and_declare(url) => connected,
        };
        match connected {
            Ok(broker) => return Ok(Some(broker)),
            Err(Refusal::ForNow(problem)) => warn!(error = problem, "waiting for the broker"),
            Err(Refusal::ForGood(failure)) => return Err(failure),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = patience.wait() => {}
        }
    }
}

enum Refusal {
    ForNow(String),
    ForGood(Failure),
}

async fn connect_and_declare(url: &BrokerUrl) -> Result<Broker, Refusal> {
    let options = BrokerOptions::new(url.clone(), "gpufleet-ledger");
    let broker = Broker::connect(options).await.map_err(|error| match error {
        ConnectError::Unreachable { .. } | ConnectError::Timeout { .. } => Refusal::ForNow(error.to_string()),
        ConnectError::Refused { .. } | ConnectError::NoVhost { .. } | ConnectError::Tls { .. } => {
            Refusal::ForGood(Failure::new(Exit::Broker, error))
        }
    })?;
    match broker.declare_ledger().await {
        Ok(()) => Ok(broker),
        Err(error) => {
            broker.close().await;
            Err(match error {
                DeclareError::Timeout { .. } | DeclareError::Closed { .. } => Refusal::ForNow(error.to_string()),
                DeclareError::Mismatch { .. }
                | DeclareError::Refused { .. }
                | DeclareError::Forbidden { .. }
                | DeclareError::NoExchange { .. } => Refusal::ForGood(Failure::new(Exit::Broker, error)),
            })
        }
    }
}
