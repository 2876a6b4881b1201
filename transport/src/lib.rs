//! RabbitMQ for gpufleet: connections that mend themselves, confirmed publishing, consuming, the topology, batched events; and the blob
//! store, for arrays that no message carries.
//!
//! This is the only crate that knows lapin, and how blobs are kept. It moves bodies and does not look into them; what they mean is
//! [`gpufleet_schema`]'s business. Every wait on the broker has a deadline of our own, because a frozen broker and a blocked
//! connection look alike to TCP: nothing comes, and nothing fails.

mod backoff;
mod blobs;
mod broker;
mod consumer;
mod delivery;
mod error;
mod events;
mod link;
mod message;
mod options;
mod order;
mod publisher;
mod topology;
mod url;

pub use backoff::Backoff;
pub use blobs::{BlobError, BlobStore, Pruned};
pub use broker::Broker;
pub use consumer::{Consumer, Incoming};
pub use delivery::{Acker, Death, Delivery, Settled};
pub use error::{ConnectError, DeclareError, PublishError, QueueError, SettleError};
pub use events::EventSink;
pub use link::State;
pub use message::{HeaderValue, Message, Properties};
pub use options::{Options, QueueKind, UnknownQueueKind};
pub use topology::QueueDepth;
pub use url::{BrokerUrl, InvalidBrokerUrl};

/// A directive for `tracing` filters. lapin logs returned messages with their whole bodies, and each error that is handled
/// here once more.
pub const LOG_DIRECTIVE: &str = "lapin=off";
