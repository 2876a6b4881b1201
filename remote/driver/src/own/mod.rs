//! Functions that the library answers itself, or that send something other than their arguments. Each file has the
//! functions of one file of rows.

#![expect(non_snake_case, clippy::too_many_arguments, reason = "functions have the names and arguments of their rows")]

pub(crate) mod array_copy;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod function;
pub(crate) mod graph_exec;
pub(crate) mod graph_kernel;
pub(crate) mod graph_node;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod old;
pub(crate) mod pool;
pub(crate) mod proc_address;
pub(crate) mod staged_launch;
pub(crate) mod start;
