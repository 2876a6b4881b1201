//! The client of gpufleet: describe a GPU job, submit it from a machine without a GPU and await its outputs.
//!
//! ```no_run
//! use gpufleet::{Fleet, Job};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let fleet = Fleet::connect("amqp://guest:guest@localhost:5672/%2f").await?;
//! let job = Job::catalog("saxpy")
//!     .scalar("a", 2.0)
//!     .input("x", &[1.0_f32, 2.0, 3.0])
//!     .input("y", &[10.0_f32, 20.0, 30.0]);
//! let result = fleet.submit(job).await?.await?;
//! assert_eq!(result.output::<f32>("y")?, [12.0, 24.0, 36.0]);
//! fleet.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! One [`Fleet`] carries any number of jobs at once over a few connections. Every wait has a deadline. When `submit`
//! returns, the job is on the broker's disk; it runs even if the client has gone. Arrays that are too large for a
//! message go through a blob store: [`FleetBuilder::blobs`].

mod actions;
pub mod archive;
mod array;
mod array_file;
mod arrived;
mod attach;
mod builder;
#[cfg(feature = "ledger")]
mod chain;
mod claims;
mod client;
mod connection;
mod dead;
mod destination;
mod element;
mod error;
mod follower;
mod handle;
mod inbox;
mod job;
#[cfg(feature = "ledger")]
mod kept;
mod offers;
mod orders;
mod output;
mod packing;
mod pending_result;
mod progress;
#[cfg(feature = "ledger")]
mod recorded;
mod result;
mod run_times;
pub mod session;
mod spans;
mod stored;
mod submission;
mod unread;
mod unreported;

pub use array::{Array, ArrayError};
pub use array_file::ArrayFile;
pub use attach::AttachError;
pub use builder::FleetBuilder;
#[cfg(feature = "ledger")]
pub use chain::InputError;
pub use client::{Fleet, PoolDepth};
pub use dead::{DeadError, DeadLetter, DeadLetters, LETTERS_MAX, REPLAY_LABEL, Replayed};
pub use element::Element;
pub use error::{ConnectError, InvalidJob, PoolError, SubmitError};
pub use follower::{Ended, Follower};
pub use gpufleet_blobs::{BlobBytes, BlobError, BlobLocation, InvalidBlobLocation};
/// The types of the wire format, for programs that read replies or write tasks themselves.
pub use gpufleet_schema as schema;
#[cfg(feature = "traces")]
pub use gpufleet_telemetry::{Traces, TracesError};
/// Why progress can't be received.
pub use gpufleet_transport::ProgressError;
pub use half;
pub use handle::JobHandle;
pub use inbox::Counts;
pub use job::{CheckedJob, Job};
#[cfg(feature = "ledger")]
pub use kept::{KeptOutput, KeptResult, ResultError};
pub use orders::CancelScope;
pub use output::UnreadOutput;
pub use progress::ProgressUpdates;
pub use result::{FailedJob, JobError, JobResult, OutputError};
pub use stored::{StoreError, StoredArray};

/// Compiles the Rust examples of the README and of the guides.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/src/clients/rust.md")]
#[doc = include_str!("../../../docs/src/guides/host-programs.md")]
#[doc = include_str!("../../../docs/src/guides/many-jobs.md")]
pub struct Readme;
