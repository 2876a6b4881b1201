//! Takes messages from a queue.

use gpufleet_transport::{Consumer, Delivery, Incoming};
use tokio::time::timeout;

use crate::WAIT;

/// Returns the next message of the queue. Fails if none arrives.
pub async fn delivered(consumer: &mut Consumer) -> Delivery {
    let delivery = async {
        loop {
            if let Incoming::Delivery(delivery) = consumer.next().await.expect("the consumer runs") {
                return delivery;
            }
        }
    };
    timeout(WAIT, delivery).await.unwrap_or_else(|_| panic!("not within {WAIT:?}: a message"))
}
