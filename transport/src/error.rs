//! What can go wrong with the broker, one type per operation.

use std::time::Duration;

use crate::BrokerUrl;

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error("reach RabbitMQ at {url}: {reason}; check that the broker runs and that host and port are right")]
    Unreachable { url: BrokerUrl, reason: String },
    #[error(
        "log in to RabbitMQ at {url}: wrong user or password; check both, with special characters percent-encoded ({reason})"
    )]
    Refused { url: BrokerUrl, reason: String },
    #[error(
        "open the vhost {:?} of RabbitMQ at {url}: {reason}; create it with `rabbitmqctl add_vhost`, or give the user access with `rabbitmqctl set_permissions`",
        url.vhost()
    )]
    NoVhost { url: BrokerUrl, reason: String },
    #[error(
        "agree on TLS with RabbitMQ at {url}: {reason}; check the port (5671 by default) and that the broker's certificate is trusted here (by the system, or by the file in SSL_CERT_FILE)"
    )]
    Tls { url: BrokerUrl, reason: String },
    #[error("connect to RabbitMQ at {url}: no answer within {waited:?}; the host is silent or the broker is frozen")]
    Timeout { url: BrokerUrl, waited: Duration },
}

/// Why a message isn't known to be with the broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("publish: no queue is bound for {routing_key:?} on exchange {exchange:?}")]
    Unroutable { exchange: String, routing_key: String },
    #[error("publish: {}", no_exchange(.exchange))]
    NoExchange { exchange: String },
    /// The broker's user lacks a permission.
    #[error("publish: {reason}; `gpufleet permissions` prints what each role needs")]
    Forbidden { reason: String },
    #[error("publish: the broker refused the message, the queue for {routing_key:?} is full or unavailable")]
    Nacked { routing_key: String },
    #[error("publish: the body has {bytes} bytes, at most {max} are allowed")]
    TooLarge { bytes: usize, max: usize },
    #[error("publish: the headers have {bytes} bytes, at most {max} are allowed")]
    HeaderTooLarge { bytes: usize, max: usize },
    #[error("publish: the {property} has {bytes} bytes, AMQP allows 255")]
    PropertyTooLong { property: &'static str, bytes: usize },
    /// The broker closed the channel because of this very message.
    #[error("publish: the broker refused the message: {reason}")]
    Refused { reason: String },
    /// The message never left: it is certainly not with the broker.
    #[error("publish: not sent within {waited:?}{}", why(.blocked))]
    Timeout { waited: Duration, blocked: Option<String> },
    /// The message left and no confirmation came: the broker may have it or not. Sending it again under its id is safe.
    #[error("publish: no confirmation within {waited:?}, the message may have arrived or not{}", why(.blocked))]
    Unknown { waited: Duration, blocked: Option<String> },
    #[error("publish: the connection was closed by this side")]
    Closed,
}

/// Why something could not be declared on the broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    #[error("declare {what}: it exists with {argument} = {found}, this side wants {wanted}; {remedy}")]
    Mismatch { what: String, argument: String, wanted: String, found: String, remedy: String },
    #[error("declare {what}: {}", no_exchange(.exchange))]
    NoExchange { what: String, exchange: String },
    /// The broker's user lacks a permission.
    #[error("declare {what}: {reason}; `gpufleet permissions` prints what each role needs")]
    Forbidden { what: String, reason: String },
    #[error("declare {what}: the broker refused: {reason}")]
    Refused { what: String, reason: String },
    #[error("declare {what}: no answer within {waited:?}{}", why(.last))]
    Timeout { what: String, waited: Duration, last: Option<String> },
    #[error("declare {what}: the connection was closed by this side")]
    Closed { what: String },
}

/// Why a queue could not be looked at or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error("ask for queue {queue}: the broker refused: {reason}")]
    Refused { queue: String, reason: String },
    #[error("ask for queue {queue}: no answer within {waited:?}{}", why(.last))]
    Timeout { queue: String, waited: Duration, last: Option<String> },
    #[error("ask for queue {queue}: the connection was closed by this side")]
    Closed { queue: String },
}

/// Why a delivery could not be settled. It counts as unsettled and may come again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    #[error("settle a delivery: not written within {waited:?}")]
    Timeout { waited: Duration },
}

fn no_exchange(exchange: &str) -> String {
    format!(
        "exchange {exchange} does not exist; start a worker on this vhost first (gpufleet-worker run), which declares it"
    )
}

fn why(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
}
