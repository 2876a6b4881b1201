//! How many consumers queues have, as the broker counts them.
//!
//! Each question takes a channel, and a list can have a thousand jobs that want to know the same: there is one question at a time, and its
//! answer is for all who came before it was asked.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::timeout};

/// Where the broker does not answer, a job's hops alone decide.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// The last answers, by queue.
#[derive(Debug, Default)]
pub(super) struct Census(Mutex<HashMap<String, Answer>>);

#[derive(Debug, Clone, Copy)]
struct Answer {
    asked: Instant,
    consumers: Option<u32>,
}

impl Census {
    /// What `ask` says, or said to another who asked about this queue after this one came here.
    pub(super) async fn consumers(&self, queue: &str, ask: impl Future<Output = Option<u32>>) -> Option<u32> {
        let came = Instant::now();
        let mut answers = self.0.lock().await;
        if let Some(answer) = answers.get(queue).filter(|answer| answer.asked >= came) {
            return answer.consumers;
        }
        let asked = Instant::now();
        let consumers = timeout(TOLD_WITHIN, ask).await.ok().flatten();
        // Queues are named by messages: what nobody waits for any more goes.
        answers.retain(|_, answer| answer.asked.elapsed() < TOLD_WITHIN);
        answers.insert(queue.to_owned(), Answer { asked, consumers });
        consumers
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn many_who_want_to_know_ask_one_question_and_nobody_hears_an_answer_of_before() {
        let (census, asked) = (Census::default(), AtomicU32::new(0));
        let ask = async || {
            yield_now().await;
            Some(asked.fetch_add(1, Ordering::SeqCst))
        };
        let first = join_all((0..1000).map(|_| census.consumers("a", ask()))).await;
        assert!(asked.load(Ordering::SeqCst) <= 2, "one, and one for those who came while it was asked");
        assert!(first.iter().all(Option::is_some));
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(census.consumers("a", ask()).await, Some(before), "it came after the last question");
        assert_eq!(census.consumers("b", async { None }).await, None);
    }
}
