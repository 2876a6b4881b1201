//! Queries of recorded jobs and workers. This module only reads.
//!
//! Every query ends within [`QUERY_TIMEOUT`]. Cancelling any of these functions has no effect on the ledger.

use std::{fmt, future::Future, sync::Arc};

use tokio::time::timeout;

use crate::{
    DatabaseUrl, LedgerError,
    database::{Purpose, QUERY_TIMEOUT},
    migrate,
};

mod actions;
mod blobs;
mod connection;
mod fleet;
mod history;
mod job;
mod labels;
mod later;
mod lookup;
mod outputs;
mod overview;
mod record;
mod replication;
mod samples;
mod series;
mod stats;
mod window;

pub use actions::{ActionKey, ActionPage, ActionRow, InvalidActionKey};
pub use blobs::{BLOB_GRACE, BlobUse, MarkError};
use connection::Connections;
pub use later::LaterKind;
pub use outputs::PoolOutputs;
pub use overview::{Overview, OverviewWindow, Progress, Unfinished};
pub use replication::Replication;
pub use samples::{DeviceSample, DeviceSamples, SampleFilter};
pub use series::{Series, SeriesPoint};
pub use stats::{STATISTICS_ROWS_MAX, Statistics, StatisticsFilter, StatisticsRow, Times};

/// Read access to the ledger. Clones share one connection or one pool.
#[derive(Clone)]
pub struct Ledger {
    connection: Arc<Connections>,
}

impl Ledger {
    /// Connects and checks that the tables match this program.
    pub async fn connect(url: DatabaseUrl) -> Result<Self, LedgerError> {
        let mut connection = migrate::connect(&url, Purpose::Query).await?;
        timeout(QUERY_TIMEOUT, migrate::check_version(&mut connection))
            .await
            .unwrap_or_else(|_| Err(LedgerError::timed_out()))?;
        Ok(Self { connection: Arc::new(Connections::one(connection, url)) })
    }

    /// Returns a ledger for a server, with a pool of at most this many connections. It connects when the first query needs it. It does not
    /// check the tables: call [`Ledger::check_tables`].
    pub fn pooled(url: DatabaseUrl, connections_max: u32) -> Self {
        Self { connection: Arc::new(Connections::pool(url, connections_max)) }
    }

    /// Closes the connection. A later query opens a new one, unless the ledger has a pool.
    pub async fn close(&self) {
        self.connection.close().await;
    }

    pub fn url(&self) -> &DatabaseUrl {
        self.connection.url()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("url", self.url()).finish_non_exhaustive()
    }
}

/// Runs a query with the client's deadline, and puts its name into an error.
async fn ask<T>(
    operation: &'static str,
    question: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, LedgerError> {
    match timeout(QUERY_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(|source| LedgerError::failed(operation, source)),
        Err(_) => Err(LedgerError::timed_out()),
    }
}
