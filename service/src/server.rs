//! Serves a router over HTTP/1.1, with bounds on connections, headers, unread answers and time.
//!
//! Connections have places, which [`Places`] shares among the callers' machines. A connection without a place is not left
//! waiting: it gets one answer, of the health checks' pages if it asks for one, and otherwise that the server is busy.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Extension, Router,
    http::{HeaderValue, header},
    middleware::from_fn,
    response::{IntoResponse as _, Response},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    places::{Place, Places},
    problem::{Problem, ProblemKind},
};

mod body;
mod progress;

use progress::WriteProgress;

/// Maximum number of connections with a place. Browsers open six each, and programs one.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of connections without a place. Each has one request, which takes milliseconds.
const BRIEF_MAX: usize = 32;
/// Time limit of a connection without a place.
const BRIEF_WITHIN: Duration = Duration::from_secs(5);
/// Size of the read buffer. A request has some hundred bytes of headers; a URL may be longer.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Size of the kernel's buffer for an answer that the caller does not read. By default it keeps megabytes for each connection.
const SEND_BUFFER_BYTES: u32 = 256 << 10;
/// Connections that the kernel keeps until they are accepted, which takes microseconds.
const BACKLOG: u32 = 1024;
/// Time limit for the headers of a request, and for an idle connection. A slower client loses its connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Time after which a connection ends, with the answer that is in progress then.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Time limit of that last answer: longer than any stream of events lasts.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(3600 + 60);
/// Time limit of requests in progress when the server stops.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// The pause after a failed accept, which means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The `Retry-After` of a refused request, in seconds. A caller that asks again at once would only add to the load.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The address that a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Ends the connection of a request at once, whatever is left of the answer. Each request has one among its extensions.
#[derive(Debug, Clone, Default)]
pub struct Hangup(CancellationToken);

impl Hangup {
    pub fn hang_up(&self) {
        self.0.cancel();
    }

    pub fn is_hung_up(&self) -> bool {
        self.0.is_cancelled()
    }

    pub async fn hung_up(&self) {
        self.0.cancelled().await;
    }
}

/// The pages of a server.
#[derive(Debug, Clone)]
pub struct Pages {
    pub all: Router,
    /// The part that callers get even if the server has no place for their connection: health checks.
    pub health: Router,
}

/// Binds the address and returns it with the actual port.
pub async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // The connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until stopped, and then for a moment the requests in progress. Each request has its [`Peer`] and its
/// [`Hangup`] among its extensions.
pub async fn serve(listener: TcpListener, Pages { all, health }: Pages, stop: CancellationToken) {
    let (places, brief) = (Places::new(CONNECTIONS_MAX), Places::new(BRIEF_MAX));
    let (all, health) = (all.layer(from_fn(body::await_whole)), health.fallback(busy));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => match places.take(address.ip()) {
                Some(place) => {
                    let router = all.clone().layer(Extension(Peer(address)));
                    connections.spawn(attend(stream, router, place, stop.clone()));
                }
                None => {
                    let router = health.clone().layer(Extension(Peer(address)));
                    connections.spawn(attend_briefly(stream, router, brief.take_over(address.ip())));
                }
            },
            Err(error) => {
                warn!(%error, "connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    timeout(DRAIN_DEADLINE, connections.wait()).await.ok();
}

/// The answer to a request for which the server has no room.
pub async fn busy() -> Response {
    let problem = Problem::new(
        ProblemKind::Overloaded,
        "The server is busy",
        format!("it has {CONNECTIONS_MAX} connections already, and this address has its share of them"),
        "try again in a second, and close connections that are no longer used",
    );
    ([(header::RETRY_AFTER, RETRY_AFTER)], problem).into_response()
}

async fn attend(stream: TcpStream, router: Router, place: Place, stop: CancellationToken) {
    let hangup = Hangup::default();
    let router = router.layer(Extension(hangup.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(WriteProgress::new(stream)), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let is_over = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(LIFETIME) => {}
        }
    };
    let served = async {
        tokio::select! {
            ended = &mut connection => return Ok(ended),
            () = is_over => {}
        }
        connection.as_mut().graceful_shutdown();
        timeout(LAST_ANSWER_WITHIN, connection).await
    };
    tokio::select! {
        () = place.withdrawn() => debug!("connection ended for one of another address"),
        () = hangup.hung_up() => debug!("connection ended by its page"),
        ended = served => match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "connection ended"),
            Err(_) => debug!("connection ended at the end of its lifetime"),
        }
    }
}

/// Answers one request.
async fn attend_briefly(stream: TcpStream, router: Router, place: Place) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        () = place.withdrawn() => {}
        ended = timeout(BRIEF_WITHIN, connection) => match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "connection without a place ended"),
            Err(_) => debug!("connection without a place timed out"),
        }
    }
}
