//! A small pool of database connections, shared by all queries.
//!
//! If all connections are in use, a query waits for the next free one. If the server is full, a query waits for the server
//! and for a returned connection at once. A pool that only retries the server while its own connection is idle would starve.

use std::sync::{Mutex, MutexGuard};

use sqlx::{Connection, PgConnection};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    DatabaseUrl, LedgerError,
    database::{CONNECT_TIMEOUT, PING_TIMEOUT, Purpose, QUERY_TIMEOUT},
    migrate,
};

/// A command runs one query at a time; a console runs a few at once and can wait.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct Connections {
    url: DatabaseUrl,
    /// A permit for each connection that is in use or being opened. A query opens one only if none is idle, so together with the idle ones
    /// there are never more than [`CONNECTIONS_MAX`].
    places: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
    /// Wakes the queries that wait for a full server when a connection is returned.
    returned: Notify,
}

/// A connection in use. Dropping it closes it, because a cancelled or failed query leaves it in an unknown state.
pub(super) struct Lent<'a> {
    connection: PgConnection,
    _place: SemaphorePermit<'a>,
}

impl Connections {
    pub(super) fn starting_with(connection: PgConnection, url: DatabaseUrl) -> Self {
        let places = Semaphore::new(CONNECTIONS_MAX);
        Self { url, places, idle: Mutex::new(vec![connection]), returned: Notify::new() }
    }

    pub(super) fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Waits for a connection: [`CONNECT_TIMEOUT`] for a permit and as long for the server. Cancelling has no effect.
    pub(super) async fn take(&self) -> Result<Lent<'_>, LedgerError> {
        let Ok(place) = timeout(CONNECT_TIMEOUT, self.places.acquire()).await else {
            let problem = format!(
                "{CONNECTIONS_MAX} earlier queries of this program kept all its connections busy for {CONNECT_TIMEOUT:?}"
            );
            return Err(LedgerError::Full { url: self.url.clone(), problem });
        };
        let place = place.expect("the semaphore is never closed");
        while let Some(mut connection) = self.pop() {
            if is_alive(&mut connection).await {
                return Ok(Lent { connection, _place: place });
            }
        }
        let connection = tokio::select! {
            opened = migrate::connect(&self.url, Purpose::Query) => opened?,
            connection = self.next_returned() => connection,
        };
        Ok(Lent { connection, _place: place })
    }

    /// Returns the connection to the pool.
    pub(super) fn give_back(&self, lent: Lent<'_>) {
        // The permit is released last, so that the next query finds the connection.
        let Lent { connection, _place } = lent;
        self.idle().push(connection);
        self.returned.notify_one();
    }

    /// Closes the idle connections with a message to the server.
    pub(super) async fn close(&self) {
        while let Some(connection) = self.pop() {
            // An unreachable server needs no message, so an error is ignored.
            timeout(QUERY_TIMEOUT, connection.close()).await.ok();
        }
    }

    async fn next_returned(&self) -> PgConnection {
        loop {
            self.returned.notified().await;
            // Another query may have taken the connection first.
            if let Some(connection) = self.pop() {
                return connection;
            }
        }
    }

    fn pop(&self) -> Option<PgConnection> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().expect("no panic happens under this lock")
    }
}

impl Lent<'_> {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// Pings the connection, because the server may have been restarted.
async fn is_alive(connection: &mut PgConnection) -> bool {
    matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}
