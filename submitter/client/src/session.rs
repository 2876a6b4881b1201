//! Sessions: a program on this machine uses the GPU of a worker.
//!
//! A session is a job without a kernel ([`Job::session`](crate::Job::session)). The worker that takes it holds device memory, and its offer
//! comes to the client's reply queue ([`SessionHandle`]). The client then connects to the worker by TLS ([`Lease`]). The program loads
//! gpufleet's driver library, which connects to a socket in a private folder ([`SessionFolder`]), and a [`Relay`] copies its bytes to the
//! worker and back. Driver calls never pass through the broker.

mod folder;
mod handle;
mod holders;
mod lease;
mod pinned;
mod relay;
mod route;

pub use folder::SessionFolder;
pub use handle::SessionHandle;
pub use lease::{Lease, LeaseEnd, LeaseEvent, Standing};
pub use relay::{Process, Rejected, Relay};
pub use route::{ProgramRoute, ReachError};

#[cfg(test)]
mod tests;
