//! The connections of a [`Ledger`](super::Ledger): one that all of its queries share, or a bounded pool.
//!
//! A command has one connection. Its queries run one after the other, so it never asks a full server for a second connection while its own
//! is idle. A server that handles several requests at once has a pool.

use sqlx::{Connection, PgConnection, PgPool, Postgres, pool::PoolConnection, postgres::PgPoolOptions};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

use crate::{
    DatabaseUrl, LedgerError,
    database::{CONNECT_TIMEOUT, PING_TIMEOUT, POOL_TIMEOUT, Purpose, QUERY_TIMEOUT},
    migrate,
};

pub(super) struct Connections {
    url: DatabaseUrl,
    kind: Kind,
}

enum Kind {
    /// None until the next query opens a connection.
    One(Mutex<Option<PgConnection>>),
    Pool(PgPool),
}

/// A connection in use. Dropping it closes the connection, because a cancelled or failed query leaves it in an unknown state.
/// [`Lease::keep`] returns it for the next query.
pub(super) struct Lease<'a>(Leased<'a>);

enum Leased<'a> {
    One { connection: PgConnection, idle: MutexGuard<'a, Option<PgConnection>> },
    Pooled(Pooled),
}

struct Pooled {
    connection: PoolConnection<Postgres>,
    is_kept: bool,
}

impl Connections {
    pub(super) fn one(connection: PgConnection, url: DatabaseUrl) -> Self {
        Self { url, kind: Kind::One(Mutex::new(Some(connection))) }
    }

    /// Returns a pool that opens connections on demand, up to `connections_max`.
    pub(super) fn pool(url: DatabaseUrl, connections_max: u32) -> Self {
        let options = PgPoolOptions::new().max_connections(connections_max).acquire_timeout(POOL_TIMEOUT);
        let pool = options.connect_lazy_with(url.options(Purpose::Serve));
        Self { url, kind: Kind::Pool(pool) }
    }

    pub(super) fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Waits for a connection: up to [`CONNECT_TIMEOUT`] for earlier queries, and as long again to connect; in a pool up to
    /// [`POOL_TIMEOUT`] in all. Cancelling has no effect.
    pub(super) async fn lease(&self) -> Result<Lease<'_>, LedgerError> {
        match &self.kind {
            Kind::One(idle) => self.lease_one(idle).await,
            Kind::Pool(pool) => match pool.acquire().await {
                Ok(connection) => Ok(Lease(Leased::Pooled(Pooled { connection, is_kept: false }))),
                Err(error) => Err(self.pool_error(pool, error)),
            },
        }
    }

    async fn lease_one<'a>(&self, idle: &'a Mutex<Option<PgConnection>>) -> Result<Lease<'a>, LedgerError> {
        let Ok(mut idle) = timeout(CONNECT_TIMEOUT, idle.lock()).await else {
            return Err(self.busy(format!("its connection busy for {CONNECT_TIMEOUT:?}")));
        };
        if let Some(mut connection) = idle.take()
            && is_alive(&mut connection).await
        {
            return Ok(Lease(Leased::One { connection, idle }));
        }
        let connection = migrate::connect(&self.url, Purpose::Query).await?;
        Ok(Lease(Leased::One { connection, idle }))
    }

    /// Turns a pool's error into one that says what was full. The pool itself does not say whether it waited for the server or for its own
    /// queries.
    fn pool_error(&self, pool: &PgPool, error: sqlx::Error) -> LedgerError {
        let is_used_up = pool.size() >= pool.options().get_max_connections();
        match error {
            sqlx::Error::PoolTimedOut if is_used_up => {
                self.busy(format!("all of its connections busy for {POOL_TIMEOUT:?}"))
            }
            error => LedgerError::connecting(&self.url, error),
        }
    }

    fn busy(&self, kept: String) -> LedgerError {
        LedgerError::Full { url: self.url.clone(), problem: format!("earlier queries of this program kept {kept}") }
    }

    /// Closes the connections and notifies the server. If there is one connection, the next query opens another.
    pub(super) async fn close(&self) {
        // An unreachable server needs no notice, so an error is ignored.
        match &self.kind {
            Kind::One(idle) => {
                if let Some(connection) = idle.lock().await.take() {
                    timeout(QUERY_TIMEOUT, connection.close()).await.ok();
                }
            }
            Kind::Pool(pool) => _ = timeout(QUERY_TIMEOUT, pool.close()).await.ok(),
        }
    }
}

impl Lease<'_> {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Leased::One { connection, .. } => connection,
            Leased::Pooled(pooled) => &mut pooled.connection,
        }
    }

    /// Returns the connection for the next query.
    pub(super) fn keep(self) {
        match self.0 {
            Leased::One { connection, mut idle } => *idle = Some(connection),
            Leased::Pooled(mut pooled) => pooled.is_kept = true,
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.close_on_drop();
        }
    }
}

/// Pings the connection, because the server may have been restarted.
async fn is_alive(connection: &mut PgConnection) -> bool {
    matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}
