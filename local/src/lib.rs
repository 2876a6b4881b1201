//! A whole gpufleet on one machine: a private RabbitMQ and Postgres (and an S3 server) on free loopback ports, the ledger
//! and workers, in one state directory. `gpufleet local`, the demo, the tests and the benchmarks run on it.
//!
//! The services come from the installed packages, but never touch the system's own instances: they have their own data,
//! ports, passwords and Erlang port mapper. Everything works as root and as an ordinary user.
//!
//! There are two kinds of fleets:
//! - A [`LocalFleet`] runs as long as its owner. A [`guard::Guard`] stops every process when the owner ends, even by `kill
//!   -9`.
//! - A [`persistent`] fleet keeps running after the command that started it, until `down`.
//!
//! This crate knows neither AMQP nor SQL: it starts programs, waits until they are ready, and stops them.

pub mod blobs;
pub mod broker;
mod console;
pub mod error;
pub mod fleet;
pub mod guard;
pub mod images;
mod logs;
pub mod persistent;
mod ports;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod progress;
mod s3;
mod secret;
pub mod services;
pub mod setup;
pub mod state;

pub use blobs::{BlobEndpoint, BlobKind};
pub use broker::RabbitMq;
pub use error::LocalError;
pub use fleet::{Cuda, LocalFleet, LocalFleetBuilder, Worker};
pub use images::ImageStore;
pub use logs::{Log, logs};
pub use persistent::{FleetState, Status, UpOptions, differences, down, environment, running, status, up};
pub use postgres::Postgres;
pub use process::{Process, Signal};
pub use progress::{Lines, Progress, Silent};
pub use services::{Endpoints, Services};
pub use state::StateDir;
