//! CUDA in three layers: cudarc's raw bindings, cudarc's thin wrappers with results, and here the safe owners, whose lifetimes enforce the
//! driver's rules.
//!
//! This code runs only in an executor child. A context with a sticky error is never cleaned up: the process reports the fault and exits
//! ([`fault`]).

pub(super) mod arena;
mod buffer;
mod checked_launch;
pub(super) mod common;
mod contents;
pub(super) mod copier;
pub(super) mod device;
pub(super) mod ending;
pub(super) mod error;
pub(super) mod fault;
pub(super) mod geometry;
pub(super) mod guard;
mod job_inputs;
mod job_outputs;
mod launching;
pub(crate) mod library;
pub(super) mod memory;
pub(super) mod module;
pub(super) mod pinned;
mod preparation;
pub(super) mod printing;
pub(super) mod program;
pub(super) mod progress;
mod residents;
pub(super) mod running;
pub(super) mod scopes;
pub(super) mod stream;
mod together;
pub(super) mod trains;
pub(super) mod transfers;
pub(super) mod upstream;
pub(super) mod waits;
pub(super) mod work;
