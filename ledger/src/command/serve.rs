//! `gpufleet-ledger serve`.

use std::{fs, net::SocketAddr, time::Duration};

use anyhow::{Context as _, anyhow};
use gpufleet_ledger::{
    DatabaseUrl, Ledger, LedgerError,
    api::{self, Tokens},
};
use gpufleet_service::signals;
use tracing::{info, warn};

use super::{
    exit::{Exit, Failure},
    options::Serve,
    services::{database_url, invalid},
};

/// The validated options.
struct Config {
    database: DatabaseUrl,
    listen: SocketAddr,
    tokens: Tokens,
    connections: u32,
    lag_max: Duration,
}

pub(super) async fn run(options: Serve) -> Result<(), Failure> {
    let config = Config::of(&options).map_err(invalid)?;
    let ledger = Ledger::pooled(config.database, config.connections);
    check(&ledger).await?;
    let stop = signals::stop().map_err(|error| Failure::new(Exit::Internal, error).doing("listen for signals"))?;
    let (listener, address) = api::server::listen(config.listen)
        .await
        .with_context(|| format!("failed to listen on {}; choose another address or port with --listen", config.listen))
        .map_err(|error| Failure::new(Exit::Usage, error))?;
    info!(version = env!("CARGO_PKG_VERSION"), %address, needs_token = !config.tokens.is_empty(), "serving the read API");
    api::server::serve(listener, api::pages(ledger.clone(), config.tokens, config.lag_max), stop).await;
    ledger.close().await;
    info!("stopped");
    Ok(())
}

/// Fails only if waiting can't help. `/readyz` reports every other problem.
async fn check(ledger: &Ledger) -> Result<(), Failure> {
    match ledger.check_tables().await {
        Ok(()) => Ok(()),
        Err(error @ LedgerError::Schema(_)) => Err(Failure::from(error).doing("serve the ledger")),
        Err(error) => {
            warn!(cause = api::cause(&error), "the ledger can't be read yet; serving anyway");
            Ok(())
        }
    }
}

impl Config {
    fn of(options: &Serve) -> anyhow::Result<Self> {
        let url = options.database_read_url.as_ref().or(options.database_url.as_ref());
        let url = url.ok_or_else(|| {
            anyhow!("no database URL was given; set GPUFLEET_DATABASE_URL, or GPUFLEET_DATABASE_READ_URL for a standby")
        })?;
        let tokens = tokens(options)?;
        if tokens.is_empty() && !options.listen.ip().is_loopback() {
            return Err(anyhow!(
                "listening on {} without a token is refused: everyone who can reach this address could read all jobs; give \
                 --token-file or set GPUFLEET_API_TOKEN, or listen on 127.0.0.1",
                options.listen
            ));
        }
        Ok(Self {
            database: database_url(&url.0)?,
            listen: options.listen,
            tokens,
            connections: options.connections,
            lag_max: options.lag_max,
        })
    }
}

fn tokens(options: &Serve) -> anyhow::Result<Tokens> {
    if let Some(path) = &options.token_file {
        let place = || format!("failed to read the tokens in {}", path.display());
        return Tokens::of(&fs::read_to_string(path).with_context(place)?).with_context(place);
    }
    match &options.api_token {
        Some(token) => Tokens::of(&token.0).context("failed to use the token of --api-token or GPUFLEET_API_TOKEN"),
        None => Ok(Tokens::default()),
    }
}
