//! Waits for futures without the GIL, so that other Python threads run and signals are handled.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use pyo3::{PyResult, Python};
use tokio::runtime::Runtime;

/// The time between two checks for a signal, and so the delay with which Ctrl-C ends a wait.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs a future to its end. If a signal handler raises, such as that of Ctrl-C, the future is dropped.
pub fn wait<F>(py: Python<'_>, runtime: &Runtime, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let waited = wait_unless(py, runtime, future, || Ok(false))?;
    Ok(waited.expect("nothing but the end of the future ends the wait"))
}

/// Runs a future to its end like [`wait`]. Once `is_over` returns true, because the outcome is no longer wanted, drops
/// the future and returns `None`.
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
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        let step = py.detach(|| {
            let _entered = runtime.enter();
            run_until(Instant::now() + SIGNALS_EVERY, future.as_mut(), &waker)
        });
        if step.is_some() {
            return Ok(step);
        }
        py.check_signals()?;
        if is_over()? {
            return Ok(None);
        }
    }
}

/// Runs a future in this thread until the deadline. Returns `None` if the future has not ended by then.
///
/// The thread itself wakes up at the deadline. A timer of the runtime would first wake another thread, for each call.
fn run_until<F: Future>(deadline: Instant, mut future: Pin<&mut F>, waker: &Waker) -> Option<F::Output> {
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
