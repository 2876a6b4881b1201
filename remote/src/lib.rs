//! Calls of the CUDA driver API as messages between a program and a driver in another process.
//!
//! The program's library encodes the arguments of a call ([`argument::Argument::send`]); the session decodes them, calls
//! the driver and encodes the results; the library writes them where the program wants them. The types of the arguments
//! know how. Nothing here reads or writes a socket.

pub mod argument;
pub mod call_header;
pub mod calls;
pub mod codec;
pub mod frame;
pub mod greeting;
pub mod host_call;
pub mod jit;
pub mod kinds;
pub mod objects;
pub mod own;
pub mod roles;
pub mod scope;
pub mod structs;
pub mod value;
pub mod volume;
