//! CUDA, in three layers: cudarc's raw bindings and thin results below, and here the owners whose lifetimes carry the rules.
//!
//! This runs in an executor child and nowhere else. A context that has seen a sticky error is never cleaned up: the process says what
//! happened and exits ([`fault`]).

pub(super) mod arena;
mod contents;
pub(super) mod device;
pub(super) mod error;
pub(super) mod fault;
pub(super) mod geometry;
pub(super) mod stream;
pub(super) mod library;
pub(super) mod memory;
pub(super) mod module;
pub(super) mod pinned;
mod preparation;
mod prepared;
pub(super) mod printing;
pub(super) mod program;
mod together;
pub(super) mod waits;
