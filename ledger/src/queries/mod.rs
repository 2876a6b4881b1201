//! Queries of recorded jobs and workers. This module only reads.
//!
//! Every query ends within [`QUERY_TIMEOUT`](crate::database::QUERY_TIMEOUT). Cancelling any of these functions has no effect on the ledger.

mod actions;
mod blobs;
mod connection;
mod fleet;
mod history;
mod job;
mod labels;
mod later;
mod ledger;
mod lookup;
mod neighbours;
mod outputs;
mod overview;
mod record;
mod replication;
mod samples;
mod series;
mod stats;
mod window;

pub use actions::{ActionKey, ActionPage, ActionRow, InvalidActionKey};
pub use blobs::{BLOB_GRACE, BlobUse, MarkError};
pub use later::LaterKind;
pub use ledger::Ledger;
pub use neighbours::Neighbour;
pub use outputs::PoolOutputs;
pub use overview::{Overview, OverviewWindow, Progress, Unfinished};
pub use replication::Replication;
pub use samples::{DeviceSample, DeviceSamples, SampleFilter};
pub use series::{Series, SeriesPoint};
pub use stats::{STATISTICS_ROWS_MAX, Statistics, StatisticsFilter, StatisticsRow, Times};
