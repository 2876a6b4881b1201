//! The extension module `gpufleet._core`: the client of gpufleet for the Python code of the package.
//!
//! It holds no policy. Python makes a [`job::Job`] of a task, hands it to a [`client::Client`] with a token, and one
//! Python thread takes whatever has ended from [`client::Client::next`]. So each batch of replies costs one wake-up and
//! no tokio thread ever waits for the GIL. A call that waits for its one job runs in the caller's thread: see [`call`].
//! Arguments of catalog kernels that need no conversion are read here, which takes less time than in Python: see
//! [`arguments`].
//!
//! A client owns its runtime. In a forked child, whose threads are gone, it is leaked and never used.

mod arguments;
mod arrays;
mod call;
mod catalog;
mod client;
mod completions;
mod connecting;
mod ended;
mod errors;
mod job;
mod sending;
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
        ended::Report,
        job::{Job, shapes},
    };

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // A child that another thread forks while this initialises would wait for it for ever.
        gpufleet_kernels::catalog();
        Ok(())
    }
}
