//! A database for each test, on one private Postgres for each test program.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gpufleet_ledger::{DatabaseUrl, Ledger, migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir};
use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;

/// A guard process ends the server together with this process.
static POSTGRES: OnceCell<(Arc<StateDir>, Postgres)> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A test's own database.
pub struct Database {
    state: &'static StateDir,
    postgres: &'static Postgres,
    name: String,
}

impl Database {
    /// A database with the ledger's tables.
    pub async fn fresh() -> Self {
        let database = Self::empty().await;
        migrate(&database.url()).await.unwrap();
        database
    }

    /// A database with the tables of a version.
    pub async fn of_version(version: i64) -> Self {
        let database = Self::empty().await;
        database.advance_to(version).await;
        database
    }

    /// Applies the migrations up to a version.
    pub async fn advance_to(&self, version: i64) {
        let mut connection = PgConnection::connect(&self.postgres.url(&self.name)).await.unwrap();
        sqlx::migrate!("../migrations").run_to(version, &mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    pub async fn empty() -> Self {
        let start = async || {
            let state = StateDir::ephemeral().unwrap();
            let postgres = Postgres::start(&state).await.unwrap();
            (state, postgres)
        };
        let (state, postgres) = POSTGRES.get_or_init(start).await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        postgres.create_database(&name).await.unwrap();
        Self { state, postgres, name }
    }

    pub fn url(&self) -> DatabaseUrl {
        self.postgres.url(&self.name).parse().unwrap()
    }

    /// A database that does not exist.
    pub fn absent(&self) -> DatabaseUrl {
        self.postgres.url("absent").parse().unwrap()
    }

    /// The URL with a wrong password.
    pub fn locked(&self) -> DatabaseUrl {
        format!("postgres://gpufleet:canary@127.0.0.1:{}/{}", self.postgres.port(), self.name).parse().unwrap()
    }

    /// The URL of a new user who may read, with a limit of connections. All databases of the server share the user.
    pub async fn as_reader(&self, user: &str, connections_max: u32) -> DatabaseUrl {
        self.execute(&format!(
            "create role {user} login connection limit {connections_max}; grant select on all tables in schema public to {user}"
        ))
        .await;
        self.url_of(user).parse().unwrap()
    }

    /// The URL of a user, who needs no password on the Unix socket.
    pub fn url_of(&self, user: &str) -> String {
        let url = self.postgres.url(&self.name);
        let (_, place) = url.split_once('@').unwrap();
        format!("postgres://{user}@{place}")
    }

    /// The server's log, for all databases.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.log("postgres")).unwrap()
    }

    pub async fn open(&self) -> (Store, Ledger) {
        (Store::connect(self.url()).await.unwrap(), Ledger::connect(self.url()).await.unwrap())
    }

    pub async fn execute(&self, sql: &str) -> String {
        self.postgres.psql(&self.name, sql).await.unwrap()
    }

    /// The database's error for a statement that it refuses.
    pub async fn refusal(&self, sql: &str) -> String {
        self.postgres.psql(&self.name, sql).await.expect_err("it must not be allowed").to_string()
    }

    /// All rows of a table, in some fixed order.
    pub async fn rows(&self, table: &str) -> String {
        self.execute(&format!("select row from {table} as row order by row::text")).await
    }

    /// The plan of a query for these arguments, with the settings of [`Ledger`]. Sequential scans are made expensive, as they
    /// are in large tables.
    pub async fn explain(&self, sql: &str, arguments: &str) -> String {
        let settings = "set plan_cache_mode = force_custom_plan; set enable_seqscan = off";
        self.execute(&format!(
            "{settings}; prepare question as {sql}; explain (costs off) execute question ({arguments})"
        ))
        .await
    }
}
