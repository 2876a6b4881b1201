//! RabbitMQ for gpufleet: connections that reconnect, confirmed publishing, group commit, consuming, the topology, events.
//!
//! This is the only crate that knows lapin. It moves message bodies without reading them; their
//! meaning is defined in [`gpufleet_schema`]. Every wait on the broker has a deadline, because a frozen broker and a blocked
//! connection look alike to TCP: no data arrives and no call fails.

mod backoff;
mod broker;
mod consumer;
mod delivery;
mod error;
mod events;
mod group_commit;
mod link;
mod message;
mod options;
mod order;
mod progress;
mod publisher;
mod rights;
mod topology;
mod url;
mod urls;

pub use backoff::Backoff;
pub use broker::Broker;
pub use consumer::{BodyBound, Consumer, Incoming, Subscription};
pub use delivery::{Acker, Death, Delivery, Settled};
pub use error::{ConnectError, DeclareError, NodeFailure, ProgressError, PublishError, QueueError, SettleError};
pub use events::EventSink;
pub use group_commit::{Group, GroupCommit, Turn};
pub use link::{Release, State};
pub use message::{HeaderValue, Message, Properties};
pub use options::{Options, ReplyQueue};
pub use progress::{ProgressBindings, ProgressConsumer, ProgressPublisher};
pub use topology::{MoreQueues, QueueDepth};
pub use url::{BrokerUrl, InvalidBrokerUrl};
pub use urls::BrokerUrls;

/// A directive for `tracing` filters that silences lapin, which logs returned messages with their whole bodies and logs each error handled
/// here a second time.
pub const LOG_DIRECTIVE: &str = "lapin=off";

/// Sets the TLS provider of the process, which HTTP clients use. ring is the only one that gpufleet links.
pub fn install_tls() {
    // An error means that there is one already.
    drop(rustls::crypto::ring::default_provider().install_default());
}
