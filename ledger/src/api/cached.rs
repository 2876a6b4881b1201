//! A cached value. When it is too old, one caller computes it for all.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

pub(super) struct Cached<T> {
    fresh_for: Duration,
    value: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Cached<T> {
    pub(super) fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, value: Mutex::new(None) }
    }

    /// Returns the value, and computes it with `ask` if it is too old. Callers that arrive meanwhile wait for the
    /// result. If the computing caller is cancelled, the next one computes it.
    pub(super) async fn get(&self, ask: impl AsyncFnOnce() -> T) -> T {
        let mut value = self.value.lock().await;
        if let Some((at, value)) = &*value
            && at.elapsed() < self.fresh_for
        {
            return value.clone();
        }
        let answer = ask().await;
        *value = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_callers_ask_once_until_the_value_is_old() {
        let (cached, asked) = (Cached::new(Duration::from_secs(1)), AtomicU32::new(0));
        let ask = async || {
            tokio::task::yield_now().await;
            asked.fetch_add(1, Ordering::Relaxed)
        };
        assert_eq!(tokio::join!(cached.get(ask), cached.get(ask), cached.get(ask)), (0, 0, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((cached.get(ask).await, cached.get(ask).await), (1, 1));
    }
}
