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
    let waited = wait_unless(py, runtime, future, || Ok(false))?;
    Ok(waited.expect("nothing but the end of the future ends the wait"))
}

/// Like [`wait`], but drops the future and returns `None` once `is_over` says that its outcome is not wanted.
pub fn wait_unless<F>(
    py: Python<'_>,
    runtime: &Runtime,
    future: F,
    is_over: impl Fn() -> PyResult<bool>,
) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    loop {
        let step = py.detach(|| runtime.block_on(async { timeout(SIGNALS_EVERY, future.as_mut()).await }));
        match step {
            Ok(output) => return Ok(Some(output)),
            Err(_) => py.check_signals()?,
        }
        if is_over()? {
            return Ok(None);
        }
    }
}
