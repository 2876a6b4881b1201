//! Checks that a broker responds before lapin connects to it.
//!
//! The kernel of a frozen broker still accepts connections. lapin would wait in the handshake on a thread that can't be
//! stopped, one more with each attempt. This probe can be cancelled.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{BrokerUrl, ConnectError};

pub(super) const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\x00\x00\x09\x01";

/// Checks that a server at the address responds in time. With TLS it only connects, because a handshake would need a TLS stack here.
pub(super) async fn answers(url: &BrokerUrl, waited: Duration) -> Result<(), ConnectError> {
    let speak = async {
        let mut stream = TcpStream::connect((url.host(), url.port())).await?;
        if !url.is_tls() {
            stream.write_all(PROTOCOL_HEADER).await?;
            stream.read_exact(&mut [0; 1]).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    match tokio::time::timeout(waited, speak).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ConnectError::Unreachable { url: url.clone(), reason: error.to_string() }),
        Err(_) => Err(ConnectError::Timeout { url: url.clone(), waited }),
    }
}
