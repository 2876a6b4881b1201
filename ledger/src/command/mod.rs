//! The commands of the program: configuration, waiting for the database and the broker, work, clean shutdown.

use std::{io, process::ExitCode, time::Duration};

use backon::Retryable as _;
use clap::{CommandFactory as _, Parser as _};

use gpufleet_ledger::{DatabaseUrl, InvalidDatabaseUrl, LedgerError, migrate};
use gpufleet_transport::{Backoff, BrokerUrl, InvalidBrokerUrl, LOG_DIRECTIVE};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

pub(crate) mod exit;
mod keep;
mod labels;
pub(crate) mod options;
mod record;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use exit::{Exit, Failure};
use options::{Command, LogFormat, Migrate, Options};

/// The command line's definition, from which its reference page is generated.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let options = Options::parse();
    start_logging(options.log_format);
    match run(options) {
        Ok(()) => Exit::Success.into(),
        Err(failure) => {
            tracing::debug!(error = ?failure.error, "failed");
            eprintln!("gpufleet-ledger: failed to {:#}", failure.error);
            failure.exit.into()
        }
    }
}

pub(crate) fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = filter.add_directive(LOG_DIRECTIVE.parse().expect("the constant is a well-formed directive"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, error).doing("start the runtime"))?;
    runtime.block_on(async {
        match options.command {
            Command::Migrate(options) => migrate_tables(options).await,
            Command::Record(options) => record::run(options).await,
            Command::Keep(options) => keep::run(options).await,
            Command::Labels(options) => labels::run(options).await,
            #[cfg(feature = "serve")]
            Command::Serve(options) => serve::run(options).await,
        }
    })
}

async fn migrate_tables(options: Migrate) -> Result<(), Failure> {
    let url = database_url(&options.database.database_url.0).map_err(invalid)?;
    info!(version = env!("CARGO_PKG_VERSION"), database = %url, "migrating");
    // A deadline beyond the clock's range means no deadline.
    let deadline = Instant::now().checked_add(options.wait);
    let may_wait = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    let migrated = (|| migrate::migrate(&url))
        .retry(Backoff::DELAYS)
        .when(|problem| problem.may_pass() && may_wait())
        .notify(warn_of_wait)
        .await
        .map_err(|problem| Failure::from(problem).doing("migrate the ledger"))?;
    if migrated.from == migrated.to {
        info!(version = migrated.to, "tables are already up to date");
    } else {
        info!(from = migrated.from, to = migrated.to, "tables upgraded");
    }
    Ok(())
}

fn warn_of_wait(problem: &LedgerError, delay: Duration) {
    warn!(error = %problem, ?delay, "waiting for the database");
}

/// Cancelled by the first SIGTERM or Ctrl-C. A second one ends the process at once, which is safe because the broker redelivers unsettled
/// events.
fn stop_on_signals() -> io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        info!("stopping; finishing the work in progress");
        told.cancel();
        next().await;
        warn!("second signal; stopping at once");
        std::process::exit(i32::from(Exit::Success as u8));
    });
    Ok(stop)
}

fn database_url(text: &str) -> Result<DatabaseUrl, InvalidDatabaseUrl> {
    text.parse()
}

fn broker_url(text: &str) -> Result<BrokerUrl, InvalidBrokerUrl> {
    text.parse()
}

fn invalid(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Usage, error).doing("read the configuration")
}
