//! The baseline: a loop that publishes, consumes and replies with nothing but lapin, but keeps gpufleet's promises for messages.
//!
//! It publishes persistent messages with the bytes of gpufleet tasks into a quorum queue, `mandatory` and with confirms. A process of its
//! own consumes them, sends each body back to a classic queue, awaits the reply's confirm and then acknowledges. The client matches replies
//! by correlation id and acknowledges them. Neither end decodes, computes or records anything.
//!
//! Each process has two connections, like gpufleet's (without the one for events), and each channel has one purpose.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, Consumer,
    options::{BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::stats::Run;
use near_end::{NearEnd, Route};

pub mod consumer;
pub mod foreign;
mod near_end;

const TASKS: &str = "bench.tasks";
const REPLIES: &str = "bench.replies";
/// The variable with the broker's address for the consumer. The address contains a password, so it is not on the command line.
const URL_VARIABLE: &str = "GPUFLEET_BENCH_AMQP_URL";
/// The line that the consumer prints once it consumes.
const READY: &str = "ready";
/// The deadline for connecting, declaring and starting the consumer; long enough for a loaded machine.
const START_DEADLINE: Duration = Duration::from_secs(30);
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
const PERSISTENT: u8 = 2;

/// Both ends of the loop. Dropping it closes the standard input of the far end, which then ends.
#[derive(Debug)]
pub struct BareLoop {
    near_end: NearEnd,
    consumer: Child,
}

impl BareLoop {
    /// Starts both ends. Both get the prefetch `in_flight_max`, because a smaller one would slow the loop down.
    pub async fn start(amqp_url: &str, in_flight_max: u16) -> anyhow::Result<Self> {
        timeout(START_DEADLINE, Self::start_without_deadline(amqp_url, in_flight_max))
            .await
            .context("the bare loop did not start in time")?
    }

    async fn start_without_deadline(amqp_url: &str, in_flight_max: u16) -> anyhow::Result<Self> {
        let connections = connect_twice(amqp_url, "near end").await?;
        declare_queues(&connections[0]).await?;
        let consumer = start_consumer(amqp_url, in_flight_max).await?;
        let near_end = NearEnd::open(connections, REPLIES, in_flight_max, near_end::one_reply).await?;
        Ok(Self { near_end, consumer })
    }

    /// Returns the process id of the far end.
    pub fn consumer_pid(&self) -> Option<u32> {
        self.consumer.id()
    }

    /// Sends each body around once, `in_flight` at a time, and checks that it comes back unchanged. The caller sets the deadline.
    pub async fn run(&self, bodies: Vec<Vec<u8>>, in_flight: usize) -> anyhow::Result<Run> {
        let started = Instant::now();
        let round_trips = stream::iter(bodies.into_iter().enumerate())
            .map(|(number, body)| self.round_trip(number, body))
            .buffer_unordered(in_flight)
            .try_collect()
            .await?;
        Ok(Run { took: started.elapsed(), round_trips })
    }

    async fn round_trip(&self, number: usize, body: Vec<u8>) -> anyhow::Result<Duration> {
        let id = format!("{number:036}");
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(id.as_str().into())
            .with_reply_to(REPLIES.into())
            .with_content_type("application/msgpack".into())
            .with_type("gpufleet.task".into())
            .with_timestamp(1_700_000_000);
        let route = Route { exchange: "", routing_key: TASKS };
        let (round_trip, answer) = self.near_end.round_trip(&id, route, &body, properties).await?;
        ensure!(answer == body, "the bare loop changed a message");
        Ok(round_trip)
    }

    /// Closes everything, and waits until the far end has ended.
    pub async fn close(mut self) -> anyhow::Result<()> {
        drop(self.consumer.stdin.take());
        let ended = timeout(CLOSE_DEADLINE, self.consumer.wait()).await;
        self.near_end.close().await?;
        let status = ended.context("the bare consumer did not end")??;
        ensure!(status.success(), "the bare consumer failed: {status}");
        Ok(())
    }
}

/// Publishes a message, and fails unless it is confirmed and not returned.
async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: BasicProperties,
) -> anyhow::Result<()> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    match channel.basic_publish(exchange.into(), key.into(), options, body, properties).await?.await? {
        lapin::Confirmation::Ack(None) => Ok(()),
        other => bail!("a message to {key} was not taken: {other:?}"),
    }
}

async fn connect_twice(amqp_url: &str, end: &str) -> anyhow::Result<[Connection; 2]> {
    let connect = || {
        let properties = ConnectionProperties::default().with_connection_name(format!("bare loop, {end}").into());
        Connection::connect(amqp_url, properties)
    };
    // The cause is left out of the error, because it might repeat the address with its password.
    let connections = tokio::try_join!(connect(), connect());
    let (publishing, consuming) = connections.map_err(|_| anyhow::anyhow!("the bare loop can't reach the broker"))?;
    Ok([publishing, consuming])
}

async fn confirming_channel(connection: &Connection) -> anyhow::Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

async fn declare_queues(connection: &Connection) -> anyhow::Result<()> {
    let channel = connection.create_channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(TASKS.into(), durable, quorum).await?;
    channel.queue_declare(REPLIES.into(), durable, FieldTable::default()).await?;
    Ok(())
}

async fn consume(channel: &Channel, queue: &str, prefetch: u16) -> anyhow::Result<Consumer> {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    Ok(channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?)
}

async fn start_consumer(amqp_url: &str, prefetch: u16) -> anyhow::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["bare-consumer", "--prefetch", &prefetch.to_string()])
        .env(URL_VARIABLE, amqp_url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the bare consumer")?;
    let stdout = child.stdout.take().expect("its output is piped");
    let first = BufReader::new(stdout).lines().next_line().await?;
    ensure!(first.as_deref() == Some(READY), "the bare consumer did not become ready");
    Ok(child)
}
