//! Questions about recorded jobs and workers. Nothing here writes.
//!
//! Every answer comes within [`QUERY_TIMEOUT`] or not at all. Cancelling any of these functions has no effect on the ledger.

use std::{fmt, future::Future};

use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::time::timeout;

use crate::{
    DatabaseUrl, LedgerError,
    database::{CONNECT_TIMEOUT, Purpose, QUERY_TIMEOUT},
    migrate,
};

mod fleet;
mod history;
mod job;
mod record;

/// A command asks one question at a time; a console asks a few at once and can wait.
const CONNECTIONS_MAX: u32 = 4;

/// Access to the ledger for reading. Clones share their connections.
#[derive(Clone)]
pub struct Ledger {
    pool: PgPool,
    url: DatabaseUrl,
}

impl Ledger {
    /// Connects and makes sure that the tables are those that this program knows.
    pub async fn connect(url: DatabaseUrl) -> Result<Self, LedgerError> {
        let mut connection = migrate::connect(&url, Purpose::Query).await?;
        timeout(QUERY_TIMEOUT, migrate::check_version(&mut connection))
            .await
            .unwrap_or_else(|_| Err(LedgerError::timed_out()))?;
        drop(connection);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(url.options(Purpose::Query));
        Ok(Self { pool, url })
    }

    /// Closes all connections, politely.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Puts our own deadline around a question, and its name into the error.
async fn ask<T>(
    operation: &'static str,
    question: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, LedgerError> {
    match timeout(QUERY_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(|source| LedgerError::Database { operation, source }),
        Err(_) => Err(LedgerError::timed_out()),
    }
}
