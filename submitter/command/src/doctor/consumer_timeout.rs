//! The broker's `consumer_timeout`: how long a message may stay unacknowledged.
//!
//! A worker acknowledges a message when its job has ended. No AMQP client can read the setting, so the only proof is to hold a message.

use std::time::Duration;

use gpufleet::schema::{ClientName, topology};
use gpufleet_transport::{Broker, Incoming, Message, PublishError};

use super::{super::complaint::chain, finding::Finding};

/// What is known of the timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// `gpufleet local up` wrote the broker's configuration.
    OfLocalFleet,
    NotAsked,
    /// The user may not send a message to itself.
    NotPermitted,
    Failed(String),
    Held(Duration),
    /// The broker ended the subscription before this time had passed.
    Interrupted {
        within: Duration,
        reason: String,
    },
}

const CHECK: &str = "consumer timeout";

/// Sends a message to a queue of its own and leaves it unacknowledged for this long.
pub async fn hold(broker: &Broker, within: Duration) -> Hold {
    let client = ClientName::fresh(broker.urls().user());
    let queue = topology::reply_queue(&client);
    if let Err(error) = broker.declare_reply_queue(&client).await {
        return Hold::Failed(chain(&error));
    }
    let hold = hold_in(broker, &queue, within).await;
    // The broker deletes a queue without a consumer after ten minutes anyway.
    drop(broker.delete_queue(&queue).await);
    hold
}

async fn hold_in(broker: &Broker, queue: &str, within: Duration) -> Hold {
    let message = Message::to("", queue, Vec::new());
    match broker.publish(message).await {
        Ok(()) => {}
        Err(PublishError::Forbidden { .. }) => return Hold::NotPermitted,
        Err(error) => return Hold::Failed(chain(&error)),
    }
    let mut consumer = broker.consume(queue.to_owned(), 1);
    let mut held = Vec::new();
    let interrupted = async {
        loop {
            match consumer.next().await {
                Some(Incoming::Delivery(delivery)) => held.push(delivery),
                Some(Incoming::Interrupted { reason }) => return reason,
                None => return "the connection ended".to_owned(),
            }
        }
    };
    match tokio::time::timeout(within, interrupted).await {
        Err(_) if held.is_empty() => Hold::Failed("the broker did not deliver the message".to_owned()),
        Err(_) => Hold::Held(within),
        Ok(reason) => Hold::Interrupted { within, reason },
    }
}

impl Hold {
    /// What is known before a message was held.
    pub const fn of(is_local_fleet: bool) -> Self {
        if is_local_fleet { Self::OfLocalFleet } else { Self::NotAsked }
    }

    pub fn judge(&self) -> Finding {
        match self {
            Self::OfLocalFleet => Finding::ok(CHECK, "eight days, set by gpufleet local"),
            Self::NotAsked => Finding::skipped(CHECK, "clients can't read it, and without --hold it is not measured").fix(
                "on the broker's machine, `rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'` should print \
                 {ok,691200000}; the default of 30 minutes ends longer jobs",
            ),
            Self::NotPermitted => Finding::skipped(CHECK, "the user may not send a message to its own queue")
                .fix("run this check as a user with all permissions"),
            Self::Failed(problem) => Finding::skipped(CHECK, format!("it could not be measured: {problem}")),
            Self::Held(time) => {
                let time = humantime::format_duration(*time);
                Finding::ok(CHECK, format!("a message stayed unacknowledged for {time}"))
            }
            Self::Interrupted { within, reason } => {
                let within = humantime::format_duration(*within);
                Finding::error(CHECK, format!("the broker took an unacknowledged message back within {within}: {reason}"))
                    .fix("set consumer_timeout = 691200000 (eight days) in rabbitmq.conf and restart the broker")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Status, *};

    #[test]
    fn only_an_interruption_is_an_error_and_what_is_unknown_is_skipped() {
        let within = Duration::from_secs(60);
        let interrupted = Hold::Interrupted { within, reason: "delivery acknowledgement timed out".to_owned() };
        for (hold, status) in [
            (Hold::of(true), Status::Ok),
            (Hold::of(false), Status::Skipped),
            (Hold::NotPermitted, Status::Skipped),
            (Hold::Failed("no answer".to_owned()), Status::Skipped),
            (Hold::Held(within), Status::Ok),
            (interrupted, Status::Error),
        ] {
            assert_eq!(hold.judge().status, status, "{hold:?}");
        }
    }
}
