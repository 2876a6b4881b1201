//! The services that the commands need.

use std::time::Duration;

use gpufleet_ledger::{DatabaseUrl, InvalidDatabaseUrl, LedgerError};
use gpufleet_transport::{BrokerUrls, InvalidBrokerUrl};
use tracing::warn;

use super::exit::{Exit, Failure};

pub(super) fn warn_of_wait(problem: &LedgerError, delay: Duration) {
    warn!(error = %problem, ?delay, "waiting for the database");
}

pub(super) fn database_url(text: &str) -> Result<DatabaseUrl, InvalidDatabaseUrl> {
    text.parse()
}

pub(super) fn broker_url(text: &str) -> Result<BrokerUrls, InvalidBrokerUrl> {
    text.parse()
}

pub(super) fn invalid(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Usage, error).doing("read the configuration")
}
