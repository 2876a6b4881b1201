//! Reads the dead-letter queue.

use gpufleet_schema::topology::{DEAD_QUEUE, HEADER_ORIGIN, HEADER_REASON};

use crate::{Ground, delivered};

/// A dead-lettered message.
#[derive(Debug)]
pub struct DeadLetter {
    pub body: Vec<u8>,
    pub reason: String,
    /// The original routing key.
    pub origin: String,
}

impl DeadLetter {
    pub fn body_contains(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Takes this many messages out of the dead-letter queue. Fails if there are fewer.
pub async fn dead_letters(ground: &Ground, count: usize) -> Vec<DeadLetter> {
    let broker = ground.broker().await;
    let mut consumer = broker.consume(DEAD_QUEUE.to_owned(), 100);
    let mut letters = Vec::new();
    while letters.len() < count {
        let delivery = delivered(&mut consumer).await;
        let header = |name| delivery.properties.header_text(name).unwrap_or_default().to_owned();
        letters.push(DeadLetter {
            reason: header(HEADER_REASON),
            origin: header(HEADER_ORIGIN),
            body: delivery.body.clone(),
        });
        delivery.ack().await.unwrap();
    }
    broker.close().await;
    letters
}
