//! The far end of the bare loop: a process that sends back what it receives, and ends when its standard input closes.

use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use futures::{StreamExt as _, stream::FuturesUnordered};
use lapin::{BasicProperties, Channel, message::Delivery, options::BasicAckOptions};
use tokio::{sync::oneshot, time::timeout};

use super::{
    PERSISTENT, READY, START_DEADLINE, TASKS, URL_VARIABLE, confirming_channel, connect_twice, consume, publish,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Messages in work at once
    #[arg(long)]
    prefetch: u16,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let amqp_url = std::env::var(URL_VARIABLE).with_context(|| format!("{URL_VARIABLE} is not set"))?;
    let start = async {
        let connections = connect_twice(&amqp_url, "far end").await?;
        let replies = confirming_channel(&connections[0]).await?;
        let channel = connections[1].create_channel().await?;
        let tasks = consume(&channel, TASKS, options.prefetch).await?;
        anyhow::Ok((connections, replies, tasks))
    };
    let (_connections, replies, mut tasks) =
        timeout(START_DEADLINE, start).await.context("the bare consumer did not start in time")??;
    println!("{READY}");
    let mut abandoned = when_input_closes();
    // Replies await their confirms concurrently. One after the other would cost most of the throughput.
    let mut answering = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = &mut abandoned => return Ok(()),
            Some(answered) = answering.next() => answered?,
            delivery = tasks.next() => match delivery {
                Some(delivery) => answering.push(answer(&replies, delivery?)),
                None => bail!("the broker ended the consumer"),
            },
        }
    }
}

async fn answer(replies: &Channel, delivery: Delivery) -> anyhow::Result<()> {
    let properties = &delivery.properties;
    let reply_to = properties.reply_to().as_ref().context("a message without reply_to")?;
    let id = properties.message_id().clone().context("a message without message_id")?;
    let answer = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_correlation_id(id.clone())
        .with_message_id(id)
        .with_content_type("application/msgpack".into())
        .with_type("gpufleet.reply".into());
    publish(replies, "", reply_to.as_str(), &delivery.data, answer).await?;
    ensure!(delivery.ack(BasicAckOptions::default()).await?, "an acknowledgement was not sent");
    Ok(())
}

/// Completes when the near end is gone, for whatever reason. The reading thread does not keep the process alive.
fn when_input_closes() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // The end of the input and an error both end the loop.
        drop(std::io::stdin().lock().read_to_end(&mut Vec::new()));
        let _ = sender.send(());
    });
    receiver
}
