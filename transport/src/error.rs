//! Errors of broker operations, one type per operation.

use std::time::Duration;

use gpufleet_schema::InvalidOrder;

use crate::BrokerUrl;

/// Why connecting failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "failed to reach RabbitMQ at {url}: {reason}; check that the broker is running and that the host and port are correct"
    )]
    Unreachable { url: BrokerUrl, reason: String },
    #[error(
        "failed to log in to RabbitMQ at {url}: wrong user or password; check both, and percent-encode special characters ({reason})"
    )]
    Refused { url: BrokerUrl, reason: String },
    #[error(
        "failed to open the vhost {:?} of RabbitMQ at {url}: {reason}; create it with `rabbitmqctl add_vhost`, or give the user access with `rabbitmqctl set_permissions`",
        url.vhost()
    )]
    NoVhost { url: BrokerUrl, reason: String },
    #[error(
        "failed to negotiate TLS with RabbitMQ at {url}: {reason}; check the port (5671 by default), and that this machine trusts the broker's certificate (system store or SSL_CERT_FILE)"
    )]
    Tls { url: BrokerUrl, reason: String },
    #[error(
        "failed to connect to RabbitMQ at {url}: no answer within {waited:?}; check that the host is reachable and that the broker responds"
    )]
    Timeout { url: BrokerUrl, waited: Duration },
    /// No node of a cluster could be reached.
    #[error(
        "failed to reach any node of RabbitMQ ({}); check that the brokers are running and that the hosts and ports are correct",
        .failures.iter().map(NodeFailure::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoNode { failures: Vec<NodeFailure> },
}

/// Why one node of a cluster could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {reason}", url.host(), url.port())]
pub struct NodeFailure {
    pub url: BrokerUrl,
    pub reason: String,
}

impl ConnectError {
    /// Whether the broker may be reached later. A refused login, an unknown vhost or an untrusted certificate stays until someone corrects
    /// it.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NoNode { .. } => true,
            Self::Refused { .. } | Self::NoVhost { .. } | Self::Tls { .. } => false,
        }
    }

    /// Whether another node would answer the same, because the nodes of a cluster share their users and vhosts.
    pub(crate) fn concerns_all_nodes(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::NoVhost { .. } => true,
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Tls { .. } | Self::NoNode { .. } => false,
        }
    }

    /// The error of a round in which every node failed with one of these.
    pub(crate) fn of_round(mut errors: Vec<Self>) -> Self {
        // A node that can't be reached may return, unlike one whose certificate is not trusted.
        if errors.len() > 1 && errors.iter().any(Self::may_pass) {
            return Self::NoNode { failures: errors.into_iter().flat_map(Self::into_failures).collect() };
        }
        errors.swap_remove(0)
    }

    fn into_failures(self) -> Vec<NodeFailure> {
        match self {
            Self::Unreachable { url, reason }
            | Self::Refused { url, reason }
            | Self::NoVhost { url, reason }
            | Self::Tls { url, reason } => vec![NodeFailure { url, reason }],
            Self::Timeout { url, waited } => vec![NodeFailure { url, reason: format!("no answer within {waited:?}") }],
            Self::NoNode { failures } => failures,
        }
    }
}

/// Why a message is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("failed to publish: no queue is bound for {routing_key:?} on exchange {exchange:?}")]
    Unroutable { exchange: String, routing_key: String },
    #[error("failed to publish: {}", no_exchange(.exchange))]
    NoExchange { exchange: String },
    /// The broker's user lacks a permission.
    #[error("failed to publish: {reason}; `gpufleet permissions` lists the permissions of each role")]
    Forbidden { reason: String },
    #[error(
        "failed to publish: the broker rejected the message, because the queue for {routing_key:?} is full or unavailable"
    )]
    Nacked { routing_key: String },
    #[error("failed to publish: the body has {bytes} bytes; the maximum is {max}")]
    TooLarge { bytes: usize, max: usize },
    /// Workers would refuse the order.
    #[error("failed to publish: {0}")]
    Order(InvalidOrder),
    #[error("failed to publish: the headers have {bytes} bytes; the maximum is {max}")]
    HeaderTooLarge { bytes: usize, max: usize },
    #[error("failed to publish: the {property} has {bytes} bytes; the AMQP maximum is 255")]
    PropertyTooLong { property: &'static str, bytes: usize },
    /// The broker closed the channel because of this message.
    #[error("failed to publish: the broker refused the message: {reason}")]
    Refused { reason: String },
    /// The message was never sent, so the broker does not have it.
    #[error("failed to publish: not sent within {waited:?}{}", why(.blocked))]
    Timeout { waited: Duration, blocked: Option<String> },
    /// The message was sent but not confirmed, so the broker may have it. Sending it again under its id is safe.
    #[error("failed to publish: no confirmation within {waited:?}; the message may or may not have arrived{}", why(.blocked))]
    Unknown { waited: Duration, blocked: Option<String> },
    #[error("failed to publish: this client closed the connection")]
    Closed,
}

/// Why a declaration failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    #[error(
        "failed to declare {what}: it exists with {argument} = {found}, but this program expects {wanted}; {remedy}"
    )]
    Mismatch { what: String, argument: String, wanted: String, found: String, remedy: String },
    #[error("failed to declare {what}: {}", no_exchange(.exchange))]
    NoExchange { what: String, exchange: String },
    /// The broker's user lacks a permission.
    #[error("failed to declare {what}: {reason}; `gpufleet permissions` lists the permissions of each role")]
    Forbidden { what: String, reason: String },
    #[error("failed to declare {what}: the broker refused: {reason}")]
    Refused { what: String, reason: String },
    #[error("failed to declare {what}: no answer within {waited:?}{}", why(.last))]
    Timeout { what: String, waited: Duration, last: Option<String> },
    #[error("failed to declare {what}: this client closed the connection")]
    Closed { what: String },
}

/// Why a queue could not be inspected or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error("failed to query queue {queue}: the broker refused: {reason}")]
    Refused { queue: String, reason: String },
    #[error("failed to query queue {queue}: no answer within {waited:?}{}", why(.last))]
    Timeout { queue: String, waited: Duration, last: Option<String> },
    #[error("failed to query queue {queue}: this client closed the connection")]
    Closed { queue: String },
}

/// Why progress can't be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgressError {
    /// The broker's user lacks a permission.
    #[error("failed to follow progress: {reason}; `gpufleet permissions` lists the permissions of each role")]
    Forbidden { reason: String },
    #[error("failed to follow progress: no worker of this vhost publishes it yet; start a worker of this release")]
    NoProgress,
    #[error("failed to follow progress: no answer from the broker within {waited:?}")]
    Timeout { waited: Duration },
    #[error("failed to follow progress: this client closed the connection")]
    Closed,
}

/// Why a delivery could not be settled. It stays unsettled and may be redelivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    #[error("failed to settle a delivery: not written within {waited:?}")]
    Timeout { waited: Duration },
}

fn no_exchange(exchange: &str) -> String {
    format!(
        "exchange {exchange} does not exist; start a worker on this vhost first, because workers declare it (gpufleet-worker run)"
    )
}

fn why(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
}
