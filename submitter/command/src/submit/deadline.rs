//! The time that `--timeout` gives a command.

use std::{fmt, time::Duration};

use tokio::time::{Instant, sleep_until};

/// The end of the time that a command may take.
#[derive(Debug)]
pub struct Deadline {
    timeout: Duration,
    /// `None` if the end is beyond the clock's range.
    at: Option<Instant>,
}

impl Deadline {
    pub fn after(timeout: Duration) -> Self {
        Self { timeout, at: Instant::now().checked_add(timeout) }
    }

    /// The time that the command got.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The time that is left of it.
    pub fn left(&self) -> Duration {
        self.at.map_or(self.timeout, |at| at.saturating_duration_since(Instant::now()))
    }

    pub fn has_passed(&self) -> bool {
        self.left().is_zero()
    }

    /// Resolves at the deadline. Cancelling the future is harmless.
    pub async fn passed(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.timeout).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_deadline_passes_after_its_timeout() {
        let passed = Deadline::after(Duration::ZERO);
        passed.passed().await;
        assert!(passed.has_passed());
        let open = Deadline::after(Duration::from_secs(90));
        assert!(!open.has_passed() && open.passed().now_or_never().is_none());
        assert!(open.left() > Duration::from_secs(60) && open.left() <= open.timeout());
        assert_eq!(open.to_string(), "1m 30s");
    }

    #[tokio::test]
    async fn a_deadline_beyond_the_clocks_range_never_passes() {
        let deadline = Deadline::after(Duration::MAX);
        assert!(!deadline.has_passed() && deadline.passed().now_or_never().is_none());
    }
}
