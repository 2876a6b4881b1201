//! Checks a user's permission to publish, without a message that reaches a queue.
//!
//! The message is published in a transaction, which is then rolled back. RabbitMQ checks the permissions when it gets the message, and
//! passes it on when the transaction is committed.

use gpufleet_schema::MessageId;
use lapin::{BasicProperties, options::BasicPublishOptions};
use tokio::time::{Duration, Instant, timeout_at};

use crate::{
    PublishError,
    link::{Link, NoSession, Session, is_access_refused, is_of_a_closed_channel, missing_exchange, reason_of},
};

/// The limit for the check, which takes a few round trips.
const DEADLINE: Duration = Duration::from_secs(10);

/// Publishes a message and rolls it back.
async fn probe(session: &Session, exchange: &str, routing_key: &str) -> lapin::Result<()> {
    let channel = session.publish_channel().await?;
    channel.tx_select().await?;
    let properties = BasicProperties::default().with_message_id(MessageId::new().to_string().into());
    let options = BasicPublishOptions::default();
    channel.basic_publish(exchange.into(), routing_key.into(), options, &[], properties).await?;
    channel.tx_rollback().await
}

pub(crate) async fn check_publish(link: &Link, exchange: &str, routing_key: &str) -> Result<(), PublishError> {
    let deadline = Instant::now() + DEADLINE;
    let timeout = || PublishError::Timeout { waited: DEADLINE, blocked: link.trouble() };
    let session = link.session(deadline).await.map_err(|none| match none {
        NoSession::Closed => PublishError::Closed,
        NoSession::Timeout(_) => timeout(),
    })?;
    let _user = session.user();
    let answer = async {
        loop {
            match probe(&session, exchange, routing_key).await {
                // The broker closed the channel before the rollback, so none of our requests got its reason.
                Err(error) if is_of_a_closed_channel(&error) && session.alive() => {}
                answer => break answer,
            }
        }
    };
    match timeout_at(deadline, answer).await {
        Err(_) => Err(timeout()),
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if is_access_refused(&error) => Err(PublishError::Forbidden { reason: reason_of(&error) }),
        Ok(Err(error)) => match missing_exchange(&error) {
            Some(exchange) => Err(PublishError::NoExchange { exchange }),
            None => Err(PublishError::Refused { reason: reason_of(&error) }),
        },
    }
}
