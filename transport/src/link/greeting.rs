//! The broker's greeting, the first frame of a connection, which names its release.
//!
//! lapin reads the greeting and does not pass it on, so this opens a stream of its own and closes it before login.

use std::{fmt, io, time::Duration};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use lapin::{
    protocol::{AMQPClass, connection, parse_class},
    types::{AMQPValue, FieldTable},
};

use super::{classify, probe::PROTOCOL_HEADER, socket};
use crate::{BrokerUrl, ConnectError};

/// The product and version of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `RabbitMQ`, unless another server speaks AMQP.
    pub product: String,
    pub version: String,
}

/// Maximum size of a greeting, which usually has about 500 bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// The type, the channel and the length of a frame.
const HEADER_BYTES: usize = 7;
/// The type of a frame with a method.
const METHOD: u8 = 1;

pub(crate) async fn release(url: &BrokerUrl, waited: Duration) -> Result<Release, ConnectError> {
    match tokio::time::timeout(waited, greet(url)).await {
        Ok(Ok(release)) => Ok(release),
        Ok(Err(error)) => Err(classify::connect_error(url, &error.into())),
        Err(_) => Err(ConnectError::Timeout { url: url.clone(), waited }),
    }
}

async fn greet(url: &BrokerUrl) -> io::Result<Release> {
    let mut stream = socket::open(url.uri()).await?;
    stream.write_all(PROTOCOL_HEADER).await?;
    stream.flush().await?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let length = payload_bytes(header).ok_or_else(no_amqp)?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    read(&payload).ok_or_else(no_amqp)
}

/// The length of the payload behind a method frame's header.
fn payload_bytes(header: [u8; HEADER_BYTES]) -> Option<usize> {
    let [METHOD, 0, 0, length @ ..] = header else { return None };
    Some(u32::from_be_bytes(length) as usize).filter(|length| *length <= PAYLOAD_BYTES_MAX)
}

fn read(payload: &[u8]) -> Option<Release> {
    let (_, method) = parse_class(payload).ok()?;
    let AMQPClass::Connection(connection::AMQPMethod::Start(start)) = method else { return None };
    let property = |name| text(&start.server_properties, name);
    Some(Release { product: property("product")?, version: property("version")? })
}

fn text(table: &FieldTable, name: &str) -> Option<String> {
    match table.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        _ => None,
    }
}

fn no_amqp() -> io::Error {
    io::Error::other("the server does not speak AMQP")
}

impl Release {
    /// The first two numbers of the version, such as 3 and 13.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.product, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_version_are_read_and_others_are_not() {
        let numbers = |version: &str| Release { product: "RabbitMQ".into(), version: version.into() }.numbers();
        assert_eq!(numbers("3.10.8"), Some((3, 10)));
        assert_eq!(numbers("4.1.0-beta.2"), Some((4, 1)));
        assert_eq!(numbers("unknown"), None);
    }

    #[test]
    fn bytes_that_are_no_greeting_have_no_release() {
        assert_eq!(payload_bytes(*b"HTTP/1."), None);
        assert_eq!(payload_bytes([METHOD, 0, 0, 255, 0, 0, 0]), None);
        assert_eq!(payload_bytes([METHOD, 0, 0, 0, 0, 2, 1]), Some(513));
        assert_eq!(read(b"1 400 Bad Request"), None);
        assert_eq!(read(&[]), None);
    }
}
