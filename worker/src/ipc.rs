//! The protocol between the supervisor and an executor child.
//!
//! Control messages use one Unix stream socket with length-prefixed frames ([`frame`], [`message`]). Bulk data uses shared memory: the
//! supervisor creates memory files ([`segment`]), assigns chunks of them to jobs ([`slab`]) and sends each file's descriptor with the frame
//! that names it. The executor maps and pins a segment once. So a job's bytes are copied only once between the supervisor's receive buffer
//! and the device.
//!
//! The supervisor assigns all ids: jobs, programs, segments. Frames arrive in the order in which they were sent, so a program or segment is
//! always known before the first job that uses it. Each side checks the messages of the other: an invalid frame ends the executor, not the
//! supervisor.

pub mod frame;
pub mod message;
pub mod segment;
pub mod slab;

pub use message::{DeviceInfo, FromExecutor, ToExecutor};
