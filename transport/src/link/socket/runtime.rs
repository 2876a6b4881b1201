//! Connects as lapin does, with a [`Socket`] in between.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures::{
    Stream,
    io::{AsyncRead, AsyncWrite},
};
use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties,
    tcp::{AMQPUriTcpExt, OwnedTLSConfig},
    uri::AMQPUri,
};

use super::Socket;

/// The tokio reactor with another type of streams.
#[derive(Debug, Clone)]
struct SocketReactor(Tokio);

/// Opens a connection whose streams are [`Socket`]s. If cancelled, lapin's thread may continue until the connect timeout.
pub(in super::super) async fn connect(uri: AMQPUri, properties: ConnectionProperties) -> lapin::Result<Connection> {
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), SocketReactor(tokio)));
    let open = async move |uri: AMQPUri, _: Runtime<_>| Ok(AsyncTcpStream::Plain(open(&uri).await?));
    Connection::connector(uri, runtime, open, properties).await
}

/// Opens the stream alone: TCP, and TLS if the URI asks for it.
pub(in super::super) async fn open(uri: &AMQPUri) -> io::Result<Socket<<Tokio as Reactor>::TcpStream>> {
    let tls = OwnedTLSConfig::default();
    let runtime = Runtime::new(Tokio::current());
    Ok(Socket::new(AMQPUriTcpExt::connect_with_config_async(uri, tls.as_ref(), &runtime).await?))
}

impl Reactor for SocketReactor {
    type TcpStream = Socket<<Tokio as Reactor>::TcpStream>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// Never called: lapin registers nothing, and the trait's bound has no public name to forward it with.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(Socket::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}
