//! The worker: takes jobs from RabbitMQ, runs them on a GPU through cudarc, and answers.
//!
//! One binary plays several roles. The supervisor speaks AMQP and loads none of NVIDIA's libraries; an executor child owns one device and
//! may die alone; a compiler child runs NVRTC and is gone a moment later; two more children list the devices and read how they fare. A
//! person calls it to check a device (`selftest`) or to compile a file as a worker would (`compile`).

mod blobs;
pub mod command;
pub mod compiler;
pub mod config;
pub mod disposition;
pub mod executor;
pub mod exit;
mod failpoint;
pub mod forwarding;
pub mod inventory;
pub mod ipc;
mod metrics;
pub mod nvml;
mod own_executable;
pub mod policy;
pub mod privileges;
pub mod quarantine;
pub mod scheduler;
pub mod selftest;
mod shared_state;
pub mod supervisor;
pub mod telemetry;
