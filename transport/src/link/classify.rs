//! Classifies lapin's errors.

use lapin::{
    Error, ErrorKind,
    protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError},
};

use crate::{BrokerUrl, ConnectError};

/// The broker's reason if it gave one, else lapin's.
pub(crate) fn reason_of(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(amqp) => amqp.get_message().to_string(),
        ErrorKind::IOError(io) => io.to_string(),
        // The parser's message describes its combinators, which does not help a user.
        ErrorKind::ParsingError(_) => "the server does not speak AMQP".to_owned(),
        _ => error.to_string(),
    }
}

fn amqp(error: &Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(amqp) => Some(amqp),
        _ => None,
    }
}

/// The broker closed one channel because of an operation on it; the connection is still open.
pub(crate) fn is_channel_level(error: &Error) -> bool {
    error.is_amqp_soft_error()
}

/// The channel was closed before the operation. The reason went to an earlier operation, or to none.
pub(crate) fn is_of_a_closed_channel(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidChannelState(..))
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    amqp(error).is_some_and(|amqp| matches!(amqp.kind(), AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)))
}

/// Another connection has the exclusive queue.
pub(crate) fn is_locked(error: &Error) -> bool {
    amqp(error).is_some_and(|amqp| matches!(amqp.kind(), AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED)))
}

/// The user lacks a permission.
pub(crate) fn is_access_refused(error: &Error) -> bool {
    amqp(error).is_some_and(|amqp| matches!(amqp.kind(), AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)))
}

/// The exchange that does not exist. The broker says: `NOT_FOUND - no exchange 'e' in vhost 'v'`.
pub(crate) fn missing_exchange(error: &Error) -> Option<String> {
    let reason = Some(reason_of(error)).filter(|_| is_not_found(error))?;
    let (_, rest) = reason.split_once("no exchange '")?;
    rest.split_once('\'').map(|(exchange, _)| exchange.to_owned())
}

/// The broker failed with an internal error on a request and closed the connection.
pub(crate) fn is_brokers_defect(error: &Error) -> bool {
    amqp(error).is_some_and(|amqp| matches!(amqp.kind(), AMQPErrorKind::Hard(AMQPHardError::INTERNALERROR)))
}

/// The broker rejects what was sent. Sending it again would fail again.
pub(crate) fn blames_a_message(error: &Error) -> bool {
    amqp(error).is_some_and(|amqp| match amqp.kind() {
        AMQPErrorKind::Soft(_) => true,
        // A close by an operator or a broker that shuts down, and an internal error, are not caused by a message.
        AMQPErrorKind::Hard(hard) => !matches!(hard, AMQPHardError::CONNECTIONFORCED | AMQPHardError::INTERNALERROR),
    })
}

pub(super) fn connect_error(url: &BrokerUrl, error: &Error) -> ConnectError {
    let (url, reason) = (url.clone(), reason_of(error));
    let Some(amqp) = amqp(error) else {
        return if url.is_tls() && speaks_of_tls(error) {
            ConnectError::Tls { url, reason }
        } else {
            ConnectError::Unreachable { url, reason }
        };
    };
    match amqp.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => ConnectError::Refused { url, reason },
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH) => {
            ConnectError::NoVhost { url, reason }
        }
        _ => ConnectError::Unreachable { url, reason },
    }
}

/// Whether the TCP connection was made and the TLS handshake failed.
fn speaks_of_tls(error: &Error) -> bool {
    use std::io::ErrorKind as Io;
    match error.kind() {
        ErrorKind::IOError(io) => {
            matches!(io.kind(), Io::InvalidData | Io::InvalidInput | Io::Other | Io::UnexpectedEof)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn protocol(kind: AMQPErrorKind, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::new(kind, text.into())).into()
    }

    fn url(scheme: &str) -> BrokerUrl {
        format!("{scheme}://anna:hunter2@rabbit/v").parse().unwrap()
    }

    #[test]
    fn every_failure_to_connect_says_what_and_why_and_never_the_password() {
        let said = |scheme: &str, error: Error| connect_error(&url(scheme), &error).to_string();
        let refused = said("amqp", protocol(AMQPSoftError::ACCESSREFUSED.into(), "ACCESS_REFUSED - Login was refused"));
        let no_vhost = said("amqp", protocol(AMQPHardError::NOTALLOWED.into(), "NOT_ALLOWED - vhost v not found"));
        let unreachable = said("amqp", io::Error::from(io::ErrorKind::ConnectionRefused).into());
        let tls = said("amqps", io::Error::new(io::ErrorKind::InvalidData, "UnknownIssuer").into());
        for (text, expected) in [
            (refused, "wrong user or password"),
            (no_vhost, "the vhost \"v\" of RabbitMQ"),
            (unreachable, "check that the broker is running"),
            (tls, "this machine trusts the broker's certificate"),
        ] {
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("anna:***@rabbit"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_missing_exchange_is_distinguished_from_a_missing_queue() {
        let said = |text: &str| missing_exchange(&protocol(AMQPSoftError::NOTFOUND.into(), text));
        assert_eq!(said("NOT_FOUND - no exchange 'a.b' in vhost 'v'").as_deref(), Some("a.b"));
        assert_eq!(said("NOT_FOUND - no queue 'a.b' in vhost 'v'"), None);
        let refused = protocol(AMQPSoftError::ACCESSREFUSED.into(), "ACCESS_REFUSED - access to exchange 'a.b'");
        assert!(is_access_refused(&refused));
        assert_eq!(missing_exchange(&refused), None);
    }

    #[test]
    fn a_shutting_down_broker_blames_no_message() {
        assert!(!blames_a_message(&protocol(AMQPHardError::CONNECTIONFORCED.into(), "shutdown")));
        assert!(!blames_a_message(&io::Error::from(io::ErrorKind::ConnectionReset).into()));
        assert!(blames_a_message(&protocol(AMQPHardError::FRAMEERROR.into(), "type 2, all octets")));
        assert!(blames_a_message(&protocol(AMQPSoftError::NOTFOUND.into(), "no exchange")));
    }
}
