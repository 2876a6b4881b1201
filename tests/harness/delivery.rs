//! Takes messages from a queue.

use gpufleet_transport::{Consumer, Delivery, Incoming};
use tokio::time::timeout;

use crate::WAIT;

/// The next message of the queue; fails if none comes.
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
