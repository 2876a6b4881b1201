//! The worker: consumes jobs from RabbitMQ, runs them on a GPU through cudarc, and replies.
//!
//! One binary has several roles. The supervisor uses AMQP and loads none of NVIDIA's libraries. Each executor child owns one device, and
//! its death leaves the others running. An open session has a gate, which talks to its client, and an engine, which uses the device. A
//! host program has a guard, and an init in namespaces of its own; in a container it also has a launcher, which runs podman. A short-lived
//! compiler child runs NVRTC, and two more children list the devices and read their sensors. Users run the binary to test a device
//! (`selftest`) or to compile a file as a worker would (`compile`).

mod affinity;
mod blobs;
pub mod command;
pub mod compiler;
pub mod config;
mod dispatcher;
pub mod disposition;
pub mod executor;
pub mod exit;
mod failpoint;
pub mod forwarding;
pub mod inventory;
pub mod ipc;
mod landlock;
mod metrics;
mod network;
pub mod nvml;
mod own_executable;
pub mod policy;
pub mod privileges;
pub mod program;
pub mod quarantine;
pub mod scheduler;
pub mod selftest;
pub mod session;
mod shared_state;
pub mod supervisor;
pub mod telemetry;
