//! Monitoring of a fleet's programs: metrics for Prometheus, and traces of jobs over OTLP. Each program has its own list of metrics; this
//! crate has what they share. It is the only crate that knows OpenTelemetry.

#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod stages;
#[cfg(feature = "traces")]
mod traces;

#[cfg(feature = "metrics")]
pub use names::Names;
#[cfg(feature = "metrics")]
pub use stages::{JobExemplar, JobStages, POOLS_MAX, STAGES};
#[cfg(feature = "traces")]
pub use traces::{AttemptSpan, Submit, Traces, TracesError};
