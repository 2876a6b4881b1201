//! Tests gpufleet's guarantees on a private RabbitMQ cluster of three nodes: a node is killed or paused, two of three are down, all restart
//! in turn. `cargo xtask test-cluster` runs them; `cargo xtask test` omits them, because they take minutes.
//!
//! The tests take turns on one cluster, because each of them breaks it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod flow;
mod minority;
mod node_killed;
mod node_paused;
mod replication;
mod rolling_restart;
