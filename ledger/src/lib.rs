//! The ledger: the history of every job, in Postgres.
//!
//! [`recorder`] turns lifecycle events into rows; [`Ledger`] queries them. The ledger only records: no job waits for it, so an
//! outage delays no job. This is the only crate that knows sqlx.
//!
//! Queries are checked against the migrations when the crate is compiled, from descriptions stored in `.sqlx/`, so that a
//! build needs no database. After a change to a query or a migration, write them again with `cargo xtask sqlx`.

// The modules of the command name the library by its crate's name.
extern crate self as gpufleet_ledger;

pub mod analysis;
#[cfg(feature = "serve")]
pub mod api;
#[doc(hidden)]
pub mod command;
pub mod database;
pub mod disposition;
pub mod error;
pub mod job_time;
pub mod labels;
pub mod migrate;
pub mod model;
mod patience;
pub mod problem;
pub mod pruning;
pub mod queries;
pub mod recorder;
pub mod retention;
mod rollups;
mod tx;

pub use database::{DatabaseUrl, InvalidDatabaseUrl};
pub use error::LedgerError;
pub use model::{
    AttemptRow, DeviceRow, FailureRow, HistoryFilter, JobDetail, JobMatch, JobRow, ListedWorker, OutputRow, Page,
    PageKey, StateCount, WorkerFilter, WorkerRow, WorkerState,
};
pub use pruning::{PRUNED_AGE_DEFAULT, PruneError, prune_blobs};
pub use queries::{
    BLOB_GRACE, BlobUse, Ledger, MarkError, PoolOutputs, Replication, Statistics, StatisticsFilter, StatisticsRow,
    Times,
};
pub use rollups::{Dimension, OTHER, Stage, Stages, UnknownDimension};
