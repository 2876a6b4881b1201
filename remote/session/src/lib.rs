//! A session: runs the driver calls of one program, which is in another process, with the driver of this one.
//!
//! [`serve::serve`] talks to the program; [`session::Session`] runs its calls. Each thread of the program has a thread
//! here, so that the driver's state of a thread, such as its default stream and the mode of its captures, is the
//! program's.

mod busy;
mod callbacks;
pub mod counters;
mod facts;
mod functions;
mod native;
mod order;
pub mod serve;
mod session;
mod thread;

pub use counters::{Counters, Counts};
pub use native::{Native, NativeError};
pub use session::{Limits, Session};
