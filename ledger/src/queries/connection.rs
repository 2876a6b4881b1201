//! The one database connection that all queries of a [`Ledger`](super::Ledger) share.
//!
//! Queries run one after the other. A command therefore never asks a full server for a second connection while its own is idle.

use sqlx::{Connection, PgConnection};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

use crate::{
    DatabaseUrl, LedgerError,
    database::{CONNECT_TIMEOUT, PING_TIMEOUT, Purpose, QUERY_TIMEOUT},
    migrate,
};

pub(super) struct SharedConnection {
    url: DatabaseUrl,
    /// Empty until the next query opens a connection.
    idle: Mutex<Option<PgConnection>>,
}

/// The connection in use. Dropping it closes it, because a cancelled or failed query leaves it in an unknown state.
pub(super) struct Lease<'a> {
    connection: PgConnection,
    idle: MutexGuard<'a, Option<PgConnection>>,
}

impl SharedConnection {
    pub(super) fn new(connection: PgConnection, url: DatabaseUrl) -> Self {
        Self { url, idle: Mutex::new(Some(connection)) }
    }

    pub(super) fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Waits up to [`CONNECT_TIMEOUT`] for earlier queries, and as long for the server if it has to connect again.
    /// Cancelling has no effect.
    pub(super) async fn lease(&self) -> Result<Lease<'_>, LedgerError> {
        let Ok(mut idle) = timeout(CONNECT_TIMEOUT, self.idle.lock()).await else {
            let problem = format!("earlier queries of this program kept its connection busy for {CONNECT_TIMEOUT:?}");
            return Err(LedgerError::Full { url: self.url.clone(), problem });
        };
        if let Some(mut connection) = idle.take()
            && is_alive(&mut connection).await
        {
            return Ok(Lease { connection, idle });
        }
        let connection = migrate::connect(&self.url, Purpose::Query).await?;
        Ok(Lease { connection, idle })
    }

    /// Closes the connection with a message to the server. The next query opens another.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.idle.lock().await.take() {
            // An unreachable server needs no message, so an error is ignored.
            timeout(QUERY_TIMEOUT, connection.close()).await.ok();
        }
    }
}

impl Lease<'_> {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Keeps the connection for the next query.
    pub(super) fn keep(mut self) {
        *self.idle = Some(self.connection);
    }
}

/// Pings the connection, because the server may have been restarted.
async fn is_alive(connection: &mut PgConnection) -> bool {
    matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}
