//! A `libcuda` whose device is in another process: a program that loads it calls the driver of a session.
//!
//! It runs inside programs that it does not know, so it depends on the standard library and libc alone, runs nothing
//! when the program ends, and lets no panic out.

mod boundary;
mod callbacks;
mod contexts;
mod exports;
mod functions;
mod host_memory;
mod link;
mod messages;
mod names;
mod own;
mod rows;
mod session;
mod threads;
mod volumes;
