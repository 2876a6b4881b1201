//! What the programs of a fleet tell monitoring: metrics for Prometheus. Each program has its own list of metrics; here is what they share.

pub mod endpoint;
mod names;
mod stages;

pub use names::Names;
pub use stages::{JobExemplar, JobStages, POOLS_MAX, STAGES};
