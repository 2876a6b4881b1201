//! What the supervisor and an executor child say to each other, and how it travels.
//!
//! Control goes over one Unix stream socket as length-prefixed frames ([`frame`], [`message`]). Bulk goes through shared memory:
//! the supervisor makes memory files ([`segment`]), hands out slots of them to jobs ([`slab`]) and passes each file's descriptor
//! along with the frame that names it. The executor maps and pins a segment once, so a job's bytes are copied once between the
//! supervisor's socket buffer and the device.
//!
//! The supervisor owns every id: jobs, programs, segments. Frames arrive in the order in which they were sent, so a program or
//! segment is always known before the first job that uses it. Either side treats what the other says as data to check: a frame that
//! makes no sense ends the executor, not the supervisor.

pub mod frame;
pub mod message;
pub mod segment;
pub mod slab;

pub use message::{DeviceInfo, FromExecutor, ToExecutor};
