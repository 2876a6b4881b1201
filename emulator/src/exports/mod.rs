//! The C interface: every `cu*` symbol that cudarc 0.19.10 declares for CUDA 12.8, the functions' first names in
//! [`old`], and a few functions of our own in [`extra`].
//!
//! `exports!` defines a function and adds it to its file's list; [`unsupported`] answers "not supported" for all other
//! functions. A symbol in both would not link, and one in neither fails the integration test that looks up each name.
//! Panics are caught at this boundary.

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
mod symbol;
mod texture;
mod texture_reference;
mod unsupported;
mod user_object;
mod virtual_memory;

use symbol::{Symbol, exports};

/// Returns all exported driver functions.
fn symbols() -> Vec<Symbol> {
    let lists = [
        array::symbols(),
        array_copy::symbols(),
        capture::symbols(),
        context::symbols(),
        copy::symbols(),
        device::symbols(),
        error::symbols(),
        event::symbols(),
        fill::symbols(),
        function::symbols(),
        graph::symbols(),
        graph_exec::symbols(),
        graph_kernel::symbols(),
        graph_node::symbols(),
        launch::symbols(),
        library::symbols(),
        link::symbols(),
        memory::symbols(),
        module::symbols(),
        pool::symbols(),
        proc_address::symbols(),
        staged_launch::symbols(),
        start::symbols(),
        stream::symbols(),
        texture::symbols(),
        texture_reference::symbols(),
        unsupported::symbols(),
        user_object::symbols(),
        virtual_memory::symbols(),
    ];
    lists.concat()
}
