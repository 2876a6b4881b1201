//! The delay before the next attempt.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

/// Exponential delays with jitter, from a tenth of a second to five seconds, so that a fleet does not reconnect all at once.
#[derive(Debug)]
pub struct Backoff {
    delays: <ExponentialBuilder as backon::BackoffBuilder>::Backoff,
    attempt: u32,
}

impl Backoff {
    /// The delays for a future that [`backon::Retryable`] repeats.
    pub const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
        // Jitter at most doubles a delay, so these are half of the longest delays.
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_millis(2500))
        .without_max_times()
        .with_jitter();

    /// The next delay: between half and all of the step, which doubles from 0.1 s to 5 s.
    #[expect(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        self.delays.next().expect("the number of delays is unlimited")
    }

    /// Sleeps for the next delay. If cancelled, the delay counts as used.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// The number of delays so far.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { delays: Self::DELAYS.build(), attempt: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_keep_their_jitter() {
        let mut backoff = Backoff::default();
        let mut step = Duration::from_millis(100);
        for attempt in 1..=40 {
            let delay = backoff.next();
            assert!(delay >= step / 2 && delay <= step, "{delay:?} of {step:?}");
            assert_eq!(backoff.attempt(), attempt);
            step = (step * 2).min(Duration::from_secs(5));
        }
    }

    #[test]
    fn two_backoffs_have_different_delays() {
        let delays = || -> Vec<Duration> {
            let mut backoff = Backoff::default();
            (0..16).map(|_| backoff.next()).collect()
        };
        assert_ne!(delays(), delays());
    }
}
