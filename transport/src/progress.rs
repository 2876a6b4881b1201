//! The progress of running jobs: publishing and consuming what may be lost, because it is old after a second.

mod consumer;
mod publisher;

pub use consumer::{ProgressBindings, ProgressConsumer};
pub use publisher::ProgressPublisher;
