//! Reports the steps of a long command, as a bar on a terminal or as lines in a log.

use std::time::{Duration, Instant};

/// Receives each step. Steps do not overlap.
pub trait Progress: Send + Sync {
    fn begin(&self, what: &str);
    /// A line about the current step.
    fn detail(&self, line: &str);
    fn end(&self, what: &str, took: Duration, succeeded: bool);
}

impl dyn Progress + '_ {
    /// Runs one step and reports it.
    pub fn step<T, E>(&self, what: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let started = Instant::now();
        self.begin(what);
        let result = work();
        self.end(what, started.elapsed(), result.is_ok());
        result
    }

    /// Runs one asynchronous step and reports it. When cancelled, the step's end is not reported.
    pub async fn step_async<T, E>(&self, what: &str, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let started = Instant::now();
        self.begin(what);
        let result = work.await;
        self.end(what, started.elapsed(), result.is_ok());
        result
    }
}

/// Reports nothing, for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str) {}
    fn detail(&self, _line: &str) {}
    fn end(&self, _what: &str, _took: Duration, _succeeded: bool) {}
}

/// Prints a line on stderr when a step begins and when it ends, for logs and for commands without a terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines;

impl Progress for Lines {
    fn begin(&self, what: &str) {
        eprintln!("{what} …");
    }

    fn detail(&self, line: &str) {
        eprintln!("  {line}");
    }

    fn end(&self, what: &str, took: Duration, succeeded: bool) {
        let outcome = if succeeded { "done" } else { "failed" };
        eprintln!("{what}: {outcome} in {:.1} s", took.as_secs_f64());
    }
}
