//! Counts the unclaimed replies that the broker dropped because they were too old, or because their queue was full.
//!
//! The broker dead-letters these replies to a small queue, and the recorder counts them there. The broker's own metric
//! `rabbitmq_global_messages_dead_lettered_maxlen_total` also counts the drops of all other classic queues.

use std::time::Duration;

use gpufleet_schema::topology::{DROPPED_QUEUE, TYPE_OFFER, UNCLAIMED_BYTES_MAX, UNCLAIMED_QUEUE};
use gpufleet_transport::{Broker, Delivery, Incoming};
use tokio::time::Instant;
use tracing::{info, warn};

/// The prefetch: enough that the broker sends one reply while another is counted.
const PREFETCH: u16 = 4;
/// The minimum time between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// The broker's reason for a message that it dropped because the queue was full.
const FULL: &str = "maxlen";

/// The replies dropped since this process started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Dropped {
    full: u64,
    full_bytes: u64,
    expired: u64,
}

/// Counts dropped replies until the broker is closed. If cancelled, replies that are not counted yet stay in their
/// queue.
pub async fn count_dropped_replies(broker: Broker) {
    // Only the size of a reply matters, so its body is not read.
    let mut consumer = broker.consume_bounded(DROPPED_QUEUE.to_owned(), PREFETCH, |_exchange| 0);
    let (mut dropped, mut logged) = (Dropped::default(), Dropped::default());
    let mut log_at = None;
    loop {
        tokio::select! {
            incoming = consumer.next() => match incoming {
                Some(Incoming::Delivery(delivery)) => {
                    dropped.add(&delivery);
                    // If the connection has broken, the broker redelivers the reply, and it is counted twice.
                    drop(delivery.ack().await);
                    log_at.get_or_insert_with(Instant::now);
                }
                Some(Incoming::Interrupted { .. }) => {}
                None => return,
            },
            () = until(log_at) => {
                if dropped == logged {
                    log_at = None;
                } else {
                    dropped.log(logged);
                    logged = dropped;
                    log_at = Some(Instant::now() + LOG_EVERY);
                }
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Dropped {
    /// Counts a reply. An offer of a session expires when nothing is lost with it.
    fn add(&mut self, delivery: &Delivery) {
        if delivery.properties.kind.as_deref() == Some(TYPE_OFFER) {
            return;
        }
        let deaths = delivery.deaths();
        let death = deaths.iter().find(|death| death.queue == UNCLAIMED_QUEUE);
        if death.is_some_and(|death| death.reason == FULL) {
            self.full += 1;
            self.full_bytes += delivery.body_bytes as u64;
        } else {
            self.expired += 1;
        }
    }

    fn log(self, logged: Self) {
        let Self { full, full_bytes, expired } = self;
        if full > logged.full {
            warn!(
                replies_total = full,
                bytes_total = full_bytes,
                bytes_max = UNCLAIMED_BYTES_MAX,
                "dropped unclaimed replies because their queue is full: clients leave before their large outputs arrive; let them use the blob store"
            );
        }
        if expired > logged.expired {
            info!(replies_total = expired, "unclaimed replies expired");
        }
    }
}
