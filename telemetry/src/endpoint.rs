//! Serves the metrics by HTTP to a few scrapers. A connection carries one answer.

use std::{convert::Infallible, future::ready, io, net::SocketAddr, time::Duration};

use gpufleet_http::places::Places;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tracing::{debug, warn};

const PATH: &str = "/metrics";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Maximum number of connections: enough for two or three scrapers and a user. A further connection replaces the oldest one of the address
/// that has the most, so idle connections keep no scraper out.
const CONNECTIONS_MAX: usize = 8;
/// Time limit of a connection. An answer takes milliseconds, and Prometheus itself waits no longer than this.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(10);
/// Size of the read buffer: the minimum of the library. A scraper's request has some hundred bytes.
const BUFFER_BYTES_MAX: usize = 8 << 10;
/// The pause after a failed accept, which means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Binds the address and returns it with the actual port.
pub async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, metrics: impl Fn() -> String + Clone + Send + Sync + 'static) {
    let places = Places::new(CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let (metrics, place) = (metrics.clone(), places.take_over(address.ip()));
                tokio::spawn(async move {
                    tokio::select! {
                        () = place.withdrawn() => debug!("metrics connection ended for another one"),
                        () = attend(stream, metrics) => {}
                    }
                });
            }
            Err(error) => {
                warn!(%error, "metrics connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, metrics: impl Fn() -> String) {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(answer(&request, &metrics))));
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "metrics connection ended"),
        Err(_) => debug!("metrics connection timed out"),
    }
}

fn answer<B>(request: &Request<B>, metrics: impl Fn() -> String) -> Response<String> {
    let (status, content_type, body) = match (request.uri().path(), request.method()) {
        (PATH, &Method::GET | &Method::HEAD) => (StatusCode::OK, OPEN_METRICS, metrics()),
        (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "use GET or HEAD\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, PLAIN, format!("metrics are at {PATH}\n")),
    };
    let response = Response::builder().status(status).header(CONTENT_TYPE, content_type).header(ALLOW, "GET, HEAD");
    response.body(body).expect("all parts are well-formed constants")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn asked(method: Method, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let response = answer(&request, || "all of them".to_owned());
        (response.status().as_u16(), response.into_body())
    }

    #[tokio::test]
    async fn idle_connections_keep_no_scraper_out() {
        let (listener, address) = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let serving = tokio::spawn(serve(listener, || "all of them".to_owned()));
        let mut idle = Vec::new();
        for _ in 0..4 * CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let scrape = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        let answer =
            timeout(CONNECTION_DEADLINE / 2, scrape).await.expect("the idle connections have their places").unwrap();
        assert!(answer.ends_with("all of them"), "{answer}");
        serving.abort();
    }

    #[test]
    fn only_the_metrics_are_served_and_only_to_readers() {
        assert_eq!(asked(Method::GET, "/metrics?name=any"), (200, "all of them".to_owned()));
        assert_eq!(asked(Method::POST, "/metrics").0, 405);
        assert_eq!(asked(Method::GET, "/"), (404, "metrics are at /metrics\n".to_owned()));
    }
}
