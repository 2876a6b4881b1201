//! The connection options of a process.

use std::time::Duration;

use crate::BrokerUrls;

/// How to reach the broker, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nodes of the broker. A client of several nodes moves on when one fails, and has a replicated reply queue.
    pub urls: BrokerUrls,
    /// Shown by the broker's management pages and `rabbitmqctl list_connections client_properties`.
    pub name: String,
    /// Interval of the AMQP heartbeats. Two silent intervals end a connection.
    pub heartbeat: Duration,
    /// The limit for one attempt to connect to one node, with all connections and their handshakes.
    pub connect_deadline: Duration,
    /// The limit for one publish, from the call to the broker's confirmation, including reconnections.
    pub confirm_deadline: Duration,
    pub reply_queue: ReplyQueue,
}

/// What happens to a client's reply queue while the client is away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyQueue {
    /// The broker deletes it after ten minutes.
    #[default]
    Brief,
    /// The broker keeps it, and each reply in it, for this long. Of several connections with the client's name one gets the replies.
    Kept(Duration),
}

impl Options {
    /// Default interval of the heartbeats. It detects a dead peer within 20 s, well before the confirm deadline; less than 5 s would cause
    /// false alarms on a busy machine.
    pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(10);
    /// Default limit for an attempt to connect: enough for slow round trips or a broker that is starting, and as long as a user waits at a
    /// prompt.
    pub const CONNECT_DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
    /// Default limit for one publish. A broker killed with SIGKILL was back after 6 s, and a silent one is detected after 20 s; both leave
    /// time to publish again.
    pub const CONFIRM_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

    pub fn new(urls: BrokerUrls, name: impl Into<String>) -> Self {
        Self {
            urls,
            name: name.into(),
            heartbeat: Self::HEARTBEAT_DEFAULT,
            connect_deadline: Self::CONNECT_DEADLINE_DEFAULT,
            confirm_deadline: Self::CONFIRM_DEADLINE_DEFAULT,
            reply_queue: ReplyQueue::default(),
        }
    }
}
