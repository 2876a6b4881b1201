//! Queries about recorded jobs and workers. Nothing here writes.
//!
//! Every query ends within [`QUERY_TIMEOUT`]. Cancelling any of these functions has no effect on the ledger.

use std::{fmt, future::Future, sync::Arc};

use tokio::time::timeout;

use crate::{
    DatabaseUrl, LedgerError,
    database::{Purpose, QUERY_TIMEOUT},
    migrate,
};

mod blobs;
mod connection;
mod fleet;
mod history;
mod job;
mod labels;
mod lookup;
mod outputs;
mod record;
mod stats;
mod window;

pub use blobs::{BLOB_GRACE, BlobUse, MarkError};
use connection::SharedConnection;
pub use outputs::PoolOutputs;
pub use stats::{Statistics, StatisticsFilter, StatisticsRow, Times};

/// Access to the ledger for reading. Clones share one connection.
#[derive(Clone)]
pub struct Ledger {
    connection: Arc<SharedConnection>,
}

impl Ledger {
    /// Connects and checks that the tables match this program.
    pub async fn connect(url: DatabaseUrl) -> Result<Self, LedgerError> {
        let mut connection = migrate::connect(&url, Purpose::Query).await?;
        timeout(QUERY_TIMEOUT, migrate::check_version(&mut connection))
            .await
            .unwrap_or_else(|_| Err(LedgerError::timed_out()))?;
        Ok(Self { connection: Arc::new(SharedConnection::new(connection, url)) })
    }

    /// Closes the connection. A later query opens a new one.
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

/// Runs a query with the client's deadline, and puts its name into the error.
async fn ask<T>(
    operation: &'static str,
    question: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, LedgerError> {
    match timeout(QUERY_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(|source| LedgerError::Database { operation, source }),
        Err(_) => Err(LedgerError::timed_out()),
    }
}
