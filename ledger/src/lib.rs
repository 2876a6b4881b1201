//! The ledger: the history of every job, in Postgres.
//!
//! [`recorder`] turns lifecycle events into rows; [`Ledger`] queries them. The ledger only records: no job waits for it, so an outage
//! delays no job. This is the only crate that uses sqlx.
//!
//! The compiler checks queries against the migrations. It uses the descriptions stored in `.sqlx/`, so a build needs no database. After a
//! change to a query or a migration, write the descriptions again with `cargo xtask sqlx`.

// The modules of the command name the library by its crate's name.
extern crate self as gpufleet_ledger;

mod age;
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
mod pools;
pub mod pruning;
pub mod queries;
pub mod recorder;
pub mod report;
pub mod retention;
mod rollups;
mod tx;
pub mod why;

pub use age::age;
pub use database::{DatabaseUrl, InvalidDatabaseUrl};
pub use error::LedgerError;
pub use gpufleet_service::problem;
pub use model::{
    AttemptRow, DeviceRow, FailureRow, HistoryFilter, JobDetail, JobMatch, JobRow, ListedWorker, OutputRow, Page,
    PageKey, WorkerFilter, WorkerRow, WorkerState,
};
pub use pools::Pool;
pub use pruning::{PRUNED_AGE_DEFAULT, PruneError, prune_blobs};
pub use queries::{
    ActionKey, ActionPage, ActionRow, BLOB_GRACE, BlobUse, DeviceSample, DeviceSamples, InvalidActionKey, LaterKind,
    Ledger, MarkError, Neighbour, Overview, OverviewWindow, PoolOutputs, Progress, Replication, STATISTICS_ROWS_MAX,
    SampleFilter, Series, SeriesPoint, Statistics, StatisticsFilter, StatisticsRow, Times, Unfinished,
};
pub use report::Report;
pub use rollups::{Dimension, Grain, OTHER, Stage, Stages, UnknownDimension};
pub use why::Explanation;
