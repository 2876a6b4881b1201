//! The C interface: every `cu*` symbol that cudarc 0.19.10 declares for CUDA 12.8, the functions' first names, and a
//! few functions of our own in [`extra`].
//!
//! [`table`] exports a function for each row of the table of calls in `gpufleet_surface`. The other files contain the
//! bodies, one file for each file of rows. A row without a body does not compile, nor does a body with other arguments
//! than its row. Panics are caught at this boundary.

#![expect(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "bodies have the names and the arguments of their C functions"
)]

mod array;
mod array_copy;
mod boundary;
mod capture;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod extra;
mod fill;
mod function;
mod graph;
mod graph_exec;
mod graph_kernel;
mod graph_node;
mod launch;
mod library;
mod link;
mod memory;
mod module;
mod old;
mod pool;
mod proc_address;
mod staged_launch;
mod start;
mod stream;
mod table;
mod texture;
mod texture_reference;
mod user_object;
mod virtual_memory;
