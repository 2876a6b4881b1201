//! Access to the ledger's tables for all queries, and their deadline.

use std::{fmt, future::Future, sync::Arc};

use tokio::time::timeout;

use super::connection::Connections;
use crate::{
    DatabaseUrl, LedgerError,
    database::{Purpose, QUERY_TIMEOUT},
    migrate,
};

/// Read access to the ledger. Clones share one connection or one pool.
#[derive(Clone)]
pub struct Ledger {
    pub(super) connection: Arc<Connections>,
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
pub(super) async fn ask<T>(
    operation: &'static str,
    question: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, LedgerError> {
    match timeout(QUERY_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(|source| LedgerError::failed(operation, source)),
        Err(_) => Err(LedgerError::timed_out()),
    }
}
