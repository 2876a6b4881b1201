//! Serves a router over HTTP/1.1, with bounds on connections, headers and idle time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Browsers open six each, and programs one. Further connections wait to be accepted.
const CONNECTIONS_MAX: u32 = 256;
/// A request has some hundred bytes of headers; a URL may be longer.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// A client that sends the headers of a request more slowly, or leaves its connection idle for longer, loses it.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Requests in progress end within this time when the server stops.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// The pause after a failed accept, which means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The address that a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Binds the address and returns it with the actual port.
pub async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until stopped, and then for a moment the requests in progress. Each request has its [`Peer`] among its extensions.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, address)) => {
                let (router, stop) = (router.clone().layer(Extension(Peer(address))), stop.clone());
                tokio::spawn(async move {
                    attend(stream, router, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Every connection holds a place.
    timeout(DRAIN_DEADLINE, places.acquire_many(CONNECTIONS_MAX)).await.ok();
}

async fn attend(stream: TcpStream, router: Router, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}
