//! A few connections to the database, shared by all who ask.
//!
//! Where all are in use one waits for the next that comes free. Where the server has none left to give, one waits for the server
//! and for our own at once: a pool that goes on knocking at the server while its own connection lies idle would starve.

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

/// A command asks one question at a time; a console asks a few at once and can wait.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct Connections {
    url: DatabaseUrl,
    /// A place for each connection that is in use or being opened. Only who finds none idle opens one, so that with the idle ones
    /// there are never more than [`CONNECTIONS_MAX`].
    places: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
    /// Calls whoever waits for the server when one of ours comes back.
    returned: Notify,
}

/// A connection in somebody's use. Dropped, it is closed: who is interrupted, or fails, leaves it in an unknown state.
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

    /// Waits for a connection, [`CONNECT_TIMEOUT`] for our own and as long for the server's. Cancelling has no effect.
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

    /// For the next who asks.
    pub(super) fn give_back(&self, lent: Lent<'_>) {
        // The place goes last: whoever gets it finds the connection.
        let Lent { connection, _place } = lent;
        self.idle().push(connection);
        self.returned.notify_one();
    }

    /// Closes those that nobody uses, politely.
    pub(super) async fn close(&self) {
        while let Some(connection) = self.pop() {
            // A server that is gone needs no farewell.
            timeout(QUERY_TIMEOUT, connection.close()).await.ok();
        }
    }

    async fn next_returned(&self) -> PgConnection {
        loop {
            self.returned.notified().await;
            // Somebody else may have been quicker.
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

/// The server may have been restarted since.
async fn is_alive(connection: &mut PgConnection) -> bool {
    matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}
