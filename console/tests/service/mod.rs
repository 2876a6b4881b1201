//! A console over a read API that only counts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses a part")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    http::{StatusCode, Uri},
    routing::get,
};
use gpufleet_console::{
    access::{Access, Hosts, Identity},
    broker::Broker,
    feed::Feed,
    server::router,
    state::Console,
    upstream::Upstream,
};
use gpufleet_service::server::{self, Pages};
use reqwest::{Client, RequestBuilder, Response, header};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The output `y` of each job: more than the kernel keeps of an answer.
pub const OUTPUT_BYTES: usize = 4 << 20;

pub const TOKEN: &str = "0123456789abcdef-canary";

pub struct Service {
    pub address: SocketAddr,
    /// The requests that the read API has answered.
    pub asked: Arc<AtomicUsize>,
    client: Client,
    _stop: DropGuard,
}

pub struct Options {
    pub identity: Identity,
    pub hosts: Vec<String>,
    pub actions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { identity: Identity::Anonymous, hosts: Vec::new(), actions: false }
    }
}

impl Service {
    pub async fn start(options: Options) -> Self {
        let stop = CancellationToken::new();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let answer = async move |uri: Uri| {
            count.fetch_add(1, Ordering::SeqCst);
            match uri.path() {
                // A page that never comes.
                "/v1/stuck" => std::future::pending().await,
                "/v1/page" => (StatusCode::OK, "<html>".to_owned()),
                path if path.ends_with("/outputs/y") => (StatusCode::OK, "x".repeat(OUTPUT_BYTES)),
                path if path.starts_with("/v1/jobs/") => (StatusCode::OK, described()),
                _ => (StatusCode::OK, r#"{"workers":[],"jobs":[]}"#.to_owned()),
            }
        };
        let api = listen(Router::new().fallback(get(answer)), &stop).await;
        let feed = Feed::new(Upstream::new(&format!("http://{api}"), None).unwrap(), Broker::absent());
        tokio::spawn(Arc::clone(&feed).run(stop.clone()));
        let access = Access::new(options.identity, Hosts::named(&options.hosts));
        let console = Console::new(feed, access, options.actions, stop.clone());
        let address = listen(router(console), &stop).await;
        let client = Client::builder().no_proxy().build().unwrap();
        Self { address, asked, client, _stop: stop.drop_guard() }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.url(path))
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(method.parse().unwrap(), self.url(path))
    }

    /// An action as a page of the console asks for it.
    pub fn act(&self) -> RequestBuilder {
        self.request("POST", "/actions/cancel")
            .header(header::ORIGIN, format!("http://{}", self.address))
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/json")
            .body(r#"{"jobs":["01990f3e-0000-7000-8000-000000000001"]}"#)
    }
}

/// A job with the output.
fn described() -> String {
    format!(r#"{{"outputs":[{{"name":"y","dtype":"u8","shape":[{OUTPUT_BYTES}],"digest":null,"is_expired":false}}]}}"#)
}

async fn listen(router: Router, stop: &CancellationToken) -> SocketAddr {
    let (listener, address) = server::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    tokio::spawn(server::serve(listener, Pages { all: router, health: Router::new() }, stop.clone()));
    address
}

pub async fn status(request: RequestBuilder) -> u16 {
    answer(request).await.status().as_u16()
}

pub async fn answer(request: RequestBuilder) -> Response {
    request.send().await.unwrap()
}
