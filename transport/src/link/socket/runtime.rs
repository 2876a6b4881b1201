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
use tokio::sync::watch;

use super::{Arrivals, Arrived, Socket};

/// The tokio reactor with another type of streams.
#[derive(Debug, Clone)]
struct SocketReactor(Tokio);

/// Opens a connection whose streams are [`Socket`]s. If cancelled, lapin's thread may continue until the connect timeout.
pub(in super::super) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
) -> lapin::Result<(Connection, Arrived)> {
    let (tokio, (told, arrived)) = (Tokio::current(), watch::channel(()));
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), SocketReactor(tokio)));
    let open = async move |uri: AMQPUri, _: Runtime<_>| Ok(AsyncTcpStream::Plain(open_telling(&uri, &told).await?));
    Ok((Connection::connector(uri, runtime, open, properties).await?, arrived))
}

/// Opens the stream alone: TCP, and TLS if the URI asks for it.
pub(in super::super) async fn open(uri: &AMQPUri) -> io::Result<Socket<<Tokio as Reactor>::TcpStream>> {
    open_telling(uri, &watch::Sender::new(())).await
}

async fn open_telling(uri: &AMQPUri, told: &watch::Sender<()>) -> io::Result<Socket<<Tokio as Reactor>::TcpStream>> {
    let tls = OwnedTLSConfig::default();
    let runtime = Runtime::new(Tokio::current());
    let stream = AMQPUriTcpExt::connect_with_config_async(uri, tls.as_ref(), &runtime).await?;
    Ok(Socket::new(stream, Arrivals::new(told.clone())))
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
        async move { Ok(Socket::new(AsyncTcpStream::Plain(connecting.await?), Arrivals::new(watch::Sender::new(())))) }
    }
}
