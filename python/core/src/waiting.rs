//! Waits for a future without the GIL, so that other Python threads run and signals are handled.

use std::{pin::pin, time::Duration};

use pyo3::{PyResult, Python};
use tokio::{runtime::Runtime, time::timeout};

/// The time between looks for a signal, after which Ctrl-C ends a wait.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs a future to its end. A signal handler that raises, such as that of Ctrl-C, drops the future.
pub fn wait<F>(py: Python<'_>, runtime: &Runtime, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    loop {
        let step = py.detach(|| runtime.block_on(async { timeout(SIGNALS_EVERY, future.as_mut()).await }));
        match step {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}
