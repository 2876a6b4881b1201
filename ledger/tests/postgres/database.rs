//! A database for each test, on one private Postgres for each test program.

use std::sync::atomic::{AtomicU32, Ordering};

use gpufleet_ledger::{DatabaseUrl, Ledger, migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir};
use tokio::sync::OnceCell;

/// Its guard ends it with this process.
static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A database of a test's own.
pub struct Database {
    postgres: &'static Postgres,
    name: String,
}

impl Database {
    /// With the ledger's tables.
    pub async fn fresh() -> Self {
        let database = Self::empty().await;
        migrate(&database.url()).await.unwrap();
        database
    }

    pub async fn empty() -> Self {
        let start = async || Postgres::start(&StateDir::ephemeral().unwrap()).await.unwrap();
        let postgres = POSTGRES.get_or_init(start).await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        postgres.create_database(&name).await.unwrap();
        Self { postgres, name }
    }

    pub fn url(&self) -> DatabaseUrl {
        self.postgres.url(&self.name).parse().unwrap()
    }

    /// A database that was never made.
    pub fn absent(&self) -> DatabaseUrl {
        self.postgres.url("absent").parse().unwrap()
    }

    /// With the password of somebody else.
    pub fn locked(&self) -> DatabaseUrl {
        format!("postgres://gpufleet:canary@127.0.0.1:{}/{}", self.postgres.port(), self.name).parse().unwrap()
    }

    pub async fn open(&self) -> (Store, Ledger) {
        (Store::connect(self.url()).await.unwrap(), Ledger::connect(self.url()).await.unwrap())
    }

    pub async fn execute(&self, sql: &str) -> String {
        self.postgres.psql(&self.name, sql).await.unwrap()
    }

    /// All rows of a table, in some fixed order.
    pub async fn rows(&self, table: &str) -> String {
        self.execute(&format!("select row from {table} as row order by row::text")).await
    }

    /// The plan of a query for these arguments, as [`Ledger`] has it made; scans of whole tables are made unattractive, as they
    /// are where tables are large.
    pub async fn explain(&self, sql: &str, arguments: &str) -> String {
        let settings = "set plan_cache_mode = force_custom_plan; set enable_seqscan = off";
        self.execute(&format!(
            "{settings}; prepare question as {sql}; explain (costs off) execute question ({arguments})"
        ))
        .await
    }
}
