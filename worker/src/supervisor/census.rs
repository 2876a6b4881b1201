//! A cache of queue depths: the numbers of messages and consumers of a queue, according to the broker.
//!
//! Each query takes a channel, and a thousand jobs may need the same answer. So there is one query at a time, and an answer is reused for a
//! second. A job that is forwarded by an outdated answer waits in the class queue until a worker takes it out again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use gpufleet_transport::QueueDepth;
use tokio::{sync::Mutex, time::timeout};

/// Time limit for the broker's answer; after it, the queue counts as unknown.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const GOOD_FOR: Duration = Duration::from_secs(1);

/// The last answers, by queue.
#[derive(Debug, Default)]
pub(super) struct Census(Mutex<HashMap<String, Answer>>);

#[derive(Debug, Clone, Copy)]
struct Answer {
    asked: Instant,
    depth: Option<QueueDepth>,
}

impl Census {
    /// Returns the last answer about this queue if it is fresh, or else queries the broker with `ask`.
    pub(super) async fn depth(&self, queue: &str, ask: impl Future<Output = Option<QueueDepth>>) -> Option<QueueDepth> {
        let mut answers = self.0.lock().await;
        answers.retain(|_, answer| answer.asked.elapsed() < GOOD_FOR);
        if let Some(answer) = answers.get(queue) {
            return answer.depth;
        }
        let asked = Instant::now();
        let depth = timeout(ANSWERED_WITHIN, ask).await.ok().flatten();
        answers.insert(queue.to_owned(), Answer { asked, depth });
        depth
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn many_who_want_to_know_ask_one_question() {
        let (census, asked) = (Census::default(), AtomicU32::new(0));
        let ask = async || {
            yield_now().await;
            Some(QueueDepth { messages: 0, consumers: asked.fetch_add(1, Ordering::SeqCst) })
        };
        let answers = join_all((0..1000).map(|_| census.depth("a", ask()))).await;
        // It is more than one if the machine is so busy that an answer expires.
        assert!(asked.load(Ordering::SeqCst) < 100);
        assert!(answers.iter().all(Option::is_some));
        assert_eq!(census.depth("b", async { None }).await, None);
    }
}
