//! The table of calls: one row for each function of the driver API.
//!
//! ```text
//! post 3020 cuMemsetD8_v2(address: Address, value: u8, count: usize) twin ptds;
//! ```
//!
//! A row has
//! - the class, which says how a program calls a driver in another process: the program waits for the answer of `ask`
//!   calls, of `wait` calls, which take as long as the work before them, and of `make` calls, which only create objects;
//!   it does not wait for `post` calls; `own` and `own_post` calls are sent by code written for them, `local` calls have
//!   no message of their own, and `refuse` calls are not supported there;
//! - the CUDA version that introduced the function, unless `cuGetProcAddress` does not find it;
//! - the symbol and the arguments; a row without arguments is not supported by the emulator either;
//! - after `twin`, the suffix of a second symbol for programs with a default stream per thread;
//! - after `old`, an earlier symbol of a function with the same arguments.
//!
//! The rows of a file are the argument of its macro's callback, which makes code of them. The callback's crate imports
//! the types that the rows name.

mod array;
mod array_copy;
mod capture;
mod context;
mod copy;
mod device;
mod error;
mod event;
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
#[cfg(test)]
mod tests;
mod texture;
mod texture_reference;
mod unsupported;
mod user_object;
mod virtual_memory;

/// Calls `$callback! { $with… area: rows… }` for the rows of each file.
#[macro_export]
macro_rules! every_row {
    ($callback:ident! $($with:tt)*) => {
        $crate::rows_of_array!($callback! $($with)* array:);
        $crate::rows_of_array_copy!($callback! $($with)* array_copy:);
        $crate::rows_of_capture!($callback! $($with)* capture:);
        $crate::rows_of_context!($callback! $($with)* context:);
        $crate::rows_of_copy!($callback! $($with)* copy:);
        $crate::rows_of_device!($callback! $($with)* device:);
        $crate::rows_of_error!($callback! $($with)* error:);
        $crate::rows_of_event!($callback! $($with)* event:);
        $crate::rows_of_fill!($callback! $($with)* fill:);
        $crate::rows_of_function!($callback! $($with)* function:);
        $crate::rows_of_graph!($callback! $($with)* graph:);
        $crate::rows_of_graph_exec!($callback! $($with)* graph_exec:);
        $crate::rows_of_graph_kernel!($callback! $($with)* graph_kernel:);
        $crate::rows_of_graph_node!($callback! $($with)* graph_node:);
        $crate::rows_of_launch!($callback! $($with)* launch:);
        $crate::rows_of_library!($callback! $($with)* library:);
        $crate::rows_of_link!($callback! $($with)* link:);
        $crate::rows_of_memory!($callback! $($with)* memory:);
        $crate::rows_of_module!($callback! $($with)* module:);
        $crate::rows_of_old!($callback! $($with)* old:);
        $crate::rows_of_pool!($callback! $($with)* pool:);
        $crate::rows_of_proc_address!($callback! $($with)* proc_address:);
        $crate::rows_of_staged_launch!($callback! $($with)* staged_launch:);
        $crate::rows_of_start!($callback! $($with)* start:);
        $crate::rows_of_stream!($callback! $($with)* stream:);
        $crate::rows_of_texture!($callback! $($with)* texture:);
        $crate::rows_of_texture_reference!($callback! $($with)* texture_reference:);
        $crate::rows_of_unsupported!($callback! $($with)* unsupported:);
        $crate::rows_of_user_object!($callback! $($with)* user_object:);
        $crate::rows_of_virtual_memory!($callback! $($with)* virtual_memory:);
    };
}

/// What a row says about a function's symbols.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub symbol: &'static str,
    /// The CUDA version that introduced the function, unless `cuGetProcAddress` does not find it.
    pub since: Option<i32>,
    /// The symbol for programs with a default stream per thread.
    pub twin: Option<&'static str>,
}

macro_rules! list {
    ($calls:ident $area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($argument:ident: $type:ty),*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $calls.extend([$(Call {
            symbol: stringify!($symbol),
            since: None$(.or(Some($since)))?,
            twin: None$(.or(Some(concat!(stringify!($symbol), "_", stringify!($suffix)))))?,
        }),+]);
    };
}

/// Returns all calls.
pub fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    crate::every_row!(list! calls);
    calls
}
