//! How long to wait before the next attempt.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Exponential delays with jitter, from a tenth of a second to five seconds, so that a fleet does not reconnect all at once.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    attempt: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(5);

    /// The next delay: between half and all of the step, which doubles up to [`Self::MAX`].
    #[expect(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> Duration {
        let step = Self::FIRST.saturating_mul(1 << self.attempt.min(10)).min(Self::MAX);
        self.attempt = self.attempt.saturating_add(1);
        step.mul_f64(0.5 + 0.5 * fraction())
    }

    /// The number of delays so far.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// A random number in [0, 1). The standard library's per-instance hash keys are random enough for jitter.
fn fraction() -> f64 {
    let random = RandomState::new().hash_one(0u8) >> 40;
    random as f64 / f64::from(1u32 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_keep_their_jitter() {
        let mut backoff = Backoff::default();
        let mut step = Backoff::FIRST;
        for _ in 0..40 {
            let delay = backoff.next();
            assert!(delay >= step / 2 && delay <= step, "{delay:?} of {step:?}");
            step = (step * 2).min(Backoff::MAX);
        }
        backoff.reset();
        assert!(backoff.next() <= Backoff::FIRST);
    }

    #[test]
    fn fractions_differ_and_stay_below_one() {
        let fractions: Vec<f64> = (0..64).map(|_| fraction()).collect();
        assert!(fractions.iter().all(|f| (0.0..1.0).contains(f)));
        assert!(fractions.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
