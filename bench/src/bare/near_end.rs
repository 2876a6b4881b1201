//! The near end of a loop: publishes with confirms, and matches replies to requests by an id.
//!
//! It has two connections, like gpufleet's client, and each channel has one purpose.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::StreamExt as _;
use lapin::{BasicProperties, Channel, Connection, Consumer, message::Delivery, options::BasicAckOptions};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use super::{CLOSE_DEADLINE, confirming_channel, consume, publish};

#[derive(Debug)]
pub struct NearEnd {
    connections: [Connection; 2],
    publish: Channel,
    waiting: ReplySenders,
    replies: JoinHandle<()>,
}

/// A function that splits a delivery into replies, each with the id that its round trip waits for.
pub type Split = fn(&mut Delivery) -> Vec<(String, Vec<u8>)>;

type ReplySenders = Arc<Mutex<HashMap<String, oneshot::Sender<Vec<u8>>>>>;

/// The destination of a request.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
}

impl NearEnd {
    /// Opens a near end that publishes on the first connection, and consumes from `reply_queue` on the second.
    pub async fn open(
        connections: [Connection; 2],
        reply_queue: &str,
        prefetch: u16,
        split: Split,
    ) -> anyhow::Result<Self> {
        let publish = confirming_channel(&connections[0]).await?;
        let channel = connections[1].create_channel().await?;
        let deliveries = consume(&channel, reply_queue, prefetch).await?;
        let waiting = ReplySenders::default();
        let replies = tokio::spawn(hand_out(deliveries, waiting.clone(), split));
        Ok(Self { connections, publish, waiting, replies })
    }

    /// Publishes a request. Returns the reply with this `id`, and the duration of the round trip.
    pub async fn round_trip(
        &self,
        id: &str,
        route: Route<'_>,
        body: &[u8],
        properties: BasicProperties,
    ) -> anyhow::Result<(Duration, Vec<u8>)> {
        let started = Instant::now();
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().expect("nothing panics under this lock").insert(id.to_owned(), sender);
        publish(&self.publish, route.exchange, route.routing_key, body, properties).await?;
        let answer = reply.await.context("the replies ended")?;
        Ok((started.elapsed(), answer))
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.replies.abort();
        for connection in &self.connections {
            let closed = timeout(CLOSE_DEADLINE, connection.close(200, "done".into())).await;
            // A channel whose consumer has just ended may be closing by itself, which lapin reports as an error. Everything is measured by
            // now, and the connection ends with this process.
            let _ = closed.context("the broker did not confirm the end of a connection")?;
        }
        Ok(())
    }
}

/// Treats the whole delivery as one reply, with its correlation id.
pub fn one_reply(delivery: &mut Delivery) -> Vec<(String, Vec<u8>)> {
    let id = delivery.properties.correlation_id().as_ref().map(ToString::to_string).unwrap_or_default();
    vec![(id, std::mem::take(&mut delivery.data))]
}

/// Passes each reply to the round trip that waits for it. When the replies end, the waiting round trips fail.
async fn hand_out(mut deliveries: Consumer, waiting: ReplySenders, split: Split) {
    while let Some(Ok(mut delivery)) = deliveries.next().await {
        let replies = split(&mut delivery);
        let acked = delivery.ack(BasicAckOptions::default()).await;
        for (id, reply) in replies {
            let sender = waiting.lock().expect("nothing panics under this lock").remove(&id);
            if let Some(sender) = sender {
                // A run that passed its deadline no longer waits; the benchmark has failed then.
                drop(sender.send(reply));
            }
        }
        if !matches!(acked, Ok(true)) {
            break;
        }
    }
    waiting.lock().expect("nothing panics under this lock").clear();
}
