//! The extension module `gpufleet._core`: gpufleet's client for the Python code of the package.
//!
//! It contains no policy. Python makes a [`job::Job`] of a task and passes it to a [`client::Client`] with a token. One
//! Python thread takes whatever has ended from [`client::Client::next`]. So each batch of replies costs one wake-up,
//! and no tokio thread ever waits for the GIL. A call that waits for its one job runs in the caller's thread: see
//! [`call`]. Arguments of catalog kernels that need no conversion are read in Rust, which is faster than in Python: see
//! [`arguments`].
//!
//! A client owns its runtime. A forked child, in which the runtime's threads do not exist, leaks the client and never
//! uses it.

mod arguments;
mod arrays;
mod attending;
mod call;
mod catalog;
mod client;
mod completions;
mod connecting;
mod declaration;
mod ended;
mod errors;
mod files;
mod job;
mod progress;
mod sending;
mod session;
mod task;
mod waiting;

#[pyo3::pymodule]
mod _core {
    use pyo3::{Bound, PyResult, types::PyModule};

    #[pymodule_export]
    use crate::{
        arguments::{Arguments, Parameters},
        arrays::Bytes,
        catalog::{failure_codes, kernels},
        client::Client,
        declaration::{c_kernels, signature},
        ended::Report,
        files::unpack,
        job::{Job, shapes},
        session::Session,
    };

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Initialized here, because a child that is forked while another thread initializes it would wait for it
        // forever.
        gpufleet_kernels::catalog();
        Ok(())
    }
}
