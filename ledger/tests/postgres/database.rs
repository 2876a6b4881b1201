//! Gives each test a database of its own. Each test program has one private Postgres server.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gpufleet_ledger::{DatabaseUrl, Ledger, migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir};
use sqlx::{AssertSqlSafe, Connection, Executor as _, PgConnection};
use tokio::sync::OnceCell;

/// The server. A guard process ends it together with this process.
static POSTGRES: OnceCell<(Arc<StateDir>, Postgres)> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A test's own database.
pub struct Database {
    state: &'static StateDir,
    postgres: &'static Postgres,
    name: String,
}

impl Database {
    /// Creates a database with the ledger's tables.
    pub async fn fresh() -> Self {
        let database = Self::empty().await;
        migrate(&database.url()).await.unwrap();
        database
    }

    /// Creates a database with the ledger's tables, and opens it.
    pub async fn opened() -> (Self, Store, Ledger) {
        let database = Self::fresh().await;
        let (store, ledger) = database.open().await;
        (database, store, ledger)
    }

    /// Creates a database with the tables of a version.
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
        self.text_url().parse().unwrap()
    }

    pub fn text_url(&self) -> String {
        self.postgres.url(&self.name)
    }

    /// Returns the URL of a database that does not exist.
    pub fn absent(&self) -> DatabaseUrl {
        self.postgres.url("absent").parse().unwrap()
    }

    /// Returns the URL with a wrong password.
    pub fn locked(&self) -> DatabaseUrl {
        format!("postgres://gpufleet:canary@127.0.0.1:{}/{}", self.postgres.port(), self.name).parse().unwrap()
    }

    /// Creates a user who may only read and has a limit of connections, and returns the URL. All databases of the
    /// server share the user.
    pub async fn as_reader(&self, user: &str, connections_max: u32) -> DatabaseUrl {
        self.execute(&format!(
            "create role {user} login connection limit {connections_max}; grant select on all tables in schema public to {user}"
        ))
        .await;
        self.url_of(user).parse().unwrap()
    }

    /// Returns the URL of a user, who needs no password on the Unix socket.
    pub fn url_of(&self, user: &str) -> String {
        let url = self.postgres.url(&self.name);
        let (_, place) = url.split_once('@').unwrap();
        format!("postgres://{user}@{place}")
    }

    /// Returns the server's log, which covers all databases.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.log("postgres")).unwrap()
    }

    pub async fn open(&self) -> (Store, Ledger) {
        (Store::connect(self.url()).await.unwrap(), Ledger::connect(self.url()).await.unwrap())
    }

    pub async fn execute(&self, sql: &str) -> String {
        self.postgres.psql(&self.name, sql).await.unwrap()
    }

    /// Executes statements on a large table, which may take minutes.
    pub async fn execute_slowly(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.text_url()).await.unwrap();
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    /// Returns the single text that a query on a large table gives.
    pub async fn read_slowly(&self, sql: &str) -> String {
        let mut connection = PgConnection::connect(&self.text_url()).await.unwrap();
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap()
    }

    /// Returns the database's error for a statement that it refuses.
    pub async fn refusal(&self, sql: &str) -> String {
        self.postgres.psql(&self.name, sql).await.expect_err("it must not be allowed").to_string()
    }

    /// Returns all rows of a table in a fixed order.
    pub async fn rows(&self, table: &str) -> String {
        self.execute(&format!("select row from {table} as row order by row::text")).await
    }

    /// Executes a query with these arguments, and returns its plan and the number of buffers that it read.
    pub async fn explain_buffers(&self, sql: &str, arguments: &str) -> Plan {
        let settings = "set plan_cache_mode = force_custom_plan";
        let explain = "explain (analyze, buffers, costs off, timing off, summary off)";
        let text = self
            .execute(&format!("{settings}; prepare question as {sql}; {explain} execute question ({arguments})"))
            .await;
        // The numbers of the first node include those of the nodes below it.
        let first = text.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).unwrap_or_default();
        let counts =
            first.split_whitespace().filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")));
        let buffers = counts.map(|count| count.parse::<u64>().unwrap()).sum();
        Plan { text, buffers }
    }
}

/// How a query was executed.
#[derive(Debug)]
pub struct Plan {
    pub text: String,
    pub buffers: u64,
}

/// Returns the text of the query with this name, from its offline data.
pub fn query_text(name: &str) -> String {
    let described = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.sqlx")).unwrap();
    let texts = described.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let mut queries = texts.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap()["query"].clone());
    let found = queries.find(|query| query.as_str().unwrap().starts_with(&format!("/* {name} */")));
    found.unwrap().as_str().unwrap().to_owned()
}
