//! Waiting between attempts at something that is away.

use std::time::Duration;

/// Waits that grow. There are few recorders, so that they need not be kept from knocking all at once.
#[derive(Debug, Clone, Default)]
pub struct Patience {
    tries: u32,
}

impl Patience {
    /// A restarted Postgres answers within a second.
    const FIRST: Duration = Duration::from_millis(100);
    /// A person who has repaired something looks at the log for a few seconds.
    const MAX: Duration = Duration::from_secs(5);

    /// Waits before the next attempt. Cancelled, it counts as waited.
    pub async fn wait(&mut self) {
        let wait = self.next();
        tokio::time::sleep(wait).await;
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }

    fn next(&mut self) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.tries.min(10)).min(Self::MAX);
        self.tries = self.tries.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let mut patience = Patience::default();
        let waits: Vec<u128> = (0..8).map(|_| patience.next().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        for _ in 0..100 {
            assert_eq!(patience.next(), Patience::MAX);
        }
    }
}
