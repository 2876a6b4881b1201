//! The harness of the scenarios: a fleet for each scenario, jobs with known behaviour, waiting for conditions, and the
//! history checker.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

mod background;
pub mod busy;
mod cluster;
mod collector;
mod command;
mod dead;
mod delivery;
mod exclusive;
mod ground;
pub mod history;
mod http_service;
pub mod kernels;
mod ledger;
mod memory;
mod metrics;
mod node;
mod npy;
mod poll;
mod producer;
mod proxy;
mod recorder;
mod tls;
mod witness;

use std::time::Duration;

pub use cluster::NODES;
pub use collector::{CollectedSpan, Collector};
pub use command::{Ended, gpufleet_command, gpufleet_peak_memory, gpufleet_process, run_python};
pub use dead::{DeadLetter, dead_letters};
pub use delivery::delivered;
pub use ground::{Ground, TestWorker, children, command_line, is_alive, signal};
pub use http_service::HttpService;
pub use memory::memory_bytes;
pub use metrics::{METRICS, Metrics};
pub use node::write_queue_names;
pub use npy::npy;
pub use poll::{poll_until, poll_within};
pub use producer::{ConfirmedJob, Producer};
pub use proxy::{Proxy, Silence};
pub use tls::TlsProxy;

/// The limit of every wait in a scenario. On two busy cores, a second of work can take far longer.
pub const WAIT: Duration = Duration::from_secs(90);
