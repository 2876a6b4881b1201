//! The commands of the program. Each reads its configuration, waits for the database and the broker, works, and shuts
//! down cleanly.

use std::process::ExitCode;

use backon::Retryable as _;
use clap::{CommandFactory as _, Parser as _};

use gpufleet_ledger::migrate;
use gpufleet_service::logging;
use gpufleet_transport::Backoff;
use tokio::{runtime, time::Instant};
use tracing::info;

pub(crate) mod exit;
mod keep;
mod labels;
pub(crate) mod options;
mod record;
#[cfg(feature = "serve")]
mod serve;
mod services;

pub(crate) use exit::{Exit, Failure};
use options::{Command, Migrate, Options};
use services::{database_url, invalid, warn_of_wait};

/// Returns the definition of the command line, from which its reference page is generated.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the command of this process's command line.
pub fn main() -> ExitCode {
    let options = Options::parse();
    logging::start(options.log_format);
    match run(options) {
        Ok(()) => Exit::Success.into(),
        Err(failure) => {
            tracing::debug!(error = ?failure.error, "failed");
            eprintln!("gpufleet-ledger: {:#}", failure.error);
            failure.exit.into()
        }
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    let mut builder = match options.command {
        // Each page is a query and an encoding of its own.
        #[cfg(feature = "serve")]
        Command::Serve(_) => runtime::Builder::new_multi_thread(),
        // What they do for a message takes less time than waking another thread.
        Command::Migrate(_) | Command::Record(_) | Command::Keep(_) | Command::Labels(_) => {
            runtime::Builder::new_current_thread()
        }
    };
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error).doing("start the runtime"))?;
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
    // A deadline that the clock can't represent means no deadline.
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
