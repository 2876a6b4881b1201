//! A producer without gpufleet's client library: lapin, one task in each message, confirms, and a reply queue of its own.
//!
//! It stands for a program in another language. Its jobs never share messages, but it can read lists of replies, so the worker's replies
//! do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet::schema::{
    AttemptState, ClientName, Encoding, JobId, OneOrMany, OutputData, PoolName, Priority,
    topology::{self, REPLIES, TASKS, reply_queue, task_key},
};
use lapin::{
    BasicProperties, Channel,
    message::Delivery,
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    PERSISTENT, connect_twice,
    near_end::{NearEnd, Route},
};
use crate::{saxpy, stats::Run};

/// The time for which the reply queue outlives the producer, in milliseconds.
const REPLY_QUEUE_EXPIRES_MS: i64 = 600_000;

#[derive(Debug)]
pub struct ForeignProducer {
    near_end: NearEnd,
    client: ClientName,
}

impl ForeignProducer {
    pub async fn connect(amqp_url: &str, in_flight_max: u16) -> anyhow::Result<Self> {
        let connections = connect_twice(amqp_url, "foreign producer").await?;
        let client: ClientName = "bench-foreign".parse().expect("the constant is a client's name");
        let channel = connections[1].create_channel().await?;
        declare_replies(&channel, &client).await?;
        let near_end = NearEnd::open(connections, &reply_queue(&client), in_flight_max, replies).await?;
        Ok(Self { near_end, client })
    }

    /// Runs `count` jobs, each in a message of its own, `in_flight` at a time. The caller sets the deadline.
    pub async fn run(&self, count: usize, in_flight: usize) -> anyhow::Result<Run> {
        let messages: Vec<(JobId, Vec<u8>)> =
            (0..count).map(|number| saxpy::message(number, &self.client)).collect::<Result<_, _>>()?;
        let started = Instant::now();
        let answers: Vec<(usize, Duration, Vec<u8>)> = stream::iter(messages.into_iter().enumerate())
            .map(|(number, (job_id, body))| self.round_trip(number, job_id, body))
            .buffer_unordered(in_flight)
            .try_collect()
            .await?;
        let took = started.elapsed();
        for (number, _, body) in &answers {
            check(*number, body)?;
        }
        Ok(Run { took, round_trips: answers.iter().map(|(_, round_trip, _)| *round_trip).collect() })
    }

    async fn round_trip(
        &self,
        number: usize,
        job_id: JobId,
        body: Vec<u8>,
    ) -> anyhow::Result<(usize, Duration, Vec<u8>)> {
        let id = job_id.to_string();
        let mut headers = FieldTable::default();
        headers.insert(topology::HEADER_REPLIES.into(), AMQPValue::LongString(topology::REPLIES_IN_LISTS.into()));
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_correlation_id(id.as_str().into())
            .with_reply_to(reply_queue(&self.client).into())
            .with_content_type(Encoding::MessagePack.content_type().into())
            .with_type(topology::TYPE_TASK.into())
            .with_headers(headers);
        let key = task_key(&PoolName::default(), Priority::Normal);
        let route = Route { exchange: TASKS, routing_key: &key };
        let (round_trip, answer) = self.near_end.round_trip(&id, route, &body, properties).await?;
        Ok((number, round_trip, answer))
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.near_end.close().await
    }
}

async fn declare_replies(channel: &Channel, client: &ClientName) -> anyhow::Result<()> {
    let queue = reply_queue(client);
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    arguments.insert("x-expires".into(), AMQPValue::LongLongInt(REPLY_QUEUE_EXPIRES_MS));
    channel.queue_declare(queue.as_str().into(), durable, arguments).await?;
    let (exchange, key) = (REPLIES.into(), client.as_str().into());
    Ok(channel
        .queue_bind(queue.as_str().into(), exchange, key, QueueBindOptions::default(), FieldTable::default())
        .await?)
}

/// Returns the encoded replies of a message, each with its job.
fn replies(delivery: &mut Delivery) -> Vec<(String, Vec<u8>)> {
    let encoded = Encoding::MessagePack.items(&delivery.data);
    let replies = encoded.into_iter().map(|reply| {
        let decoded = Encoding::MessagePack.decode_replies(reply).ok();
        let job_id = decoded.and_then(|decoded| decoded.as_slice().first()?.job_id);
        (job_id.map(|job_id| job_id.to_string()).unwrap_or_default(), reply.to_vec())
    });
    replies.collect()
}

fn check(number: usize, body: &[u8]) -> anyhow::Result<()> {
    let OneOrMany::One(reply) = Encoding::MessagePack.decode_replies(body)? else {
        anyhow::bail!("job {number} was answered with a list");
    };
    ensure!(reply.state == AttemptState::Succeeded, "job {number} {}: {:?}", reply.state, reply.failure);
    let output = reply.outputs.first().context("the reply has no output")?;
    let OutputData::Inline(data) = &output.data else {
        anyhow::bail!("the output of job {number} is not in its reply")
    };
    let bytes = data.resolve(output.dtype)?;
    let floats: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    saxpy::check(number, saxpy::FLOATS, &floats)
}
