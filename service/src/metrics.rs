//! Serves metrics to Prometheus.

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::{any, get},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::server::{self, Pages};

const PATH: &str = "/metrics";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until dropped. [`server::listen`] makes the listener.
pub async fn serve<F, Text>(listener: TcpListener, metrics: F)
where
    F: Fn() -> Text + Clone + Send + Sync + 'static,
    Text: Future<Output = String> + Send,
{
    let pages = pages(metrics);
    // A scraper is answered even if idle connections have all places.
    server::serve(listener, Pages { health: pages.clone(), all: pages }, CancellationToken::new()).await;
}

fn pages<F, Text>(metrics: F) -> Router
where
    F: Fn() -> Text + Clone + Send + Sync + 'static,
    Text: Future<Output = String> + Send,
{
    let elsewhere = any(async || (StatusCode::NOT_FOUND, format!("metrics are at {PATH}\n")));
    let shown = get(async move || ([(CONTENT_TYPE, OPEN_METRICS)], metrics().await));
    Router::new()
        .route(PATH, shown.fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n")))
        .fallback_service(elsewhere)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn only_the_metrics_are_served_and_only_to_readers() {
        let (listener, address) = server::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let serving = tokio::spawn(serve(listener, async || "all of them".to_owned()));
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let shown = ask("GET /metrics?name=any").await;
        assert!(shown.starts_with("HTTP/1.1 200") && shown.ends_with("all of them"), "{shown}");
        assert!(shown.contains(OPEN_METRICS), "{shown}");
        assert!(ask("POST /metrics").await.starts_with("HTTP/1.1 405"));
        let elsewhere = ask("GET /").await;
        assert!(
            elsewhere.starts_with("HTTP/1.1 404") && elsewhere.ends_with("metrics are at /metrics\n"),
            "{elsewhere}"
        );
        serving.abort();
    }
}
